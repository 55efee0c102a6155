"""Runs every kernel on small, awkward inputs and checks the bits; made to be run under compute-sanitizer.

compute-sanitizer --tool TOOL --error-exitcode 9 python tests/gpu/sanitize.py [--without-clusters] [--seconds S]
    [whole|long|shapes|many|small|pairs|operations|calls|parts ...]

A tool is memcheck, racecheck, synccheck or initcheck. Each case is told before it is launched, so that one that takes a
tool very long can be seen. Without clusters, every launch is as on a device that has none. When its seconds have
passed, it begins no case any more. It ends its process by itself, so that the tool sums up.
"""

import argparse
import atexit
import itertools
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
import sanitized_calls
from placed import reduced
from sanitizing import TimeIsUp, WrongBitsError, begin, ended_by_itself, ending, limited, same

import lowlevel_reduce as lr
from lowlevel_reduce.calls import threads
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.plans import mapping

KERNELS: list[dict[str, Any]] = [
    {"strategy": "block"},
    {"strategy": "cluster", "cluster": 8},
    {"strategy": "cluster", "cluster": 16},
    {"strategy": "tiles", "cluster": 1},
    {"strategy": "tiles", "cluster": 4},
    {"strategy": "tiles", "cluster": 1, "block_threads": 512},
    {"strategy": "two_pass"},
    {"strategy": "cooperative"},
]
ROWS = [((40, 3), 1), ((9, 100), 1), ((5, 1025), 1), ((3, 20_000), 1), ((66, 9000), 1), ((1, 300_001), 1), ((3, 5), 0),
        ((500, 30), 0), ((70_000, 3), 0), ((3000, 64), 0)]  # fmt: skip
OPERATORS = ["sum", "max", "argmax", "mean_var", "logsumexp", "dot"]
SEGMENTS = [3, 0, 1, 100, 40_000, 0, 1025, 17 * 1024, 5]
TYPES = [("float32", None), ("float16", None), ("float64", "compensated"), ("int8", None)]
# Operators that fold vectors of small elements, and magnitudes: whole, short and long rows, columns, segments.
SMALL = [("minmax", "float8_e4m3fn"), ("argmax", "uint8"), ("any", "float8_e5m2"), ("norm2", "int8"),
         ("norm1", "complex64")]  # fmt: skip
SMALL_ROWS = [((1, 30_001), 1), ((40, 16), 1), ((5, 1025), 1), ((3, 12_289), 1), ((500, 30), 0), ((9000, 48), 0),
              ((9000, 50), 0)]  # fmt: skip
# Second arrays: by vectors, by elements, byte by byte, in rows of every kind of kernel.
PAIRS = [("float32", "dot"), ("int8", "dot"), ("float16", "sum")]
PAIR_ROWS = [((40, 4), 1), ((9, 100), 1), ((3, 5000), 1), ((1200, 2050), 1), ((2, 70_000), 1), ((500, 30), 0)]
# Grids of many turns of the largest devices.
LONG = [((60_000_000,), None), ((2, 30_000_000), 1), ((500_000, 33), 1)]
# As many rows as take a warp for each leaf, at vectors and at any address, short rows at any address, columns of which
# a thread loads sixteen bytes side by side, and columns that blocks begin to read early.
MANY = [((600, 5000), 1), ((1100, 1100), 1), ((2200, 3001), 1), ((3000, 999), 1), ((16_384, 260), 0),
        ((65_536, 64), 0)]  # fmt: skip
# As many rows of several tiles as it takes for warps to fold their partials.
MANY_LONG = (400, 17_000)
# Row operations: by warps, blocks, clusters and in turns, where rows lie at any address.
WAYS: list[dict[str, Any]] = [
    {},
    {"strategy": "block_rows"},
    {"strategy": "block_rows", "cluster": 4},
    {"strategy": "turn_rows"},
    {"strategy": "turn_rows", "cluster": 2},
    {"strategy": "warp_rows"},
]
OPERATION_ROWS = [("float32", 257), ("float32", 5003), ("bfloat16", 1000), ("bfloat16", 9000)]
LENGTHS = [0, 1, 1023, 4097, 300_001]
OFFSETS = [0, 1, 12]


