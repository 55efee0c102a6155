"""PyTorch as the package sees it, over memory of a simulated device; tests/with_torch compares it with PyTorch."""

import types
from collections.abc import Callable
from typing import Any


class Tensor:
    """What of a tensor is looked at.

    Parameters
    ----------
    array : DeviceArray, or an object with its shape, dtype and pointer
        The memory.
    shape, strides : tuple of int, optional
        Those of the tensor, strides in elements; by default one contiguous axis.
    negated : bool
        Whether it is negated lazily.
    device : int
        The device's ordinal.
    """

    is_cuda, layout = True, "strided"

    def __init__(
        self,
        array: Any,
        shape: tuple[int, ...] | None = None,
        strides: tuple[int, ...] = (1,),
        *,
        negated: bool = False,
        device: int = 0,
    ) -> None:
        self.array, self.shape, self.steps, self.negated = array, shape or array.shape, strides, negated
        self.dtype, self.ordinal = f"torch.{array.dtype}", device

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, self.ordinal)

    def data_ptr(self) -> Any:
        return self.array.pointer

    def stride(self) -> tuple[int, ...]:
        return self.steps

    def get_device(self) -> int:
        return self.ordinal

    def is_neg(self) -> bool:
        return self.negated

    def is_conj(self) -> bool:
        return False


class _Keys:
    """A tensor's dispatch keys: which of its own functions PyTorch calls for it."""

    def __init__(self, tensor: Tensor) -> None:
        self._negated = tensor.negated

    def raw_repr(self) -> int:
        return 2 + self._negated


def module(raw_stream: Callable[[int], int]) -> Any:
    """Return a module of such tensors; ``raw_stream(ordinal)`` is the handle of the stream that it works in."""
    torch: Any = types.ModuleType("torch")
    torch.Tensor, torch.strided = Tensor, Tensor.layout
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=raw_stream, _dispatch_keys=_Keys)
    return torch
