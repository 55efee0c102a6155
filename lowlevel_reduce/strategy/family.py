"""The family: every kernel that arrays of any shape, strides and address meet, for an operator, types and a device.

Shapes are data to the kernels, so that the family is a closed set: at most 16 kernels, and at most 4 twins for arrays
at any address. How many multiprocessors a device has decides which of them a shape takes, and not which there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lowlevel_reduce import operators
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.strategy.base import RowStrategy
from lowlevel_reduce.strategy.column_cuts import loads_of
from lowlevel_reduce.strategy.columns import is_wide, resident_columns
from lowlevel_reduce.strategy.elements import KERNEL_BOUNDS
from lowlevel_reduce.strategy.row_bounds import bounded
from lowlevel_reduce.strategy.selection import operator_text
from lowlevel_reduce.strategy.stubs import KernelSource, OperatorText, kernel_sources, row_kernel_source, with_twins
from lowlevel_reduce.strategy.whole import DeviceFacts, Strategy, choose

__all__ = ["OLDEST_CAPABILITY", "family", "family_of"]

OLDEST_CAPABILITY = (7, 5)
"""The oldest compute capability that the kernels run on."""

_CLUSTERS_SINCE = (9, 0)
"""The compute capability from which on devices launch thread-block clusters."""

_MULTIPROCESSORS = 128
"""Of the device that is asked for the kernels of whole arrays: enough for clusters of every size that is chosen."""

_MOST_LEAF_BITS = 30
"""log2 of more leaves than the last row of the table in `policy` needs, on a device of that size."""


def family_of(
    op: str | Reduction,
    *,
    dtype: Any,
    compute_capability: tuple[int, int],
    accumulate: str | None = None,
    result_dtype: Any = None,
    where: bool = False,
    initial: bool = False,
    **options: Any,
) -> tuple[KernelSource, ...]:
    """Return the family of an operator by name.

    Parameters
    ----------
    op : str or Operator
        The operator, or its name.
    dtype : dtype
        Type of the elements.
    compute_capability : tuple of int
        Major and minor, of the devices that run the kernels.
    accumulate, result_dtype, where, initial
        As for `lowlevel_reduce.plan`.
    **options
        `nan`, `ddof`, `last`, `map`: as for `lowlevel_reduce.reduce`.

    Raises
    ------
    TypeError, ValueError
        If an option does not make sense.
    UnsupportedError
        If the operator does not take the type, or devices of that compute capability are too old.
    """
    reduction = operators.resolve(op, where=where, initial=initial, **options)
    return family(reduction, reduction.types(element_type(dtype), accumulate, result_dtype), compute_capability)


def family(reduction: Reduction, types: Types, compute_capability: tuple[int, int]) -> tuple[KernelSource, ...]:
    """Return all kernels, each once and each followed by its twin, whole arrays first.

    Strategies that only who names them gets are not in it (``two_pass``, ``cooperative``), nor are forced clusters and
    blocks, the kernels of segments, and those that fold the partials of an array in parts.

    Raises
    ------
    UnsupportedError
        If devices of that compute capability are too old.
    """
    if compute_capability < OLDEST_CAPABILITY:
        found = "{}.{}".format(*compute_capability)
        raise UnsupportedError(f"the kernels need compute capability 7.5 or newer, not {found}")
    text = operator_text(reduction, types)
    sources = [*_whole(types, text, compute_capability), *_rows(types, text, compute_capability)]
    sources += [row_kernel_source(text, chosen) for chosen in _columns(types.element.itemsize, text)]
    sources.append(row_kernel_source(text, RowStrategy("elements", 1, **KERNEL_BOUNDS)))
    return tuple(dict.fromkeys(with_twins(sources)))


def _whole(types: Types, text: OperatorText, compute_capability: tuple[int, int]) -> Iterator[KernelSource]:
    """Yield the kernels for whole arrays: what the table in `policy` has, from one leaf to more than any row has."""
    facts = DeviceFacts(compute_capability, _MULTIPROCESSORS, compute_capability >= _CLUSTERS_SINCE, cooperative=True)
    small = types.element.itemsize <= 2

    def chosen(leaves: int) -> Strategy:
        return choose(leaves, facts, wide_accumulator=text.wide, small_elements=small)

    for bits in range(_MOST_LEAF_BITS):
        yield from kernel_sources(text, chosen(1 << bits))


def _rows(types: Types, text: OperatorText, compute_capability: tuple[int, int]) -> Iterator[KernelSource]:
    """Yield the kernels for rows, of elements one after the other and of others."""
    newer = compute_capability >= (10, 0)
    ways = (
        RowStrategy("short_rows", 1),
        RowStrategy("rows", 1),
        RowStrategy("rows", 1, in_one_turn=True),
        RowStrategy("batch", 2, parts=2, folders=1, in_one_turn=True),
    )
    for way in ways:
        for contiguous in (True, False):
            if way.kernel == "at_once" and not contiguous:  # a block with a row to itself is a batch of one tile
                continue
            chosen = way._replace(contiguous=contiguous, aligned=contiguous)
            sizes = (types.element.itemsize, text.accumulator_bytes)
            chosen = bounded(chosen, *sizes, heavy=text.heavy, two_arrays=text.two_arrays, newer=newer)
            yield row_kernel_source(text, chosen)


def _columns(itemsize: int, text: OperatorText) -> Iterator[RowStrategy]:
    """Yield a strategy for each kernel for columns: of narrow and wide loads, with one reduced axis and several."""
    resident = resident_columns(text.accumulator_bytes, heavy=text.heavy)
    for asked_wide in (False, True):
        loads = loads_of(itemsize, text.accumulator_bytes, wide=asked_wide, two_arrays=text.two_arrays)
        wide = is_wide(loads, itemsize)
        for straight in (True, False):
            aligned = straight and wide
            yield RowStrategy(
                "columns", 1, loads, aligned=aligned, resident_blocks=resident, wide=wide, straight=straight
            )
