"""Parts of `sanitize.py`: the kernels of one-shot calls, and those of an array in parts, at small shapes."""

import itertools
from typing import Any

import numpy as np
from sanitizing import begin, compare

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.operators import ElementMap

# One of each kind of kernel: a warp's and blocks' rows, rows in tiles, columns side by side and strided.
SHAPES = [((5,), None), ((3000,), None), ((70_001,), None), ((40, 3), 1), ((9, 100), 1), ((4, 2049), 1),
          ((3, 20_000), 1), ((3, 5), 0), ((120, 30), 0), ((600, 64), 0), ((6, 7, 8), (0, 2))]  # fmt: skip
OPERATORS = ["sum", "argmax", "mean_var"]
TYPES = ["bfloat16", "float64", "int8"]
SEGMENTS = np.array([0, 3, 3, 4, 104, 104, 1129, 9000])
LENGTHS = [1024, 5000, 4096 * 5 + 3]
SHARES = [1, 2, 3]
SQUARE = ElementMap("x * x", numpy=lambda x: x * x)


def check_calls(rng: np.random.Generator, stream: lr.Stream) -> int:
    """Make one-shot calls twice, the second from what the first prepared; return how many launches were checked."""
    done = 0
    for shape, axis in SHAPES:
        x = (rng.standard_normal(shape) * 50).astype(np.float32)
        array = lr.DeviceArray.from_numpy(x, stream)
        for op in OPERATORS:
            case = begin(f"{op} of {shape} axis {axis}, called twice")
            expected = lr.tree.reduce(x, op, axis=axis)
            for _ in range(2):
                compare(case, lr.reduce(array, op, axis=axis, stream=stream), expected)
                done += 1
    return done + _check_options(rng, stream) + _check_segments(rng, stream)


def _check_options(rng: np.random.Generator, stream: lr.Stream) -> int:
    done = 0
    for dtype in TYPES:
        x = (rng.standard_normal((7, 1100)) * 50).astype(numpy_dtype(dtype))
        array = lr.DeviceArray.from_numpy(x, stream)
        options: dict[str, Any] = {"where": rng.random(x.shape) < 0.5}
        for name, asked in {"where": options, "initial": {"initial": 3}, "map": {"map": SQUARE}}.items():
            for axis in (0, 1, None):
                case = begin(f"sum of {x.shape} {dtype} axis {axis} with {name}")
                expected = lr.tree.reduce(x, axis=axis, **asked)
                compare(case, lr.reduce(array, "sum", axis=axis, stream=stream, **asked), expected)
                done += 1
    return done


def _check_segments(rng: np.random.Generator, stream: lr.Stream) -> int:
    x = rng.standard_normal(SEGMENTS[-1]).astype(np.float32)
    values, offsets = (lr.DeviceArray.from_numpy(each, stream) for each in (x, SEGMENTS))
    expected = np.array([lr.tree.reduce(x[a:b]) for a, b in itertools.pairwise(SEGMENTS)], np.float32)
    for check in (False, True):
        case = begin(f"segments, whose offsets are {'' if check else 'not '}checked")
        compare(case, lr.segmented_reduce(values, offsets, stream=stream, check=check), expected)
    return 2


def check_parts(rng: np.random.Generator, stream: lr.Stream) -> int:
    """Fold arrays in parts to partials, plain and padded, and these to the whole; return how many were checked."""
    done, chunk = 0, 1024
    for length in LENGTHS:
        x = (rng.standard_normal(length) * 50).astype(np.float32)
        for op in ("sum", "argmax", "mean_var"):
            expected = lr.tree.reduce(x, op)
            first = {"first": lr.DeviceArray.from_numpy(x[:1], stream)} if op == "mean_var" else {}
            for shares in SHARES:
                case = begin(f"{op} of {length} in {shares} shares")
                cut = np.cumsum([0, *lr.shard_lengths(length, "float32", shares, chunk=chunk)])
                rows = max(-(-int(b - a) // chunk) for a, b in itertools.pairwise(cut)) + 1
                made = [_partials(x[a:b], op, chunk, rows, stream, first) for a, b in itertools.pairwise(cut)]
                gathered = lr.DeviceArray.from_numpy(np.concatenate(made), stream)
                whole: dict[str, Any] = {"length": length, "chunk": chunk, "dtype": "float32", **first}
                compare(case, lr.combine_partials(gathered, op, shards=shares, stream=stream, **whole), expected)
                plain = lr.DeviceArray.from_numpy(_partials(x, op, chunk, None, stream, first), stream)
                compare(case, lr.combine_partials(plain, op, stream=stream, **whole), expected)
                done += 2 * shares + 2
    return done + _check_shards(rng, stream)


def _partials(
    x: np.ndarray[Any, Any], op: str, chunk: int, rows: int | None, stream: lr.Stream, first: dict[str, Any]
) -> np.ndarray[Any, Any]:
    array = lr.DeviceArray.from_numpy(x, stream)
    found: np.ndarray[Any, Any] = lr.partials(array, op, chunk=chunk, rows=rows, stream=stream, **first).numpy()
    return found


def _check_shards(rng: np.random.Generator, stream: lr.Stream) -> int:
    """One array in two streams of a device: the first call, and the repeated one, which is prepared."""
    x = rng.standard_normal((2, 3072)).astype(np.float32)
    with lr.Stream.create(stream.context) as other:
        arrays = [lr.DeviceArray.from_numpy(part, each) for part, each in zip(x, (stream, other), strict=True)]
        for op in ("sum", "max"):
            case = begin(f"{op} of two shards, called twice")
            for _ in range(2):
                compare(case, lr.reduce_shards(arrays, op), lr.tree.reduce(x.ravel(), op))
    return 4
