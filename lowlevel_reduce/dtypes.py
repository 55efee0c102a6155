"""The element types: their NumPy dtypes, their names in CUDA C++, their accumulators and their result types."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from lowlevel_reduce.arguments import shown
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
    "understood",
]

COMPENSATED = "compensated"
"""The accumulator that is the unevaluated sum of two float64: about 106 bits."""

VECTOR_BYTES = 16
LANES = 32
STEPS = 8
LANE_BITS, STEP_BITS = LANES.bit_length() - 1, STEPS.bit_length() - 1
LEAF_BYTES = VECTOR_BYTES * LANES * STEPS


class ElementType(NamedTuple):
    """One type that can be reduced.

    Attributes
    ----------
    name : str
        NumPy's name of the dtype, e.g. ``"float32"``; ``base/types.cuh`` names ``bool`` and one float8 differently.
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
        """The dtype itself; that of bfloat16 and the float8 types comes from ml_dtypes."""
        return _dtype_of(self.name)

    @property
    def c_name(self) -> str:
        """Name in ``cuda_src/base/types.cuh``."""
        return c_name(self.name)

    @property
    def is_float(self) -> bool:
        """Whether it is a real floating-point type; the kind of ml_dtypes' types is "V" or "f"."""
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
        """Elements in a 16-byte vector: the V of `tree`."""
        return VECTOR_BYTES // self.itemsize

    @property
    def leaf(self) -> int:
        """Elements in a leaf: the L = 256 V of `tree`."""
        return LEAF_BYTES // self.itemsize


def one_of(names: tuple[str, ...]) -> str:
    """Return names as a list in English: "a, b or c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


# Names that NumPy does not know, and the names of these types in ml_dtypes.
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
    """Return `dtype` as a NumPy dtype; ml_dtypes provides ``"bfloat16"``, ``"float8_e4m3"`` and ``"float8_e5m2"``.

    Raises
    ------
    TypeError
        If it does not name a dtype. None does not, although NumPy takes it for float64.
    UnsupportedError
        If the dtype is not in native byte order.
    """
    if dtype is None:
        raise TypeError("a dtype is due, not None")
    if isinstance(dtype, str) and dtype in _ML_DTYPES:
        import ml_dtypes  # noqa: PLC0415 - only those who use these types pay for the import

        dtype = getattr(ml_dtypes, _ML_DTYPES[dtype])
    resolved = understood(dtype)
    if not resolved.isnative:
        raise UnsupportedError(f"{resolved} is not in this machine's byte order; convert it with .astype first")
    return resolved


def understood(dtype: Any) -> np.dtype[Any]:
    """Return what NumPy takes `dtype` for, in any byte order; raises TypeError if it does not name a dtype."""
    try:
        resolved: np.dtype[Any] = np.dtype(dtype)
    # NumPy lets a SyntaxError through, of a text with brackets such as "(2,f4".
    except (TypeError, ValueError, SyntaxError, OverflowError, RecursionError, MemoryError) as error:
        raise TypeError(f"data type {shown(dtype)} not understood") from error
    return resolved


def accumulator_dtype(accumulate: Any) -> np.dtype[Any] | str | None:
    """Return the requested accumulator, given as a dtype in any form, as a NumPy dtype.

    The compensated accumulator, which is not a dtype, is returned as its name, and None as None.

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
        raise TypeError(f"accumulate is a dtype or {COMPENSATED!r}, not {shown(accumulate)}") from error


def accumulator_name(accumulate: Any) -> str | None:
    """Return the name of the requested accumulator, or None; raises what `accumulator_dtype` raises."""
    found = accumulator_dtype(accumulate)
    return found.name if isinstance(found, np.dtype) else found


@functools.cache  # plans ask often, and ml_dtypes would be imported by a statement each time
def _dtype_of(name: str) -> np.dtype[Any]:
    return numpy_dtype(name)


def finfo(dtype: np.dtype[Any]) -> Any:
    """Return the limits of a floating-point type of NumPy or ml_dtypes."""
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
        If `dtype` does not name a dtype.
    UnsupportedError
        If the dtype cannot be reduced, or is not in native byte order.
    """
    try:
        return _by_dtype[dtype]
    except (KeyError, TypeError):  # not met yet, or no hash
        pass
    resolved = numpy_dtype(dtype)
    entry = _TYPES.get(resolved.name)
    if entry is None:
        raise UnsupportedError(f"{resolved} cannot be reduced; the types are {', '.join(_TYPES)}")
    if isinstance(dtype, np.dtype):
        _by_dtype[dtype] = entry
    return entry


_by_dtype: dict[Any, ElementType] = {}  # a dtype's name takes NumPy 3 us


_C_NAMES = {"bool": "boolean", "float8_e4m3fn": "float8_e4m3"}


def c_name(name: str) -> str:
    """Return the name of a type, or of the compensated accumulator, in ``cuda_src/base/types.cuh``."""
    return _C_NAMES.get(name, name)


def accumulator_bytes(name: str) -> int:
    """Return the size of a sum's accumulator in bytes."""
    return 16 if name == COMPENSATED else numpy_dtype(name).itemsize
