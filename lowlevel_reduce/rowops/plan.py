"""A row operation over arrays of one layout on one context: mapped, compiled, and bound to a stream."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from lowlevel_reduce.arguments import integer, shown
from lowlevel_reduce.closing import Closing
from lowlevel_reduce.driver import BoundKernel, Context, LaunchConfig, Stream, binding, turns
from lowlevel_reduce.driver.checks import check_launch
from lowlevel_reduce.dtypes import VECTOR_BYTES, numpy_dtype
from lowlevel_reduce.layout import MAX_AXES, lengths_of
from lowlevel_reduce.plans.loading import LoadedKernel, load_kernel
from lowlevel_reduce.plans.mapping import facts_of
from lowlevel_reduce.rowops.launch import ArrayCheck, RowLaunch
from lowlevel_reduce.rowops.layout import RowLayout, alignment_of, row_layout, spread_of
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.rowops.parameters import parameter_words
from lowlevel_reduce.rowops.sources import KERNELS, row_kernels
from lowlevel_reduce.rowops.strategy import ROW_STRATEGIES, RowMapping, choose_mapping
from lowlevel_reduce.rowops.types import RowTypes, accumulator_bytes, only_known, types_of
from lowlevel_reduce.strategy.stubs import KernelSource
from lowlevel_reduce.strategy.whole import PORTABLE_CLUSTER

if TYPE_CHECKING:
    from lowlevel_reduce.arrays.allocator import Allocator

__all__ = ["RowPlan", "row_plan"]


class _Kernel(NamedTuple):
    """A kernel of the plan: what is loaded, how it is launched, and its twin for arrays at any address."""

    loaded: LoadedKernel
    config: LaunchConfig
    twin: KernelSource | None


class RowPlan(Closing):
    """A row operation over arrays of one shape, types and strides on one context. Make one with `row_plan`.

    It is immutable, and threads may share it.

    Attributes
    ----------
    operation : RowOperation
        The operation.
    types : RowTypes
        The arrays' types.
    shape : tuple of int
        The shape of the arrays of rows.
    layout : RowLayout
        Where rows lie.
    mapping : RowMapping or None
        How they are mapped to the device; None if there are none.
    context : Context
        Where it runs.
    addresses : tuple of str
        What the addresses are of that a launch takes, in order: ``"x"``, ``"y"`` if there is a second array, columns,
        row inputs, tables, outputs, and what is kept.
    """

    has_workspace = False

    def __init__(
        self,
        operation: RowOperation,
        types: RowTypes,
        shape: tuple[int, ...],
        layout: RowLayout,
        context: Context,
        parameters: Mapping[str, Any],
        *,
        strategy: str | None,
        cluster: int | None,
        table_lengths: tuple[int, ...] = (),
    ) -> None:
        self.operation = operation
        self.types = types
        self.shape = shape
        self.layout = layout
        self.context = context
        context.life.note(binding.selected(), context.handle)  # the owner of a borrowed one may end it
        self._parameters = parameter_words(operation, parameters)
        self._table_lengths = table_lengths
        inputs = ("x", *(["y"] if operation.second else []), *operation.columns, *operation.rows, *operation.tables)
        self.addresses = (*inputs, *operation.write, *operation.keep)
        self.mapping: RowMapping | None = None
        self._kernel: _Kernel | None = None
        self._is_closed = False
        # Without elements there may still be something to keep of each row.
        if layout.rows and (layout.length or operation.keep):
            self._map(strategy, cluster)
        elif strategy is not None and strategy not in ROW_STRATEGIES:
            raise ValueError(f"there is no strategy {shown(strategy)}; there is {', '.join(ROW_STRATEGIES)}")

    def _map(self, strategy: str | None, cluster: int | None) -> None:
        device, facts = self.context.device, facts_of(self.context)
        merged = self.operation.merge is not None
        self.mapping = mapping = choose_mapping(
            self.layout.length,
            self.layout.rows,
            facts,
            itemsize=self.types.element.itemsize,
            held_arrays=1 if merged else self.operation.arrays,
            writes=bool(self.operation.write),
            shared_bytes=device.shared_memory_per_block_optin_bytes,
            accumulator_bytes=accumulator_bytes(self.operation, self.types),
            aligned=self.layout.aligned,
            strided=self.layout.strided,
            beside=self.layout.beside(self.types.element.itemsize),
            strategy=strategy,
            cluster=cluster,
        )
        is_column = mapping.name == "column_rows"  # which is in the kernel for arrays at any address
        number = next(k for k, each in enumerate(KERNELS) if each.name == mapping.kernel)
        source = row_kernels(self.operation, self.types)[number]
        if is_column or not self.layout.aligned:
            source = source.twin or source
        config = LaunchConfig(
            mapping.blocks,
            mapping.block_threads,
            cluster=mapping.cluster if mapping.cluster > 1 else None,
            dynamic_shared_bytes=mapping.dynamic_shared_bytes,
            programmatic_stream_serialization=facts.compute_capability >= (9, 0),
        )
        self._kernel = _Kernel(self._load(source, mapping), config, source.twin)
        check_launch(self._kernel.loaded.kernel, config, self.context)

    def _load(self, source: KernelSource, mapping: RowMapping) -> LoadedKernel:
        device = self.context.device
        loaded = load_kernel(source, device.architecture)
        if mapping.cluster > PORTABLE_CLUSTER:
            loaded.kernel.allow_non_portable_cluster(device)
        if mapping.dynamic_shared_bytes:  # all that there is: other plans share the kernel
            most = device.shared_memory_per_block_optin_bytes - loaded.kernel.static_shared_bytes(device)
            loaded.kernel.set_max_dynamic_shared_bytes(most, device)
        return loaded

    @functools.cached_property
    def output_dtypes(self) -> tuple[Any, ...]:
        """The dtypes of the outputs, and of what is kept."""
        return tuple(map(numpy_dtype, (*self.types.outputs, *self.types.kept)))

    def load_twin(self) -> None:
        """Load the kernel for arrays at any address, so that no launch has to; raises what loading a kernel raises."""
        if self._kernel and self._kernel.twin and self.mapping:
            self._load(self._kernel.twin, self.mapping)

    def bind(
        self, stream: Any, workspace: Any = None, *, initial: Any = None, allocator: Allocator | None = None
    ) -> RowLaunch:
        """Bind the plan to a stream: everything is checked and built here, so that a call only launches.

        Parameters
        ----------
        stream : Stream or object with ``__cuda_stream__``
            Where it will run; of this plan's context.
        workspace, initial, allocator
            Row operations need no workspace, nor an initial value: None. An allocator is not used.

        Raises
        ------
        ValueError
            If the plan or the stream is closed, or the stream is of another context.
        """
        if self._is_closed:
            raise ValueError("the plan is closed")
        if workspace is not None or initial is not None:
            raise ValueError("a row operation takes no workspace and no initial value")
        if self.context.has_ended and not turns.exiting:  # at exit all have, and the next step says so
            raise ValueError("the context that the plan was made for has ended: make it anew")
        stream = Stream.of(stream)
        if stream.context != self.context:
            raise ValueError(
                f"the stream is of context {stream.context.handle:#x}, the plan of {self.context.handle:#x}"
            )
        bound, load = None, None
        if self._kernel is not None and self.mapping is not None:
            kernel, mapping = self._kernel, self.mapping
            bound, twin = self.bound(stream), kernel.twin
            if twin is not None:
                load = lambda: (self._load(twin, mapping).kernel, kernel.config)  # noqa: E731 - two lines of a closure
        return RowLaunch(bound, stream, self.checks, load)

    def bound(self, stream: Stream, *, twin: bool = False) -> BoundKernel:
        """Return its kernel, or the twin for arrays at any address, bound to a stream of its context."""
        if self._kernel is None or self.mapping is None:
            raise ValueError("the plan is closed, or has nothing to launch")
        kernel, mapping, arrays = self._kernel.loaded.kernel, self.mapping, self.operation.arrays
        if twin and self._kernel.twin is not None:
            kernel = self._load(self._kernel.twin, mapping).kernel
        constants = (
            self.layout.length, self.layout.rows, mapping.cut, *(self._parameters or (0.0,)),
            *self.layout.words(arrays), *(self._table_lengths or (0,)),
            *(bound for each in self.layout.extents[:arrays] for bound in each),
        )  # fmt: skip
        axes = "Q" * (1 + 2 * MAX_AXES) + "q" * MAX_AXES * (2 + max(1, len(self.operation.write)))
        axes += "q" * len(self.layout.steps) + "Q" * max(1, len(self._table_lengths)) + "qq" * arrays
        signature = "Q" * (len(self.addresses) + 3) + "d" * max(1, len(self._parameters)) + axes
        return BoundKernel(kernel, self._kernel.config, stream, signature, constants=constants, as_struct=True)

    @property
    def masks(self) -> tuple[int, ...]:
        """What bits of each address must be 0 for the kernel for aligned arrays; all 0 if there is no other kernel."""
        twin = self._kernel is not None and self._kernel.twin is not None
        return tuple(each.vector - 1 if twin and each.vector > each.alignment else 0 for each in self.checks)

    @functools.cached_property
    def checks(self) -> tuple[ArrayCheck, ...]:
        """Return which bytes of each array a launch touches, relative to its address."""
        operation, layout, types = self.operation, self.layout, self.types
        vector = VECTOR_BYTES // types.element.itemsize
        sizes = [types.element.itemsize] * operation.arrays
        sizes += [numpy_dtype(name).itemsize for name in types.outputs]

        def of_rows(name: str, k: int) -> ArrayCheck:
            low, high = layout.extents[k]
            same = (layout.strides[k], layout.steps[k], sizes[k]) if layout.rows * layout.length else ()
            needed = alignment_of(sizes[k], vector) if layout.aligned else 1
            return ArrayCheck(name, low, high, sizes[k], needed, k >= operation.arrays, same)

        def flat(name: str, dtype: str, count: int, *, written: bool, in_vectors: bool) -> ArrayCheck:
            itemsize = numpy_dtype(dtype).itemsize
            needed = alignment_of(itemsize, vector) if in_vectors and layout.aligned else 1
            return ArrayCheck(name, 0, count * itemsize, itemsize, needed, written, (itemsize,))

        names = ("x", "y")[: operation.arrays]
        return (
            *(of_rows(name, k) for k, name in enumerate(names)),
            *(
                flat(name, dtype, layout.length, written=False, in_vectors=True)
                for name, dtype in zip(operation.columns, types.columns, strict=True)
            ),
            *(
                flat(name, dtype, layout.rows, written=False, in_vectors=False)
                for name, dtype in zip(operation.rows, types.rows, strict=True)
            ),
            *(
                flat(name, dtype, count, written=False, in_vectors=False)
                for name, dtype, count in zip(operation.tables, types.tables, self._table_lengths, strict=True)
            ),
            *(of_rows(name, operation.arrays + k) for k, name in enumerate(operation.write)),
            *(
                flat(name, dtype, layout.rows, written=True, in_vectors=False)
                for name, dtype in zip(operation.keep, types.kept, strict=True)
            ),
        )

    def close(self) -> None:
        """Drop the kernels; existing bound launches keep theirs. A second call does nothing."""
        self._is_closed = True
        self._kernel = None

    def describe(self) -> str:
        """Return a few lines that say what will be launched."""
        head = (
            f"{self.operation.name} of {self.shape} {self.types.element.name} on {self.context.device.name}: "
            f"{self.layout.rows} rows of {self.layout.length} elements"
        )
        if self.mapping is None or self._kernel is None:
            return head + ", nothing to launch"
        mapping, use = self.mapping, self._kernel.loaded.resources
        resources = f", {use.registers} registers" if use else ""
        return (
            f"{head}\n{self._kernel.loaded.kernel.name}: {mapping.blocks} blocks of {mapping.block_threads} threads, "
            f"{mapping.cluster} to a row, {mapping.dynamic_shared_bytes} bytes of shared memory for what is kept"
            f"{resources}; rows are read {'once' if mapping.reads == 1 else 'twice'}"
        )

    def __repr__(self) -> str:
        name = self.mapping.name if self.mapping else "nothing"
        return f"<RowPlan {self.operation.name} {self.shape} {self.types.element.name} {name}>"


def row_plan(
    operation: RowOperation,
    *,
    shape: int | Sequence[int],
    dtype: Any,
    strides_bytes: Sequence[int] | None = None,
    second_strides_bytes: Sequence[int] | None = None,
    output_strides_bytes: Mapping[str, Sequence[int]] | None = None,
    columns: Mapping[str, Any] | None = None,
    rows: Mapping[str, Any] | None = None,
    tables: Mapping[str, tuple[Any, int]] | None = None,
    outputs: Mapping[str, Any] | None = None,
    parameters: Mapping[str, Any] | None = None,
    context: Context | None = None,
    strategy: str | None = None,
    cluster: int | None = None,
) -> RowPlan:
    """Map a row operation over arrays of one shape to a kernel, and compile it.

    Parameters
    ----------
    operation : RowOperation
        What to do with each row.
    shape : int or sequence of int
        Shape of the arrays of rows; the last axis is the row.
    dtype : dtype
        Type of the elements.
    strides_bytes, second_strides_bytes : sequence of int, optional
        Strides of both arrays; by default they are contiguous.
    output_strides_bytes : mapping, optional
        The same of outputs, by name.
    columns, rows : mapping, optional
        The dtypes of the arrays beside the columns and of the row inputs; by default the elements' type.
    tables : mapping, optional
        Of each table the dtype and the number of its elements.
    outputs : mapping, optional
        Dtypes of outputs and of what is kept, in place of the operation's own.
    parameters : mapping
        The values of the parameters.
    context : Context, optional
        Where; by default the current context, else the primary one of device 0.
    strategy, cluster : optional
        Forced choices, as for `lowlevel_reduce.rowops.strategy.choose_mapping`. All give the same bits.

    Raises
    ------
    TypeError, ValueError
        If an argument does not make sense: shape, strides, names, strategy, a row of no elements where a reduction has
        no result for that.
    UnsupportedError
        If a type or layout is not supported, or the device lacks what the strategy needs.
    CompileError, NoCompilerError, NoDriverError, CacheError
        If the kernel cannot be compiled, loaded or cached.
    """
    shape = lengths_of(shape)
    columns, rows = ({**dict.fromkeys(names, dtype), **(given or {})}
                     for names, given in ((operation.columns, columns), (operation.rows, rows)))  # fmt: skip
    only_known(operation, operation.write, output_strides_bytes or {})
    if second_strides_bytes is not None and not operation.second:
        raise TypeError(f"{operation.name} takes one array")
    given = tables or {}
    missing = sorted(set(operation.tables) ^ set(given))
    if missing:
        raise TypeError(f"{operation.name} {'needs' if missing[0] in operation.tables else 'has no'} {missing[0]}=")
    types = types_of(
        operation,
        dtype,
        columns=columns,
        rows=rows,
        tables={name: given[name][0] for name in operation.tables},
        outputs=outputs or {},
    )
    lengths = tuple(integer(given[name][1], f"{name} has a number of elements") for name in operation.tables)
    size = types.element.itemsize
    arrays = [spread_of(shape, size, strides_bytes)]
    if operation.second:
        arrays.append(spread_of(shape, size, second_strides_bytes))
    for name, each in zip(operation.write, types.outputs, strict=True):
        arrays.append(spread_of(shape, numpy_dtype(each).itemsize, (output_strides_bytes or {}).get(name)))
    layout = row_layout(shape, arrays, operation.arrays)
    if layout.length == 0:
        for reduction, own in zip(operation.reductions, types.reductions, strict=True):
            reduction.operator.empty_results(own)  # raises where there is none
    return RowPlan(
        operation, types, shape, layout, Context.of(context), parameters or {}, strategy=strategy, cluster=cluster,
        table_lengths=lengths,
    )  # fmt: skip
