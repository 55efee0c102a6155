"""The vectors of docs/tree.md: small cases of the tree with inputs by a formula and results in hexadecimal.

``python -m tests.golden.vectors`` adds those that are missing, by the tree; with ``--check`` it compares. As for the
hashes, what is recorded is never replaced under the same tree version.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import ELEMENT_TYPES, ElementType, element_type
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import OPERATORS, Array, resolve
from tests.golden.from_the_text import PARTS, filled, words

__all__ = ["FILE", "Vector", "arrays", "by_tree", "options_of", "read", "wanted"]

FILE = Path(__file__).with_name("vectors.jsonl")

Vector = dict[str, Any]

_LENGTH = 150
"""Of most vectors: more than a step of most types, and no multiple of anything."""

_TELLING: dict[str, dict[str, Any]] = {
    "float8_e5m2": {"dtype": "float64"},
    "float16": {"dtype": "float32"},
    "float32": {"dtype": "float64"},
    "float64": {},
    "complex128": {},
    "bfloat16": {"dtype": "float32"},
}
"""Sums whose bits tell the order of all additions, with 16, 8, 4, 2 and 1 elements in a vector."""


def _vector(op: str, dtype: str, shape: Sequence[int], fill: str = "any", **more: Any) -> Vector:
    return {"op": op, "dtype": dtype, "shape": list(shape), "fill": fill, **more}


def _hex(dtype: str, value: Any) -> str:
    return np.asarray(value).astype(element_type(dtype).dtype).tobytes().hex()


def _levels(vector: int) -> list[int]:
    """Return lengths around every level of the tree."""
    step, leaf = 32 * vector, 256 * vector
    around = [vector, step, 4 * step, leaf]
    few = [0, 1, 2, 3, *(each + d for each in around for d in (-1, 0, 1)), 2 * leaf + 1, 3 * leaf + step + 5]
    few += [5 * leaf] if vector < 16 else []  # the second implementation takes its time
    return sorted({each for each in few if each >= 0})


def _plain() -> Iterator[Vector]:
    for dtype, options in _TELLING.items():
        for length in _levels(element_type(dtype).vector):
            yield _vector("sum", dtype, [length], options=options)
    for op in OPERATORS:
        for element in _takers(op):
            fill = "near one" if op == "prod" else "few" if op in ("any", "all", "count_nonzero") else "any"
            yield _vector(op, element.name, [_LENGTH], fill)
            yield _vector(op, element.name, [0]) if OPERATORS[op].empty else _vector(op, element.name, [1])


def _takers(op: str) -> Iterator[ElementType]:
    for element in ELEMENT_TYPES:
        try:
            OPERATORS[op].types(element)
        except UnsupportedError:
            continue
        yield element


def _accumulators() -> Iterator[Vector]:
    for op, element in itertools.product(("sum", "mean", "dot", "norm2"), ELEMENT_TYPES):
        for accumulator in OPERATORS[op].rule(element).accumulators[1:]:
            yield _vector(op, element.name, [_LENGTH], options={"accumulate": accumulator})
    for element in ELEMENT_TYPES:
        for op in ("sum", "mean", "norm1", "var", "mean_var", "count_nonzero"):
            if op == "mean_var" and element.is_complex:
                continue
            for result in OPERATORS[op].rule(element).results:
                yield _vector(op, element.name, [_LENGTH], options={"dtype": result})
    for dtype in ("float32", "float64"):
        for length in (1, 5, 1025):
            yield _vector("sum", dtype, [length], options={"accumulate": "compensated", "dtype": "float64"})
            yield _vector("dot", dtype, [length], options={"accumulate": "compensated", "dtype": "float64"})
    cancels = {"0": _hex("float64", 1e300), "3": _hex("float64", -1e300), "7": _hex("float64", 2.0**-1000)}
    for accumulator in ("float64", "compensated"):
        yield _vector("sum", "float64", [40], set=cancels, options={"accumulate": accumulator})
        over = {str(i): _hex("float64", 1.7e308) for i in (0, 1)} | {"2": _hex("float64", -1.7e308)}
        yield _vector("sum", "float64", [3], set=over, options={"accumulate": accumulator})
    for dtype in ("int32", "uint8"):
        yield _vector("sum", dtype, [_LENGTH], options={"accumulate": dtype})
    big = {"1": _hex("float32", 1e30), "2": _hex("float32", -1e30)}
    yield _vector("norm2", "float32", [5], set=big, options={"accumulate": "float32"})
    ties = {"0": _hex("float32", 1.0), "1": _hex("float32", 2.0**-8), "2": _hex("float32", 2.0**-60)}
    for result, accumulator in itertools.product(("bfloat16", "float16"), ("float64", "compensated")):
        yield _vector("sum", "float32", [3], set=ties, options={"accumulate": accumulator, "dtype": result})


def _special() -> Iterator[Vector]:
    """Yield zeros of both signs, NaN and infinities, on every level, and extremes that are equal."""
    for dtype in ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "float32", "float64"):
        nan, plus = _hex(dtype, np.nan), _hex(dtype, 0.0)
        negative = f"{nan[:-2]}{int(nan[-2:], 16) ^ 0x80:02x}"
        infinite = [_hex(dtype, each) for each in (np.inf, -np.inf)]  # NaN in a float8 that has no infinity
        for op in ("sum", "prod", "min", "max", "minmax", "argmin", "argmax", "norm_inf", "mean", "var"):
            yield _vector(op, dtype, [70], "zeros")
            yield _vector(op, dtype, [70], "zeros", set={"65": plus})
            yield _vector(op, dtype, [_LENGTH], "few", set={"33": nan, "140": negative})
            yield _vector(op, dtype, [70], "few", set={"2": infinite[0], "64": infinite[1]})
        for op in ("argmin", "argmax"):
            yield _vector(op, dtype, [_LENGTH], "few", options={"last": True})
            yield _vector(op, dtype, [_LENGTH], "few", set={"5": nan, "130": nan}, options={"last": True})
        for op in ("sum", "mean", "min", "max"):
            yield _vector(op, dtype, [_LENGTH], "few", set={"0": nan, "99": nan}, options={"nan": "ignore"})
            yield _vector(op, dtype, [3], set={str(i): nan for i in range(3)}, options={"nan": "ignore"})
        yield _vector("any", dtype, [40], "zeros", set={"31": nan})
    infinity = _hex("complex128", complex(np.inf, 1.0))
    for op in ("sum", "prod", "mean", "norm1", "norm2", "norm_inf", "var"):
        yield _vector(op, "complex128", [2], "near one", set={"0": infinity})
        yield _vector(op, "complex128", [3], set={"1": _hex("complex128", complex(np.nan, np.inf))})
        yield _vector(op, "complex64", [3], set={"1": _hex("complex64", complex(1e30, -1e30))})
    one = _hex("complex128", complex(1.0, -0.0))
    yield _vector("prod", "complex128", [3], set={"0": one, "1": infinity})
    yield _vector("norm1", "complex128", [2], set={"0": _hex("complex128", complex(1e300, 1e-300))})
    yield _vector("sum", "float64", [2], "zeros", options={"nan": "ignore"})


def _moments() -> Iterator[Vector]:
    for op in ("var", "std", "mean_var"):
        for dtype in ("float32", "float64", "int8", "int64"):
            yield _vector(op, dtype, [_LENGTH], options={"ddof": 1})
            yield _vector(op, dtype, [1], options={"ddof": 1})
            yield _vector(op, dtype, [_LENGTH], options={"ddof": 1.5, "where": True})
        large = {"0": _hex("float64", 1e308), "9": _hex("float64", -1e308)}
        yield _vector(op, "float64", [_LENGTH], set=large)
        yield _vector(op, "float64", [_LENGTH], set={"9": large["9"]})
        yield _vector(op, "float64", [2], set={"0": large["0"], "1": large["9"]})
        yield _vector(op, "float64", [20], set={"0": _hex("float64", np.inf)})
    yield _vector("std", "complex128", [20], set={"7": _hex("complex128", complex(1e300, -1e200))})
    yield _vector("var", "complex64", [20], options={"where": True})


def _options() -> Iterator[Vector]:
    takers = [op for op in OPERATORS if _takes_mask(op)]
    for op, dtype in itertools.product(takers, ("float32", "int32", "float16")):
        fill = "near one" if op == "prod" else "any"
        initial = {"initial": 2} if op in ("min", "max") else {}
        yield _vector(op, dtype, [_LENGTH], fill, options={"where": True, **initial})
    for op in ("sum", "prod", "min", "max"):
        for dtype in ("float16", "float32", "int8", "uint64"):
            yield _vector(op, dtype, [9], "few", options={"initial": 3})
            yield _vector(op, dtype, [0], options={"initial": 3})
    yield _vector("sum", "complex64", [9], options={"initial": 1.5})
    yield _vector("sum", "float32", [2], "zeros", options={"where": True})


def _takes_mask(op: str) -> bool:
    try:
        resolve(op, where=True, initial=op in ("min", "max"))
    except ValueError:
        return False
    return True


def _layouts() -> Iterator[Vector]:
    for axis in ([0], [1], [2], [0, 1], [0, 2], [1, 2]):
        yield _vector("sum", "float32", [3, 5, 7], axis=axis, options={"dtype": "float64"})
        yield _vector("argmax", "float32", [3, 5, 7], "few", axis=axis)
    yield _vector("sum", "float16", [300, 3], axis=[0], options={"dtype": "float32"})
    yield _vector("sum", "float64", [300], offsets=[0, 1, 1, 3, 132, 300])
    yield _vector("mean_var", "float32", [300], offsets=[0, 1, 129, 300])


def wanted() -> list[Vector]:
    """Return all vectors without their results, each once; the seed of each is its place."""
    found: dict[str, Vector] = {}
    for make in (_plain, _accumulators, _special, _moments, _options, _layouts):
        for vector in make():
            key = json.dumps(vector, sort_keys=True)
            found.setdefault(key, vector)
    for seed, vector in enumerate(found.values(), start=1):
        if not OPERATORS[vector["op"]].exact:
            vector["near"] = True
        vector["seed"] = 3 * seed  # a second array and a mask have the two that follow
    return list(found.values())


def arrays(vector: Vector) -> tuple[Array, Array | None]:
    """Return a vector's array and its second array, or its mask."""
    other = None
    if vector["op"] == "dot":
        other = _filled(vector, vector["seed"] + 1)
    elif vector.get("options", {}).get("where"):
        taken = [w % 4 != 0 for w in words(vector["seed"] + 2, math.prod(vector["shape"]))]
        other = np.array(taken, bool).reshape(vector["shape"])
    array = _filled(vector, vector["seed"])
    flat = array.reshape(-1)
    for index, text in vector.get("set", {}).items():
        flat[int(index)] = np.frombuffer(bytes.fromhex(text), array.dtype)[0]
    return array, other