def check_shapes(rng: np.random.Generator, stream: lr.Stream) -> int:
    """Run rows and columns, contiguous and strided, and segments; return how many launches were checked."""
    done = 0
    for (shape, axis), op in itertools.product(ROWS, OPERATORS):
        case = begin(f"{op} of {shape} axis {axis}")
        x = rng.standard_normal(shape).astype(np.float32)
        second = rng.standard_normal(shape).astype(np.float32) if op == "dot" else None
        found = lr.reduce(x, op, axis=axis, second=second, stream=stream)
        expected = lr.tree.reduce(x, op, axis=axis, second=second)
        pairs = zip(found, expected, strict=True) if isinstance(expected, tuple) else [(found, expected)]
        if not all(np.allclose(mine.numpy(), theirs, rtol=1e-6, atol=1e-5) for mine, theirs in pairs):
            raise WrongBitsError(case)
        done += 1
    begin("segments")
    offsets = np.concatenate([[0], np.cumsum(SEGMENTS)])
    x = rng.standard_normal(offsets[-1]).astype(np.float32)
    for _ in range(2):
        found = lr.segmented_reduce(x, offsets, stream=stream).numpy()
        expected = [lr.tree.reduce(x[a:b]) for a, b in itertools.pairwise(offsets)]
        if found.tobytes() != np.array(expected, np.float32).tobytes():
            raise WrongBitsError("segments")
        done += 1
    return done


def check_small_elements(rng: np.random.Generator, stream: lr.Stream) -> int:
    """Run the folds of vectors of small elements by each kind of kernel; return how many launches were checked."""
    done = 0
    for op, dtype in SMALL:
        for shape, axis in SMALL_ROWS:
            case = begin(f"{op} of {shape} {dtype} axis {axis}")
            x = (rng.standard_normal(shape) * 50).astype(numpy_dtype(dtype))
            expected = lr.tree.reduce(x, op, axis=axis)
            if not same(lr.reduce(x, op, axis=axis, stream=stream), expected):
                raise WrongBitsError(case)
            done += 1
        case = begin(f"{op} of segments of {dtype}")
        offsets = np.concatenate([[0], np.cumsum(SEGMENTS)])
        x = (rng.standard_normal(offsets[-1]) * 50).astype(numpy_dtype(dtype))
        filled = [i for i, count in enumerate(SEGMENTS) if count]
        offsets = np.concatenate([[0], offsets[1:][filled]])  # an extreme of nothing is refused
        found = lr.segmented_reduce(x, offsets, op, stream=stream)
        rows = [lr.tree.reduce(x[a:b], op) for a, b in itertools.pairwise(offsets)]
        parts = zip(*rows, strict=True) if isinstance(found, tuple) else [rows]
        found = found if isinstance(found, tuple) else (found,)
        if not same(found, tuple(np.stack(part) for part in parts)):
            raise WrongBitsError(case)
        done += 1
    return done


def check_two_arrays(rng: np.random.Generator, stream: lr.Stream) -> int:
    """Run dot products and masked sums whose second array lies anyhow; return how many launches were checked."""
    done = 0
    for (dtype, op), (shape, axis) in itertools.product(PAIRS, PAIR_ROWS):
        x = (rng.standard_normal(shape) * 50).astype(numpy_dtype(dtype))
        wide = (rng.standard_normal((shape[0], 2 * shape[1])) * 50).astype(x.dtype)
        wide = wide > 0 if op == "sum" else wide
        for second in (wide[:, : shape[1]].copy(), wide[:, ::2], wide[:, shape[1] - 1 :: -1]):
            options: dict[str, Any] = {"second" if op == "dot" else "where": second}
            expected = lr.tree.reduce(x, op, axis=axis, **options)
            for offset in sorted({0, 1, x.itemsize}):
                case = begin(f"{op} of {shape} {dtype} axis {axis}, second {second.strides} from byte {offset}")
                found = reduced(x, op, stream=stream, axis=axis, second=second, second_offset=offset)
                if found.tobytes() != expected.tobytes():
                    raise WrongBitsError(case)
                done += 1
    return done


