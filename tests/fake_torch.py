"""PyTorch as the package sees it, over memory of a simulated device; tests/with_torch compares it with PyTorch."""

import types


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

    def __init__(self, array, shape=None, strides=(1,), *, negated=False, device=0):
        self.array, self.shape, self.steps, self.negated = array, shape or array.shape, strides, negated
        self.dtype, self.ordinal = f"torch.{array.dtype}", device

    def __dlpack_device__(self):
        return (2, self.ordinal)

    def data_ptr(self):
        return self.array.pointer

    def stride(self):
        return self.steps

    def get_device(self):
        return self.ordinal

    def is_neg(self):
        return self.negated

    def is_conj(self):
        return False


def module(raw_stream):
    """Return a module of such tensors; ``raw_stream(ordinal)`` is the handle of the stream that it works in."""
    torch = types.ModuleType("torch")
    torch.Tensor, torch.strided = Tensor, Tensor.layout
    torch._C = types.SimpleNamespace(_cuda_getCurrentRawStream=raw_stream)
    return torch
