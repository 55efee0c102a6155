"""What the functions take and return, for type checkers alone: an import of the package leaves it out."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from lowlevel_reduce.arrays.device_array import DeviceArray
from lowlevel_reduce.driver import Stream

__all__ = [
    "ArrayLike",
    "MeanVar",
    "MinMax",
    "NanPolicy",
    "Out",
    "Scalar",
    "SoftmaxStats",
    "StreamLike",
    "SupportsCudaArrayInterface",
    "SupportsCudaStream",
    "SupportsDLPack",
]


class SupportsDLPack(Protocol):
    """An array that is exported by DLPack."""

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        """Return a capsule."""


class SupportsCudaArrayInterface(Protocol):
    """An array that is exported by the CUDA array interface."""

    @property
    def __cuda_array_interface__(self) -> Any:
        """The interface, a dictionary."""


class SupportsCudaStream(Protocol):
    """A stream of another library."""

    def __cuda_stream__(self) -> Any:
        """Return the version of the protocol, 0, and the stream's handle."""


ArrayLike: TypeAlias = DeviceArray | npt.NDArray[Any] | np.generic | SupportsDLPack | SupportsCudaArrayInterface
"""What is reduced."""

Out = TypeVar("Out", bound=SupportsDLPack | SupportsCudaArrayInterface)
"""Where results are written: an array on the device."""

StreamLike: TypeAlias = Stream | SupportsCudaStream
Scalar: TypeAlias = complex | np.generic | npt.NDArray[Any]
NanPolicy: TypeAlias = Literal["propagate", "ignore"]


# The tuples themselves are made by `operators.result_tuple`, which names them as the operators; `tree` returns the same
# ones, of NumPy's arrays.
class MeanVar(NamedTuple):
    """What `mean_var` returns."""

    mean: DeviceArray
    var: DeviceArray


class MinMax(NamedTuple):
    """What `minmax` returns."""

    min: DeviceArray
    max: DeviceArray


class SoftmaxStats(NamedTuple):
    """What `softmax_stats` returns."""

    max: DeviceArray
    sum: DeviceArray
