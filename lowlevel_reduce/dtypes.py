"""The element types: their NumPy dtypes, their names in CUDA C++, what they accumulate in and what they may become."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from lowlevel_reduce.errors import UnsupportedError

__all__ = [
    "COMPENSATED",
    "ElementType",
    "accumulator_bytes",
    "accumulator_dtype",
    "accumulator_name",
    "element_type",
    "finfo",
    "numpy_dtype",
    "one_of",
]

COMPENSATED = "compensated"
"""The accumulator of two float64, an unevaluated sum: about 106 bits."""

VECTOR_BYTES = 16
LANES = 32
STEPS = 8
LEAF_BYTES = VECTOR_BYTES * LANES * STEPS


class ElementType(NamedTuple):
    """One type that can be reduced.

    Attributes
    ----------
    name : str
        NumPy's name of the dtype, e.g. ``"float32"``; ``cuda_src/types.cuh`` has another for ``bool`` and one float8.
    accumulators : tuple of str
        What a sum may accumulate in, the default first.
    result : str
        Name of the default result type.
    results : tuple of str
        What ``dtype=`` may ask for.
    """

    name: str
    accumulators: tuple[str, ...]
    result: str
    results: tuple[str, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype itself; bfloat16 and the float8 types are those of ml_dtypes."""
        return _dtype_of(self.name)

    @property
    def c_name(self) -> str:
        """Name in ``cuda_src/types.cuh``."""
        return c_name(self.name)

    @property
    def is_float(self) -> bool:
        """Whether it is a real floating-point type; ml_dtypes gives its own a kind of "V" or "f"."""
        return self.dtype.kind not in "iubc"

    @property
    def is_complex(self) -> bool:
        """Whether it is a complex type."""
        return self.dtype.kind == "c"

    @property
    def itemsize(self) -> int:
        """Size of an element in bytes."""
        return self.dtype.itemsize

    @property
    def vector(self) -> int:
        """Elements in a 16-byte vector, the tree's V."""
        return VECTOR_BYTES // self.itemsize

    @property
    def leaf(self) -> int:
        """Elements in a leaf, the tree's L = 256 V."""
        return LEAF_BYTES // self.itemsize


def one_of(names: tuple[str, ...]) -> str:
    """Return names as a list in English: "a, b or c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


# Names that NumPy does not have, and those of ml_dtypes.
_ML_DTYPES = {
    "bfloat16": "bfloat16",
    "float8_e4m3": "float8_e4m3fn",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
}
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def _floating(name: str, *accumulators: str) -> ElementType:
    result = "float32" if name.startswith("float8") else name
    return ElementType(name, (*accumulators, COMPENSATED), result, _FLOATS)


def _integer(name: str) -> ElementType:
    wide = "uint64" if name.startswith("u") else "int64"
    return ElementType(name, (wide,), wide, (*_INTEGERS, "float32", "float64"))


def _complex(name: str) -> ElementType:
    return ElementType(name, ("complex128",), name, ("complex64", "complex128"))


def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Return `dtype` as a NumPy dtype; ``"bfloat16"``, ``"float8_e4m3"`` and ``"float8_e5m2"`` are those of ml_dtypes.

    Raises
    ------
    TypeError
        If it names no dtype. None does not, though NumPy takes it for float64.
    UnsupportedError
        If the dtype is not in native byte order.
    """
    if dtype is None:
        raise TypeError("a dtype is due, not None")
    if isinstance(dtype, str) and dtype in _ML_DTYPES:
        import ml_dtypes  # noqa: PLC0415 - only those who have such numbers pay for it

        dtype = getattr(ml_dtypes, _ML_DTYPES[dtype])
    try:
        resolved: np.dtype[Any] = np.dtype(dtype)
    except SyntaxError as error:  # which NumPy lets through, of a text with brackets such as "(2,f4"
        raise TypeError(f"data type {dtype!r} not understood") from error
    if not resolved.isnative:
        raise UnsupportedError(f"{resolved} is not in this machine's byte order; convert it with .astype first")
    return resolved


def accumulator_dtype(accumulate: Any) -> np.dtype[Any] | str | None:
    """Return what was asked for as accumulator, by a name or another form of a dtype, as a dtype.

    The compensated one, which is none, is returned by its name, and None for None.

    Raises
    ------
    TypeError
        If it names neither a dtype nor the compensated accumulator.
    UnsupportedError
        If the dtype is not in native byte order.
    """
    if accumulate is None or (isinstance(accumulate, str) and accumulate == COMPENSATED):
        return accumulate
    try:
        return numpy_dtype(accumulate)
    except TypeError as error:
        raise TypeError(f"accumulate is a dtype or {COMPENSATED!r}, not {accumulate!r}") from error


def accumulator_name(accumulate: Any) -> str | None:
    """Return the name of that accumulator; raises as `accumulator_dtype` does."""
    found = accumulator_dtype(accumulate)
    return found.name if isinstance(found, np.dtype) else found


@functools.cache  # plans ask often, and of ml_dtypes an import statement would be executed each time
def _dtype_of(name: str) -> np.dtype[Any]:
    return numpy_dtype(name)


def finfo(dtype: np.dtype[Any]) -> Any:
    """Return the limits of a floating-point type, NumPy's or one of ml_dtypes."""
    import ml_dtypes  # noqa: PLC0415 - as above

    return ml_dtypes.finfo(dtype)


_TYPES = {
    entry.name: entry
    for entry in (
        _floating("float8_e4m3fn", "float32", "float64"),
        _floating("float8_e5m2", "float32", "float64"),
        _floating("float16", "float32", "float64"),
        _floating("bfloat16", "float32", "float64"),
        _floating("float32", "float64", "float32"),
        _floating("float64", "float64"),
        *map(_integer, _INTEGERS),
        _complex("complex64"),
        _complex("complex128"),
        ElementType("bool", ("int64",), "int64", (*_INTEGERS, "float32", "float64")),
    )
}

ELEMENT_TYPES: tuple[ElementType, ...] = tuple(_TYPES.values())
"""Every type that can be reduced."""


def element_type(dtype: Any) -> ElementType:
    """Return the element type of a NumPy dtype or its name.

    Raises
    ------
    TypeError
        If `dtype` names no dtype.
    UnsupportedError
        If the dtype cannot be reduced, or is not in native byte order.
    """
    resolved = numpy_dtype(dtype)
    entry = _TYPES.get(resolved.name)
    if entry is None:
        raise UnsupportedError(f"{resolved} cannot be reduced; the types are {', '.join(_TYPES)}")
    return entry


_C_NAMES = {"bool": "boolean", "float8_e4m3fn": "float8_e4m3"}


def c_name(name: str) -> str:
    """Return the name that ``cuda_src/types.cuh`` gives to a type or to the compensated accumulator."""
    return _C_NAMES.get(name, name)


def accumulator_bytes(name: str) -> int:
    """Return the size of a sum's accumulator in bytes."""
    return 16 if name == COMPENSATED else numpy_dtype(name).itemsize
