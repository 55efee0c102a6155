"""A golden case: an operator with options, a type and a layout; its arrays, its results by the tree, and their hash."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import ElementType, element_type
from lowlevel_reduce.operators import Array, ElementMap, NumpyMeaning, Operator, Reduction, Types, resolve
from tests.golden.elements import elements, mask
from tests.golden.layouts import LAYOUTS, Layout, segment_lengths

__all__ = ["FILE", "MAPS", "USERS", "Case", "by_tree", "hashed", "read", "write"]

FILE = Path(__file__).with_name("cases.jsonl")

MAPS = {
    each.source: each
    for each in (ElementMap("x * x", numpy=lambda x: x * x), ElementMap("x - y", numpy=lambda x, y: x - y))
}

_ABSMAX = Operator(
    "absmax",
    map="fabsf(x)",
    combine="fmaxf(a, b)",
    identity='nanf("")',
    numpy=NumpyMeaning(
        identity=(np.float32(np.nan),),
        map=lambda x, y, i: (np.abs(x.astype(np.float32)),),
        combine=lambda a, b: (np.fmax(a[0], b[0]),),
    ),
)
_WEIGHTED = Operator(
    "weighted",
    map="double(x) * double(i % 7 + 1)",
    combine="a + b",
    identity="-0.0",
    finish="a / double(n)",
    accumulator="float64",
    result="float64",
    numpy=NumpyMeaning(
        identity=(np.float64(-0.0),),
        map=lambda x, y, i: (x.astype(np.float64) * (i % np.uint64(7) + np.uint64(1)).astype(np.float64),),
        combine=lambda a, b: (a[0] + b[0],),
        finish=lambda a, n: a[0] / np.float64(n),
    ),
)
_DISTANCES = Operator(
    "distances",
    map="const float d = fabsf(float(x) - float(y)); return Accumulator{d, d};",
    combine="Accumulator{a.sum + b.sum, fmaxf(a.largest, b.largest)}",
    identity='Accumulator{-0.0f, nanf("")}',
    finish=("a.sum", "a.largest"),
    accumulator="struct { float sum; float largest; }",
    accumulator_bytes=8,
    result="float32",
    second=True,
    numpy=NumpyMeaning(
        identity=(np.float32(-0.0), np.float32(np.nan)),
        map=lambda x, y, i: 2 * (np.abs(x.astype(np.float32) - np.asarray(y).astype(np.float32)),),
        combine=lambda a, b: (a[0] + b[0], np.fmax(a[1], b[1])),
        finish=lambda a, n: a,
    ),
)
USERS = {each.name: each for each in (_ABSMAX, _WEIGHTED, _DISTANCES)}
"""Operators as users write them: one value, one that uses the index, and one of two arrays with two results."""


@dataclass(frozen=True)
class Case:
    """One golden case, as a line of the file says it.

    Attributes
    ----------
    op, dtype : str
        The operator and the elements' type.
    layout : str
        A key of `LAYOUTS`.
    length : int
        About how many elements a row has.
    kind : str
        Which elements: see `elements`.
    options : dict
        Options of the operator. `map` is a key of `MAPS`; `where` and `initial` tell that there is a mask and a start
        value.
    """

    op: str
    dtype: str
    layout: str
    length: int
    kind: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What the case is, in words."""
        asked = "".join(f" {key}={value}" for key, value in self.options.items())
        return f"{self.op} of {self.dtype}{asked}, {self.layout} of {self.length}, {self.kind}"

    @property
    def element(self) -> ElementType:
        """The elements' type."""
        return element_type(self.dtype)

    @property
    def operator(self) -> Any:
        """The operator as functions take it."""
        return USERS.get(self.op, self.op)

    @property
    def plain(self) -> dict[str, Any]:
        """The options that every function takes by the same names."""
        names = ("nan", "ddof", "last")
        found = {name: self.options[name] for name in names if name in self.options}
        return {**found, "map": MAPS[self.options["map"]]} if "map" in self.options else found

    @cached_property
    def reduction(self) -> Reduction:
        """The operator with its options applied."""
        where, initial = self.options.get("where", False), self.options.get("initial", False)
        return resolve(self.operator, where=where, initial=initial, **self.plain)

    @property
    def types(self) -> Types:
        """The types of elements, accumulator and results."""
        return self.reduction.types(self.element, self.options.get("accumulate"), self.options.get("dtype"))

    @property
    def shape_of_rows(self) -> Layout:
        """The layout."""
        return LAYOUTS[self.layout]

    @property
    def initial(self) -> float | int | None:
        """The start value, if there is one."""
        if "initial" not in self.options:
            return None
        return 1 if self.element.name == "bool" else 3 if self.element.dtype.kind in "iu" else 1.5

    @property
    def offset_bytes(self) -> int:
        """Bytes from a vector's place in memory to the array's beginning."""
        return {"vector": 0, "element": self.element.itemsize, "byte": 1}[self.shape_of_rows.off]

    @property
    def chunk(self) -> int:
        """Elements of a chunk, for an array in chunks."""
        return self.shape_of_rows.parts * self.element.leaf

    @property
    def seed(self) -> int:
        """What its elements are drawn by."""
        return int(hashlib.sha256(self.name.encode()).hexdigest()[:16], 16)

    def arrays(self) -> tuple[Array, tuple[int, ...] | None, Array | None]:
        """Return the array as it lies, the axes to reduce, and the mask or second array."""

        def fill(*shape: int) -> Array:
            return elements(self.element, shape, op=self.op, kind=self.kind, length=self.length, seed=self.seed)

        array, axes = self.shape_of_rows.build(fill, self.length, self.element.vector)
        if not self.reduction.two_arrays:
            return array, axes, None
        # Every other second array is broadcast to the first.
        shape = array.shape[-1:] if self.seed % 2 else array.shape
        if self.reduction.second == "mask":
            return array, axes, mask(shape, self.seed + 1)
        kind = "plain" if self.kind == "nan" else self.kind
        length = math.prod(shape)
        return array, axes, elements(self.element, shape, op=self.op, kind=kind, length=length, seed=self.seed + 1)

    def borders(self) -> Array:
        """Return the offsets of its segments."""
        lengths = segment_lengths(self.length, self.element.vector)
        return np.cumsum([0, *lengths]).astype(f"int{8 * self.shape_of_rows.parts}")


