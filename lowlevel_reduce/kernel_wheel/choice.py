"""The documented choice: of which operators, types and architectures the wheel of kernels has the whole families."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

__all__ = ["ARCHITECTURES", "CHOICE", "ROW_CHOICE", "chosen"]

ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
"""The architectures that ``make kernels`` compiles for."""

_FLOATS = ("float32", "bfloat16", "float16", "float64")

CHOICE: Mapping[str, tuple[str, ...]] = {
    "sum": (*_FLOATS, "int32", "int64", "bool"),
    "mean": _FLOATS,
    "max": (*_FLOATS, "int32", "int64"),
    "min": (*_FLOATS, "int32", "int64"),
    "argmax": (*_FLOATS, "int32", "int64"),
    "argmin": ("float32", "bfloat16"),
    "any": ("bool",),
    "all": ("bool",),
    "var": ("float32", "bfloat16"),
    "std": ("float32", "bfloat16"),
    "mean_var": ("float32", "bfloat16", "float16"),
    "norm2": ("float32", "bfloat16"),
    "logsumexp": ("float32", "bfloat16", "float16"),
}
"""By operator, without options, the types of elements; accumulators and results are those that calls take unasked."""

_OF_MODELS = ("bfloat16", "float16", "float32")

ROW_CHOICE: Mapping[str, tuple[str, ...]] = {
    "softmax": _OF_MODELS,
    "log_softmax": _OF_MODELS,
    "rms_norm": _OF_MODELS,
    "layer_norm": _OF_MODELS,
    "quantize": ("bfloat16", "float16"),
    "cross_entropy": _OF_MODELS,
    "log_prob": _OF_MODELS,
}
"""By row operation, whose variants `lowlevel_reduce.rowops.family.BUILT_IN` has, the types of elements."""


def chosen() -> Iterator[tuple[str, str]]:
    """Yield the operators, then the row operations, with the types of the choice."""
    for op, dtypes in (*CHOICE.items(), *ROW_CHOICE.items()):
        for dtype in dtypes:
            yield op, dtype
