"""What all plans have in common: how they are bound to a stream, and that they drop their kernels when closed."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lowlevel_reduce.arguments import instance, integer
from lowlevel_reduce.arrays.allocator import Allocator
from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.closing import Closing
from lowlevel_reduce.driver import BoundKernel, Buffer, Context, Kernel, LaunchConfig, Stream, binding, turns
from lowlevel_reduce.driver.pointers import check_pointer
from lowlevel_reduce.operators import Reduction, Types, result_tuple
from lowlevel_reduce.plans.launch import BoundReduction, DirectReduction, Extents
from lowlevel_reduce.plans.mapping import MappedKernel
from lowlevel_reduce.strategy.base import ArgumentKind
from lowlevel_reduce.strategy.fields import signature

__all__ = ["BasePlan"]


class BasePlan(Closing, ABC):
    """A reduction that is mapped to kernels and compiled for one context.

    Attributes
    ----------
    op, reduction, types, dtype, result_dtype, context, workspace_bytes
        As of `Plan`.
    result_shape : tuple of int
        Shape of each result.
    extents : Extents
        Which bytes a launch touches.
    letters : str
        The types of the fields of a kernel's argument, as `BoundKernel` takes them.
    """

    def __init__(
        self,
        *,
        reduction: Reduction,
        types: Types,
        result_shape: tuple[int, ...],
        extents: Extents,
        context: Context,
        kernels: tuple[MappedKernel, ...],
        workspace_bytes: int,
        fields: ArgumentKind,
    ) -> None:
        self.op = reduction.name
        self.reduction = reduction
        self.types = types
        self.dtype = types.element.dtype
        self.result_dtype = types.result_dtype
        self.result_shape = result_shape
        self.context = context
        context.life.note(binding.selected(), context.handle)  # the owner of a borrowed one may end it
        self.workspace_bytes = workspace_bytes
        self.extents = extents
        self.letters = signature(fields)
        self._is_shaped = fields in ("shaped", "short_rows")
        self._kernels: tuple[MappedKernel, ...] | None = kernels

    @property
    def results(self) -> int:
        """Number of results per row; all first results are stored before all second ones."""
        return self.reduction.results

    @property
    def result_tuple(self) -> Any:
        """The type of the operator's several results, a named tuple."""
        return result_tuple(self.op, self.reduction.result_names)

    @property
    def has_workspace(self) -> bool:
        """Whether a bound launch needs a workspace of `workspace_bytes`."""
        return bool(self._kernels and self._partials)

    def steps(self, initial: Any) -> list[tuple[MappedKernel, tuple[int, ...]]]:
        """Return the kernels in launch order, each with the fields of its argument after the workspace.

        Raises
        ------
        ValueError
            If the plan is closed, or the initial value is missing or not expected.
        """
        words = self._initial_words(initial)
        return [(entry, self._fields(0, entry.count_field, words)) for entry in self._open_kernels()]

    def load_twins(self) -> None:
        """Load the kernels for arrays at any address, so that no launch has to; raises what loading a kernel raises."""
        for entry in () if self.extents.aligned_only else self._open_kernels():
            entry.load_twin(self.context)

    def bind(
        self,
        stream: Any,
        workspace: Buffer | None = None,
        *,
        initial: Any = None,
        allocator: Allocator | None = None,
    ) -> BoundReduction:
        """Bind the plan to a stream. Everything is checked, built and allocated here, so that a call only launches.

        Arguments and errors are those of `Plan.bind`.
        """
        return self._bind(stream, workspace, None, initial, allocator)

    def close(self) -> None:
        """Drop the kernels; existing bound launches keep theirs. A second call does nothing."""
        self._kernels = None

    @property
    def _state(self) -> str:
        return " closed" if self._kernels is None else ""

    @property
    @abstractmethod
    def _partials(self) -> int:
        """Number of partials in the workspace; if 0, a launch neither reads nor writes the workspace."""

    @abstractmethod
    def _fields(self, length: int, count: int, initial: tuple[int, int]) -> tuple[int, ...]:
        """Return the fields after the workspace of a kernel's argument: `count` is the kernel's own."""

    def _open_kernels(self) -> tuple[MappedKernel, ...]:
        kernels = self._kernels  # looked at once: another thread may close the plan
        if kernels is None:
            raise ValueError("the plan is closed")
        return kernels

    def _bind(
        self, stream: Any, workspace: Buffer | None, length: int | None, initial: Any, allocator: Allocator | None
    ) -> BoundReduction:
        kernels = self._open_kernels()
        if self.context.has_ended and not turns.exiting:  # at exit all have, and the next step says so
            raise ValueError("the context that the plan was made for has ended: make it anew")
        stream = Stream.of(stream)
        if stream.context != self.context:
            raise ValueError(
                f"the stream is of context {stream.context.handle:#x}, the plan of {self.context.handle:#x}"
            )
        if allocator is not None:
            instance(allocator, Allocator, "the allocator")
        if workspace is not None:
            instance(workspace, Buffer, "the workspace")
        if length is not None:
            if isinstance(length, DeviceArray):  # of one integer, which it would be taken for
                length = length.pointer
            length = integer(length, "the length is a device address, an integer")
            check_pointer(length, 8, self.context, what="the length", alignment=8)
        words = self._initial_words(initial)
        # Of these kernels, not of the plan, which another thread may have closed by now.
        unused = workspace is None and not (kernels and self._partials)
        workspace = _cleared(workspace, 0 if unused else self.workspace_bytes, self.context, stream, allocator)
        with _closed_on_error(workspace):
            # The length may leave rows that are no whole vectors.
            anywhere = length is not None and self._is_shaped
            if anywhere and self.extents.aligned_only:
                raise ValueError("a length may leave rows that are no whole vectors: make the plan without alignment=")
            bound = [
                BoundKernel(
                    (entry.load_twin(self.context) if anywhere else entry.loaded).kernel,
                    entry.config,
                    stream,
                    self.letters,
                    constants=(workspace.pointer, *self._fields(length or 0, entry.count_field, words)),
                    as_struct=True,
                )
                for entry in kernels
            ]
            direct = len(bound) == 1 and not stream.is_default and not self.extents.has_second
            has_twins = not anywhere and not self.extents.aligned_only and any(entry.twin for entry in kernels)
            load = functools.partial(_twins, kernels, self.context) if has_twins else None
            return (DirectReduction if direct else BoundReduction)(bound, stream, workspace, self.extents, load)

    def _initial_words(self, initial: Any) -> tuple[int, int]:
        if (initial is None) == self.reduction.has_initial:
            made = "with an initial value: pass" if self.reduction.has_initial else "without an initial value: drop"
            raise ValueError(f"this plan of {self.op} was made {made} initial=")
        return self.reduction.initial_words(initial, self.types) if initial is not None else self.reduction.constants