def check_long_grids(rng: np.random.Generator, stream: lr.Stream) -> int:
    """Run a whole array and rows that take many blocks: these prefetch, and let the next kernel in at once."""
    for shape, axis in LONG:
        case = begin(f"sum of {shape} axis {axis}")
        x = rng.standard_normal(shape, np.float32)
        if not same(lr.sum(x, axis=axis, stream=stream), lr.tree.reduce(x, axis=axis)):
            raise WrongBitsError(case)
    return len(LONG)


def check_many_rows(rng: np.random.Generator, stream: lr.Stream) -> int:
    """Run many rows and columns; return how many launches were checked."""
    for (shape, axis), op in itertools.product(MANY, ["sum", "max", "mean_var"]):
        case = begin(f"{op} of {shape} axis {axis}")
        x = rng.standard_normal(shape, np.float32)
        if not same(lr.reduce(x, op, axis=axis, stream=stream), lr.tree.reduce(x, op, axis=axis)):
            raise WrongBitsError(case)
    case = begin(f"sum of {MANY_LONG} axis 1 in tiles")
    x = rng.standard_normal(MANY_LONG, np.float32)
    if not np.array_equal(reduced(x, stream=stream, axis=1, strategy="batch"), lr.tree.reduce(x, axis=1)):
        raise WrongBitsError(case)
    return 3 * len(MANY) + 1


def check_whole_arrays(rng: np.random.Generator, stream: lr.Stream) -> int:
    """Run whole arrays by each strategy, at every alignment, of exactly the memory they have."""
    done, context = 0, stream.context
    clusters = mapping.facts_of(context).clusters
    kernels = [kernel for kernel in KERNELS if clusters or kernel.get("cluster", 1) == 1]
    for (dtype, accumulate), kernel in itertools.product(TYPES, kernels):
        for n, offset in itertools.product(LENGTHS, OFFSETS):
            case = begin(f"{dtype} {kernel} n={n} offset={offset}")
            x = (rng.standard_normal(n) * 50).astype(numpy_dtype(dtype))
            size = max(x.nbytes + offset, 1)  # exactly: a byte too far is out of bounds
            with (
                lr.plan("sum", shape=n, dtype=dtype, accumulate=accumulate, context=context, **kernel) as plan,
                lr.Buffer.allocate(size, context) as memory,
                lr.Buffer.allocate(plan.result_dtype.itemsize, context) as result,
            ):
                place = lr.Buffer.from_pointer(memory.pointer + offset, x.nbytes, context=context)
                place.copy_from(x)
                launch = plan.bind(stream)
                for _ in range(2):
                    launch(place.pointer, result.pointer)
                value = np.empty((), plan.result_dtype)
                stream.synchronize()
                result.copy_to(value)
                launch.close()
                if value.tobytes() != lr.tree.reduce(x, accumulate=accumulate).tobytes():
                    raise WrongBitsError(f"{case}: {value}")
                done += 1
    return done