def _filled(vector: Vector, seed: int) -> Array:
    element = element_type(vector["dtype"])
    parts = 2 if element.is_complex else 1
    bits = words(seed, math.prod(vector["shape"]) * parts)
    part = PARTS.get(element.name, element.name)
    made = np.array([filled(part, vector["fill"], w) for w in bits], f"u{element.itemsize // parts}")
    shaped: Array = made.view(element.dtype).reshape(vector["shape"])
    return shaped


def options_of(vector: Vector) -> dict[str, Any]:
    """Return the options as functions take them, but for the mask."""
    return {name: value for name, value in vector.get("options", {}).items() if name != "where"}


def by_tree(vector: Vector) -> list[list[str]]:
    """Return a vector's results by `lowlevel_reduce.tree`."""
    array, other = arrays(vector)
    options = options_of(vector)
    seconds: dict[str, Any] = {} if other is None else {"second" if vector["op"] == "dot" else "where": other}
    if "offsets" not in vector:
        axis = tuple(vector["axis"]) if "axis" in vector else None
        return texts(lr.tree.reduce(array, vector["op"], axis=axis, **seconds, **options))
    rows = [
        texts(lr.tree.reduce(array[begin:end], vector["op"], **options))
        for begin, end in itertools.pairwise(vector["offsets"])
    ]
    return [[each for part in parts for each in part] for parts in zip(*rows, strict=True)]


def texts(results: Any) -> list[list[str]]:
    """Return results as a vector says them."""
    several = results if isinstance(results, tuple) else (results,)
    return [[each.tobytes().hex() for each in np.asarray(result).reshape(-1)] for result in several]


def read() -> tuple[int, list[Vector]]:
    """Return the version of the tree and the vectors of the file."""
    first, *lines = map(json.loads, FILE.read_text(encoding="utf-8").splitlines())
    return first["tree_version"], lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.golden.vectors", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare what is recorded, and write nothing")
    asked = parser.parse_args(arguments)
    version, known = read() if FILE.exists() else (lr.__tree_version__, [])
    for number, vector in enumerate(known, start=2):
        if version == lr.__tree_version__ and not vector.get("near") and by_tree(vector) != vector["results"]:
            print(f"{FILE.name}:{number}: other results with the same tree version {version}", file=sys.stderr)
            return 1
    if asked.check:
        print(f"{len(known)} vectors have their results of tree version {version}")
        return 0
    lines: list[dict[str, Any]] = [{"tree_version": lr.__tree_version__}]
    lines += [{**vector, "results": by_tree(vector)} for vector in wanted()]
    FILE.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(f"{len(lines) - 1} vectors, {FILE.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