def by_tree(case: Case) -> tuple[Array, ...]:
    """Return a case's results by `lowlevel_reduce.tree`, one array for each result of the operator."""
    array, axes, second = case.arrays()
    options = {**case.plain, "accumulate": case.options.get("accumulate"), "dtype": case.options.get("dtype")}
    if case.initial is not None:
        options["initial"] = case.initial
    if second is not None:
        options["where" if case.reduction.second == "mask" else "second"] = second
    if case.shape_of_rows.family != "segments":
        return _tuple(lr.tree.reduce(array, case.operator, axis=axes, **options))
    rows = [
        _tuple(lr.tree.reduce(array[begin:end], case.operator, **options))
        for begin, end in itertools.pairwise(case.borders().tolist())
    ]
    return tuple(np.stack(results) for results in zip(*rows, strict=True))


def _tuple(results: Any) -> tuple[Array, ...]:
    return tuple(results) if isinstance(results, tuple) else (results,)


def hashed(results: tuple[Array, ...]) -> str:
    """Return the hash of results: of their types, shapes and bits. A NaN's bits are promised, and so not changed."""
    digest = hashlib.sha256()
    for result in results:
        digest.update(f"{result.dtype.name} {result.shape} ".encode() + result.tobytes())
    return digest.hexdigest()[:16]


def read(path: Path = FILE) -> tuple[int, dict[str, tuple[Case, str]]]:
    """Return the tree version of a file, and its cases with their hashes by their names."""
    first, *lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    cases = [(Case(**{k: v for k, v in line.items() if k != "hash"}), line["hash"]) for line in lines]
    return first["tree_version"], {case.name: (case, found) for case, found in cases}


def write(version: int, cases: dict[str, tuple[Case, str]], path: Path = FILE) -> None:
    """Write a file: a line with the tree version, then a line for each case."""
    lines: list[dict[str, Any]] = [{"tree_version": version}]
    for case, found in cases.values():
        line = {key: value for key, value in asdict(case).items() if value != {}}
        lines.append({**line, "hash": found})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