def check_row_operations(rng: np.random.Generator, stream: lr.Stream) -> int:
    """Run row operations; of those that take exponentials, all strategies must agree."""
    done, clusters = 0, mapping.facts_of(stream.context).clusters
    ways = [way for way in WAYS if clusters or way.get("cluster", 1) == 1]
    for dtype, length in OPERATION_ROWS:
        x, weight = ((rng.standard_normal(shape) * 3).astype(numpy_dtype(dtype)) for shape in ((5, length), (length,)))
        target = rng.integers(0, length, 5)
        expected = lr.tree.rms_norm(x, weight, 1e-6), lr.tree.layer_norm(x, weight, weight)
        exponentials = lr.softmax(x, stream=stream).numpy(), lr.cross_entropy(x, target, stream=stream).numpy()
        quantized = lr.quantize(x[:, :256], "int8", block=128, stream=stream)
        done += 3
        for one, other in zip(quantized, lr.tree.quantize(x[:, :256], "int8", block=128), strict=True):
            if not same(one, other):
                raise WrongBitsError(f"quantize of {dtype}")
        for way in ways:
            most = {"block_rows": 16 * way.get("cluster", 1), "warp_rows": 1}.get(way.get("strategy", ""), 1 << 20)
            if x.itemsize * length > 4096 * most:
                continue
            case = begin(f"row operations of {x.shape} {dtype} {way}")
            found = [lr.rms_norm(x, weight, 1e-6, stream=stream, **way)]
            found += [lr.layer_norm(x, weight, weight, stream=stream, **way), lr.softmax(x, stream=stream, **way)]
            found += [lr.cross_entropy(x, target, stream=stream, **way)]
            if not all(same(one, other) for one, other in zip(found, (*expected, *exponentials), strict=True)):
                raise WrongBitsError(case)
            done += len(found)
        done += check_columns_of_operations(x, weight, stream)
    return done


def check_columns_of_operations(x: Any, weight: Any, stream: lr.Stream) -> int:
    """Run row operations along the first axis, and over groups of channels; return how many launches were checked."""
    case = begin(f"row operations of {x.T.shape} {x.dtype} along the first axis")
    columns = np.ascontiguousarray(x.T)
    found = lr.layer_norm(columns, weight, weight, axis=0, stream=stream)
    if not same(found, lr.tree.layer_norm(columns, weight, weight, axis=0)):
        sys.exit(f"wrong: {case}")
    images = x[:, :256].reshape(5, 4, 8, 8)
    found = lr.group_norm(images, 2, weight[:4], weight[4:8], stream=stream)
    if not same(found, lr.tree.group_norm(images, 2, weight[:4], weight[4:8])):
        sys.exit(f"wrong: group_norm of {x.dtype}")
    return 2


PARTS = {
    "whole": check_whole_arrays,
    "long": check_long_grids,
    "shapes": check_shapes,
    "many": check_many_rows,
    "small": check_small_elements,
    "pairs": check_two_arrays,
    "operations": check_row_operations,
    "calls": sanitized_calls.check_calls,
    "parts": sanitized_calls.check_parts,
}


def forget_clusters() -> None:
    """Make every device one that has no clusters."""
    facts_of = mapping.facts_of
    mapping.facts_of = lambda context: facts_of(context)._replace(clusters=False)


def check(names: Sequence[str]) -> int:
    """Run parts in a context of their own, which ends with all that is in it; return how many launches were checked."""
    rng, done = np.random.default_rng(0), 0
    with lr.Context.create() as context, context.pushed(), lr.Stream.create(context) as stream:
        for name in names:
            try:
                done += PARTS[name](rng, stream)
            except TimeIsUp as up:
                print(f"{up}, of {name}, of which nothing is counted", flush=True)
                break
        ending("what the thread keeps")
        threads.here().forget()
        ending("the stream")
        stream.close()
        ending("the context")
    ending("kernels, which belong to no context")
    atexit._run_exitfuncs()
    return done


def main(arguments: Sequence[str]) -> NoReturn:
    """Run what the command line asks for, and end the process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--without-clusters", action="store_true")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("names", nargs="*", choices=[*PARTS, []])
    asked = parser.parse_args(arguments)
    if asked.without_clusters:
        forget_clusters()
    if asked.seconds is not None:
        limited(asked.seconds)
    ended_by_itself(lambda: check(asked.names or list(PARTS)))


if __name__ == "__main__":
    main(sys.argv[1:])