def _twins(kernels: tuple[MappedKernel, ...], context: Context) -> list[tuple[Kernel, LaunchConfig]]:
    """Return what takes the place of kernels for arrays that are not aligned."""
    return [(entry.load_twin(context).kernel, entry.config) for entry in kernels]


def _cleared(
    given: Buffer | None, size_bytes: int, context: Context, stream: Stream, allocator: Allocator | None
) -> Buffer:
    """Return a workspace of that size, cleared in the stream's order: the caller's, checked, or one made here."""
    if given is not None and allocator is not None:
        raise ValueError("a bound launch takes a workspace or an allocator for it, not both")
    if allocator is not None:
        workspace = allocator.allocate(size_bytes, stream, what="the workspace")
    elif given is None:
        workspace = Buffer.allocate(size_bytes, context)
    else:
        if given.size_bytes < size_bytes:
            raise ValueError(f"the workspace has {given.size_bytes} bytes; this plan needs {size_bytes}")
        if size_bytes:
            check_pointer(given.pointer, size_bytes, context, what="the workspace", alignment=16)
        # Borrowed: closing it does not free the caller's memory.
        workspace = Buffer.from_pointer(given.pointer, size_bytes, context=context, owner=given)
    if size_bytes:
        with _closed_on_error(workspace):
            workspace.fill(0, stream=stream)
    return workspace


@contextmanager
def _closed_on_error(buffer: Buffer) -> Iterator[None]:
    """Close `buffer` if the block raises: now, not when the traceback has gone."""
    try:
        yield
    except BaseException:
        buffer.close()
        raise
