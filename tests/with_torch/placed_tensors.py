"""PyTorch's own tensors, taken for tensors on a simulated device: all but where they lie is PyTorch's answer."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

import lowlevel_reduce as lr


class Placed(torch.Tensor):  # type: ignore[misc] # torch is skipped
    """A tensor whose storage has a copy on the simulated device, which `place` has made; its views are placed too."""

    is_cuda = True
    memory: dict[int, lr.DeviceArray] = {}  # noqa: RUF012 - of all storages: a view of a tensor has only PyTorch's attributes

    def get_device(self) -> int:
        return 0

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def data_ptr(self) -> Any:
        storage = self.untyped_storage().data_ptr()
        return self.memory[storage].pointer + super().data_ptr() - storage


def place(tensor: torch.Tensor, stream: lr.Stream) -> Any:
    """Return a tensor as one on the device, with a copy of its storage there."""
    storage = tensor.untyped_storage()
    content = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
    Placed.memory[storage.data_ptr()] = lr.DeviceArray.from_numpy(content, stream)
    return tensor.as_subclass(Placed)


def content_of(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return what the device holds of a placed tensor's storage."""
    return np.asarray(Placed.memory[tensor.untyped_storage().data_ptr()].numpy())


def library(raw_stream: Callable[[int], int]) -> SimpleNamespace:
    """Return PyTorch as the package sees it where placed tensors are those on a GPU."""
    raw = SimpleNamespace(_cuda_getCurrentRawStream=raw_stream)
    return SimpleNamespace(Tensor=Placed, strided=torch.strided, _C=raw)
