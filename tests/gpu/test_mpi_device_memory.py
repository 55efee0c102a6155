"""`lr.distributed` with an MPI that takes device memory: a communicator between threads that does what is used."""

import threading

import numpy as np
import pytest
from ranks_in_threads import SECONDS, bits, on_each, parts_of, values

import lowlevel_reduce as lr
from lowlevel_reduce.parts import mpi_group


class Exception_(Exception):  # noqa: N801, N818 - mpi4py's is called Exception
    """What mpi4py raises."""


class Comm:
    """A communicator of mpi4py, of one of some threads: it gathers arrays and device memory, and knows no stream."""

    def __init__(self, rank, shared, context):
        self.rank, self._shared, self._context = rank, shared, context

    def Get_info(self):  # noqa: N802 - mpi4py's name
        return self

    def Get(self, key):  # noqa: N802
        return {"mpi_memory_alloc_kinds": "system, cuda:device"}.get(key)

    def Get_rank(self):  # noqa: N802
        return self.rank

    def Get_size(self):  # noqa: N802
        return len(self._shared["messages"])

    def Allgather(self, mine, everyone):  # noqa: N802
        own = getattr(mine, "buffer", mine)
        found = np.empty(getattr(own, "size_bytes", getattr(own, "nbytes", 0)), np.uint8)
        if isinstance(own, lr.Buffer):
            own.copy_to(found)
        else:
            found[:] = own
        self._shared["messages"][self.rank] = found
        self._shared["barrier"].wait(SECONDS)
        all_of_them = list(self._shared["messages"])
        self._shared["barrier"].wait(SECONDS)
        if len({each.nbytes for each in all_of_them}) > 1:
            raise Exception_("MPI_ERR_TRUNCATE: message truncated")
        if isinstance(own, lr.Buffer):
            everyone.buffer.copy_from(np.concatenate(all_of_them))
        else:
            everyone[:] = np.concatenate(all_of_them)


Comm.__module__ = Exception_.__module__ = "mpi4py.MPI"


def communicators(ranks, context):
    shared = {"messages": [b""] * ranks, "barrier": threading.Barrier(ranks)}
    return [Comm(rank, shared, context) for rank in range(ranks)]


@pytest.mark.parametrize("op", ["sum", "mean_var"])
def test_device_memory_is_gathered_behind_the_stream(op, stream, context):
    x = values(4 * 1024 + 9, "float32")
    expected, parts = bits(lr.reduce(x, op, stream=stream)), parts_of(x, None, 2)

    def once(engine, own):
        assert isinstance(lr.distributed.group(engine), mpi_group.MpiDeviceGroup)
        lengths = ({}, {"length": len(x)}, {"length": len(x)})
        return [bits(lr.distributed.reduce(parts[engine.rank], op, engine, stream=own, **each)) for each in lengths]

    assert on_each(communicators(2, context), once, context) == [[expected] * 3] * 2


def test_another_number_of_bytes_is_an_error_of_the_group(context):
    """As with an MPI that takes host memory."""

    def once(engine, own):
        part = np.ones(4096, "f4")
        assert float(lr.distributed.sum(part, engine, length=8192, stream=own)) == 8192
        if engine.rank == 1:
            part = part.astype(np.float64)
        return lr.distributed.sum(part, engine, length=8192, stream=own)

    found = on_each(communicators(2, context), once, context)
    assert [type(each) for each in found] == [lr.GroupError] * 2
    assert all("could not gather: MPI_ERR_TRUNCATE" in str(each) for each in found)
