"""torch's process groups: NCCL, on the device and in the order of streams, and Gloo or others, on the host."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import numpy as np

from lowlevel_reduce.driver import Context, Device, Stream
from lowlevel_reduce.errors import GroupError
from lowlevel_reduce.parts.groups import BytesGroup, Gather, Group, kept_of_stream
from lowlevel_reduce.parts.letters import letter_bytes

__all__ = ["TorchDeviceGroup", "TorchHostGroup", "torch_group"]


_LEGACY = (0, 1)


def torch_group(engine: Any) -> Group:
    """Return the group: on the device where its backend for CUDA is NCCL, else on the host."""
    distributed = importlib.import_module("torch.distributed")
    backends = str(distributed.get_backend_config(engine))  # as "cpu:gloo,cuda:nccl"
    return TorchDeviceGroup(engine) if "cuda:nccl" in backends else TorchHostGroup(engine)


def _all_gather() -> Any:
    """Return torch's function by its newest name, which it has from 2.13 on."""
    distributed = importlib.import_module("torch.distributed")
    return getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor


class TorchHostGroup(BytesGroup):
    """A group whose collectives take tensors of the host: Gloo."""

    def __init__(self, engine: Any) -> None:
        self._torch, self._distributed = (importlib.import_module(name) for name in ("torch", "torch.distributed"))
        self._gather = _quick_gather(engine)
        # Not by BytesGroup's: the engine's attributes are functions.
        Group.__init__(self, self._distributed.get_rank(engine), self._distributed.get_world_size(engine))

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks."""
        everyone = np.empty(len(message) * self.size, np.uint8)
        self.gather_bytes(np.frombuffer(bytearray(message), np.uint8), everyone)
        return [each.tobytes() for each in everyone.reshape(self.size, len(message))]

    def gather_bytes(self, mine: np.ndarray[Any, Any], everyone: np.ndarray[Any, Any]) -> None:
        """Gather the bytes of one array into another."""
        try:
            self._gather(self._torch.from_numpy(everyone), self._torch.from_numpy(mine))
        except RuntimeError as error:  # of Gloo: a rank died, timed out, or sent another number of bytes
            raise GroupError(f"rank {self.rank} could not gather, and another rank may have ended: {error}") from error


class TorchDeviceGroup(Group):
    """A group whose collectives take tensors of the device: NCCL."""

    def __init__(self, engine: Any) -> None:
        self._torch, self._distributed = (importlib.import_module(name) for name in ("torch", "torch.distributed"))
        super().__init__(self._distributed.get_rank(engine), self._distributed.get_world_size(engine))
        self.letter_bytes = letter_bytes(self.size)
        self._quick = _quick_gather(engine)
        self._streams: dict[tuple[int, int], Stream] = {}
        self._messages: dict[tuple[int, int], tuple[Any, ...]] = {}

    def exchange(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks, by way of the current device."""
        cuda, size = self._torch.cuda, len(message)
        key = (size, cuda.current_device())
        host, mine, everyone, host_of_all = kept_of_stream(self._messages, key, lambda: self._memory(size))
        host.numpy()[:] = np.frombuffer(message, np.uint8)
        mine.copy_(host, non_blocking=True)
        self._quick(everyone, mine)
        host_of_all.copy_(everyone, non_blocking=True)
        cuda.current_stream().synchronize()
        found: bytes = host_of_all.numpy().tobytes()
        return [found[start : start + size] for start in range(0, len(found), size)]

    def _memory(self, size: int) -> tuple[Any, ...]:
        """Return page-locked and device memory for a message, and for those of all ranks: made once for each size."""
        options = {"dtype": self._torch.uint8}
        pinned, there = {**options, "pin_memory": True}, {**options, "device": "cuda"}
        whole = size * self.size
        empty = self._torch.empty
        return empty(size, **pinned), empty(size, **there), empty(whole, **there), empty(whole, **pinned)

    def gather(self, share_bytes: int, stream: Stream) -> Gather:
        """Return a gather in the order of a stream."""
        return _TorchGather(self, share_bytes, stream)

    def default_stream(self) -> Stream | None:
        """Return torch's current stream."""
        current = self._torch.cuda.current_stream()
        key = (current.device_index, current.cuda_stream)
        if key not in self._streams:
            context = Context.primary(Device(current.device_index))
            self._streams[key] = Stream.from_handle(current.cuda_stream, context=context, owner=current).fixed()
        return self._streams[key]


def _quick_gather(engine: Any) -> Any:
    """Return what gathers into a tensor, without the checks of torch's function, which take some 12 us a call.

    It is the method that this function calls; where a version has it not, the function itself.
    """
    options = getattr(importlib.import_module("torch.distributed.distributed_c10d"), "AllgatherOptions", None)
    method = getattr(engine, "all_gather_single", None) or getattr(engine, "_allgather_base", None)  # new, old name
    if method is None or options is None or not hasattr(options(), "asyncOp"):
        gather = _all_gather()
        return lambda everyone, mine: gather(everyone, mine, group=engine)
    in_order = options()
    in_order.asyncOp = False  # of the current stream

    def gather_quickly(everyone: Any, mine: Any) -> None:
        work = method(everyone, mine, in_order)
        if work is not None:
            work.wait()

    return gather_quickly


class _TorchGather(Gather):
    def __init__(self, group: TorchDeviceGroup, share_bytes: int, stream: Stream) -> None:
        torch = group._torch
        self._cuda = torch.cuda
        device = torch.device("cuda", stream.context.device.ordinal)
        self._own = torch.empty(share_bytes, dtype=torch.uint8, device=device)
        self._there = torch.empty(share_bytes * group.size, dtype=torch.uint8, device=device)
        self.mine, self.everyone, self.share_bytes = self._own.data_ptr(), self._there.data_ptr(), share_bytes
        # What the allocator's stream still does with this memory comes before what ours does.
        torch.cuda.current_stream(device).synchronize()
        self._device = device
        # The legacy default stream's handle is 0 in torch, 0 or 1 in the driver.
        self._handle = 0 if stream.handle in _LEGACY else stream.handle
        default = torch.cuda.default_stream(device)
        self._stream = torch.cuda.ExternalStream(stream.handle, device=device) if self._handle else default
        for each in (self._own, self._there):  # so that the allocator waits for this stream when they are freed
            each.record_stream(self._stream)
        self._gather = group._quick
        raw, ordinal = getattr(torch._C, "_cuda_getCurrentRawStream", None), stream.context.device.ordinal
        self._current = functools.partial(raw, ordinal) if raw is not None else self._asked

    def __call__(self, tag: bytes) -> None:
        """Put the gather into the stream; the tags are looked at on the device, by the fold."""
        if self._current() == self._handle:
            self._gather(self._there, self._own)
            return
        with self._cuda.stream(self._stream):
            self._gather(self._there, self._own)

    def _asked(self) -> int:
        return int(self._cuda.current_stream(self._device).cuda_stream)
