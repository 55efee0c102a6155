"""Row operations on tensors: on the CPU by the tree in NumPy, on a GPU by launches kept for each form of a call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import torch

from lowlevel_reduce.driver import Context, Device, Stream
from lowlevel_reduce.driver.library import kernels_of_graphs
from lowlevel_reduce.rowops import meaning
from lowlevel_reduce.rowops.launch import RowLaunch
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.rowops.plan import RowPlan, row_plan
from lowlevel_reduce.torch.tensors import as_numpy, as_tensor, numpy_type, torch_type

__all__ = ["MAX_KEPT", "run"]

MAX_KEPT = 512
"""The most bound launches that are kept; the least recently used is dropped first."""

_kept: OrderedDict[tuple[Any, ...], tuple[RowPlan, RowLaunch]] = OrderedDict()
_lock = threading.RLock()

BOUNDS = {"_kept": MAX_KEPT}
"""The most entries of what is kept here, by its name: who watches for growth tells it from what has no bound."""


def run(
    operation: RowOperation,
    x: torch.Tensor,
    *,
    second: torch.Tensor | None = None,
    beside: dict[str, torch.Tensor] | None = None,
    dtypes: dict[str, torch.dtype] | None = None,
    **parameters: float,
) -> tuple[torch.Tensor, ...]:
    """Apply an operation to a tensor's last axis, and return its outputs and what it keeps.

    Parameters
    ----------
    operation : RowOperation
        The operation; a built-in one, which is kept for the life of the process.
    x, second : Tensor
        The rows. On a GPU it runs in torch's current stream, and outputs come from torch's allocator.
    beside : dict
        Columns, row inputs and tables, by name, in that order.
    dtypes : dict
        Types of outputs, in place of the operation's own.
    **parameters
        The operation's parameters.
    """
    if not x.dim():
        raise ValueError("a row operation needs an array of one axis at least")
    beside = beside or {}
    if x.device.type == "cpu":
        return _on_host(operation, x, second, beside, dtypes or {}, parameters)
    if x.device.type != "cuda":
        raise ValueError(f"row operations take tensors of the CPU or of a GPU, not of {x.device}")
    for name, tensor in {**beside, **({} if second is None else {"the second array": second})}.items():
        if tensor.device != x.device:
            raise ValueError(f"{name} of {operation.name} is on {tensor.device}, the rows on {x.device}")
    return _on_device(operation, _rows(x), None if second is None else _rows(second), beside, dtypes or {}, parameters)


def _on_host(
    operation: RowOperation,
    x: torch.Tensor,
    second: torch.Tensor | None,
    beside: dict[str, torch.Tensor],
    dtypes: dict[str, torch.dtype],
    parameters: dict[str, Any],
) -> tuple[torch.Tensor, ...]:
    found = meaning.row_operation(
        operation,
        as_numpy(x),
        second=None if second is None else as_numpy(second),
        dtype={name: numpy_type(dtype) for name, dtype in dtypes.items()},
        **{name: as_numpy(tensor) for name, tensor in beside.items()},
        **parameters,
    )
    return tuple(map(as_tensor, found if isinstance(found, tuple) else (found,)))


def _rows(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose rows are contiguous: itself, or a copy."""
    return x if x.shape[-1] <= 1 or x.stride(-1) == 1 else x.contiguous()


def _on_device(
    operation: RowOperation,
    x: torch.Tensor,
    second: torch.Tensor | None,
    beside: dict[str, torch.Tensor],
    dtypes: dict[str, torch.dtype],
    parameters: dict[str, float],
) -> tuple[torch.Tensor, ...]:
    handle = torch.cuda.current_stream(x.device).cuda_stream
    beside = {name: tensor.contiguous() for name, tensor in beside.items()}
    key = (
        operation, x.shape, x.stride(), x.dtype, x.device.index, handle, threading.get_ident(),
        None if second is None else (second.shape, second.stride(), second.dtype),
        tuple(parameters.values()), tuple(dtypes.items()),
        *((tensor.dtype, tensor.shape) for tensor in beside.values()),
    )  # fmt: skip
    with _lock:
        found = _kept.get(key)
        if found is not None:
            _kept.move_to_end(key)
    if found is None:
        found = _bound(operation, x, second, beside, dtypes, parameters, handle)
        with _lock:
            _kept[key] = found
            while len(_kept) > MAX_KEPT:
                _kept.popitem(last=False)
    plan, launch = found
    outputs = [
        torch.empty(x.shape if k < len(operation.write) else x.shape[:-1], dtype=torch_type(dtype), device=x.device)
        for k, dtype in enumerate(plan.output_dtypes)
    ]
    inputs = (x, *(() if second is None else (second,)), *beside.values())
    launch(*(tensor.data_ptr() for tensor in (*inputs, *outputs)))
    return tuple(outputs)


def _bound(
    operation: RowOperation,
    x: torch.Tensor,
    second: torch.Tensor | None,
    beside: dict[str, torch.Tensor],
    dtypes: dict[str, torch.dtype],
    parameters: dict[str, float],
    handle: int,
) -> tuple[RowPlan, RowLaunch]:
    """Return the plan and the bound launch for a form of a call; loads the kernel, and compiles it if need be.

    Kernels stay loaded for good, few as those of built-in operations are: a graph of torch's may have launches of which
    nothing is kept here any more, and nobody tells when it ends.
    """
    _check_beside(operation, x, second, beside)
    context = Context.primary(Device(x.device.index))
    stream = Stream.from_handle(handle, context=context) if handle else Stream.legacy(context)
    size = x.element_size()
    with context.pushed():
        plan = row_plan(
            operation,
            shape=tuple(x.shape),
            dtype=numpy_type(x.dtype),
            strides_bytes=tuple(stride * size for stride in x.stride()),
            second_strides_bytes=None if second is None else tuple(stride * size for stride in second.stride()),
            columns={name: numpy_type(beside[name].dtype) for name in operation.columns},
            rows={name: numpy_type(beside[name].dtype) for name in operation.rows},
            tables={name: (numpy_type(beside[name].dtype), beside[name].numel()) for name in operation.tables},
            outputs={name: numpy_type(dtype) for name, dtype in dtypes.items()},
            parameters=parameters,
            context=context,
        )
        launch = plan.bind(stream)
        launch.keep_loaded(kernels_of_graphs())
        return plan, launch


def _check_beside(
    operation: RowOperation, x: torch.Tensor, second: torch.Tensor | None, beside: dict[str, torch.Tensor]
) -> None:
    for names, shape in ((operation.columns, x.shape[-1:]), (operation.rows, x.shape[:-1])):
        for name in names:
            if beside[name].shape != shape:
                raise ValueError(
                    f"{name} of {operation.name} has shape {tuple(beside[name].shape)}, not {tuple(shape)}"
                )
    if second is not None and (second.shape != x.shape or second.dtype != x.dtype):
        raise ValueError(f"the second array of {operation.name} is of another shape or type than the first")
