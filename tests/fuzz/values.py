"""Values that hardly any argument may have."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tests.fuzz.calls import OwnError

__all__ = ["Text", "bad"]


class Text(str):
    """A text that an argument takes as it is: it is left out where texts are code."""

    __slots__ = ()


class _Refusing:
    """An object that raises whatever it is asked for."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise OwnError("asked")

    __index__ = __len__ = __array__ = __iter__ = __getitem__ = __float__ = __int__ = __bool__ = _refuse
    __hash__ = __eq__ = _refuse


def _recursive() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def _nested(depth: int) -> Any:
    made: Any = 1
    for _ in range(depth):
        made = (made,)
    return made


def bad(rng: random.Random) -> Any:
    """Return one of them."""
    numbers = (-1, 0, 1, 2**31, 2**62, 2**63, 2**64, 10**400, -(2**63), -(10**400), 1.5, float("nan"), float("inf"), 1j)
    texts = ("", "x", "\0", "\ud800", "float32", "a" * 10_000, "(2,f4", "f4,f4")
    odd: tuple[Any, ...] = (None, True, False, b"", b"\xff", [], {}, set(), (), object(), type, len, Ellipsis, range(3))
    scalars = (
        *(np.float64("nan"), np.int8(-1), np.bool_(True), np.str_("x"), np.datetime64("2020-01-01"), np.complex64(1j)),
        *(np.void(b"12"), np.uint64(2**64 - 1), np.float16(1)),
    )
    arrays = (np.zeros(0), np.array(3), np.array([None]), np.zeros((2, 3)), np.array(["x"]), np.zeros(3, "f4,f4"))
    made = (
        *(
            tuple(range(100_000)),
            _recursive(),
            _nested(2000),
            _Refusing(),
            [_Refusing()],
            (2**63,) * 3,
            [1.5],
            ("x", None),
        ),
        *(np.ma.masked, memoryview(b"xy"), slice(None), {1: 2}, frozenset({1}), [[1, 2], [3]], iter([1])),
    )
    groups: tuple[tuple[Any, ...], ...] = (numbers, tuple(map(Text, texts)), odd, scalars, arrays, made)
    return rng.choice(rng.choice(groups))
