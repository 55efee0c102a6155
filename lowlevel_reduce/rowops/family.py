"""The kernels of the built-in row operations by their names, for any shape: what is compiled before it is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.rowops import exponentials, losses, norms, quantisation
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.rowops.sources import row_kernels
from lowlevel_reduce.rowops.types import types_of
from lowlevel_reduce.strategy.stubs import KernelSource, with_twins

__all__ = ["BUILT_IN", "row_family"]


def _softmax(*, log: bool) -> Iterator[RowOperation]:
    for causal in (False, True):
        for scaled in (False, True):
            yield exponentials.softmax_of(log=log, causal=causal, lengths=False, scaled=scaled)


def _group_norm_gradient() -> Iterator[RowOperation]:
    yield from (norms.group_norm_sums_of(), norms.group_norm_means_of(), norms.group_norm_gradient_of())
    yield from (norms.group_norm_single_terms_of(), norms.group_norm_single_gradient_of())


def _cross_entropy() -> Iterator[RowOperation]:
    for counts, stats in ((False, False), (True, False), (False, True)):
        yield losses.cross_entropy_of(counts=counts, stats=stats)


BUILT_IN: Mapping[str, Callable[[], Iterable[RowOperation]]] = {
    "softmax": lambda: _softmax(log=False),
    "log_softmax": lambda: _softmax(log=True),
    "rms_norm": lambda: (norms.rms_norm_of(weight=True, residual=each, keeps=False) for each in (False, True)),
    "layer_norm": lambda: (norms.layer_norm_of(weight=True, bias=each, keeps=False) for each in (False, True)),
    "group_norm": lambda: [norms.group_norm_of(weight=True, bias=True)],
    "normalize": lambda: [norms.normalize_of("norm2")],
    "quantize": lambda: map(quantisation.quantize_of, quantisation.FORMATS),
    "cross_entropy": _cross_entropy,
    "log_prob": lambda: [losses.log_prob_of()],
    "softmax_backward": lambda: [exponentials.softmax_gradient_of(log=False)],
    "log_softmax_backward": lambda: [exponentials.softmax_gradient_of(log=True)],
    "cross_entropy_backward": lambda: [losses.cross_entropy_gradient_of()],
    "group_norm_backward": _group_norm_gradient,
    "rms_norm_backward": lambda: [norms.rms_norm_gradient_of(weight=True, terms=True)],
    "layer_norm_backward": lambda: [norms.layer_norm_gradient_of(weight=True, terms=True)],
}
"""By the name of a function the operations that its calls have: with weights, without masks by an array of lengths;
losses without weights and with labels as they are."""


def row_family(op: str | RowOperation, *, dtype: Any) -> tuple[KernelSource, ...]:
    """Return the kernels of a built-in function, or of an operation, for rows of any shape, strides and address.

    Weights and biases are of the elements' type, targets int64, other row inputs and terms of gradients numbers;
    results are of the types that calls take unasked.

    Raises
    ------
    ValueError
        If there is no such function.
    UnsupportedError
        If row operations do not take the type.
    """
    if isinstance(op, RowOperation):
        operations = [op]
    elif op in BUILT_IN:
        operations = list(BUILT_IN[op]())
    else:
        raise ValueError(f"there is no row operation {op!r}; there is {', '.join(BUILT_IN)}")
    number = "float64" if element_type(dtype).name == "float64" else "float32"
    found: dict[KernelSource, None] = {}
    operations += [losses.MEAN_OF_LOSSES] if op == "cross_entropy" else []
    for each in operations:
        own = number if each in (losses.MEAN_OF_LOSSES, norms.group_norm_means_of()) else dtype
        types = types_of(
            each,
            own,
            columns=dict.fromkeys(each.columns, own),
            rows={name: "int64" if name in each.whole_rows else number for name in each.rows},
            tables={name: dtype if name in ("weight", "bias") else number for name in each.tables},
            outputs={name: number for name in ("dbias", "dweight") if name in each.write},
        )
        found.update(dict.fromkeys(with_twins(row_kernels(each, types))))
    return tuple(found)
