"""Leaves folded by simulated warps, and leaves whose smallest and largest elements are not easy to tell.

All leaves of a test are one launch, a block of one warp for each: the simulator runs many warps in the time of one.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.simulator import machine, ptx

OPTIONS = ("-fmad=false",)

Array = npt.NDArray[Any]

HEAD = """\
#include "operators.cuh"
#include "tree/leaf.cuh"
using Op = {struct};
// A leaf of `length` elements at x, which starts `first` elements into its row.
struct Leaf {{ const char* x; uint64 length, first; }};
"""
LEAF = (
    HEAD
    + """\
extern "C" __global__ void leaf(const Leaf* leaves, Op::Result* out)
{{
    const Leaf leaf = leaves[blockIdx.x];
    const Source<Op> source(Problem{{}}, leaf.x, nullptr, leaf.length);
    const uint32 bytes = uint32(leaf.length * sizeof(Op::Input));
    auto value = lane_fold_aligned<Op>(source, source.begin, leaf.first, bytes, threadIdx.x);
    value = warp_fold<Op>(value);
    for (int k = 0; k < Op::results; ++k)
        if (threadIdx.x == 0) out[blockIdx.x * Op::results + k] = Op::finish(value, source.row, k);
}}
"""
)
VECTORS = (
    HEAD
    + """\
// The same, at any address and of any length.
extern "C" __global__ void vectors(const Leaf* leaves, Op::Result* out)
{{
    const Leaf leaf = leaves[blockIdx.x];
    const Source<Op> source(Problem{{}}, leaf.x, nullptr, leaf.length);
    auto value = lane_fold_edge<Op>(source, leaf.x, leaf.first, leaf.length * sizeof(Op::Input), threadIdx.x);
    value = warp_fold<Op>(value);
    for (int k = 0; k < Op::results; ++k)
        if (threadIdx.x == 0) out[blockIdx.x * Op::results + k] = Op::finish(value, source.row, k);
}}
"""
)


def kernels(entry: str, template: str, operation: Any, dtype: str, architectures: Iterable[str]) -> list[Any]:
    """Return the kernels, parsed, of an operator over a type: one of those whose PTX differs in its target alone."""
    text = template.format(struct=operation.struct(operation.types(element_type(dtype))))
    found: dict[str, str] = {}
    for architecture in architectures:
        code = ptx_of(entry, text, architecture)
        found.setdefault(re.sub(r"^\.target .*$", "", code, flags=re.MULTILINE), code)
    return [ptx.parse(code).kernels[entry] for code in found.values()]


def parse(entry: str, text: str, architecture: str) -> Any:
    """Return a kernel, parsed."""
    return ptx.parse(ptx_of(entry, text, architecture)).kernels[entry]


def ptx_of(entry: str, text: str, architecture: str) -> str:
    return compile_program(Program(entry, text, options=OPTIONS), architecture, output="ptx").data.decode()


def run(parsed: Any, result: npt.DTypeLike, count: int, arrays: Iterable[Array], *numbers: int) -> Array:
    """Run a kernel of these arrays, a result and these numbers by one warp; return the `count` results."""
    memory = machine.GlobalMemory()
    addresses = [placed(memory, array) for array in arrays]
    size = count * np.dtype(result).itemsize
    out = memory.allocate(size)
    arguments = [*addresses, out, *numbers]
    launch(parsed, memory, struct.pack(f"{len(arguments)}Q", *arguments))
    return np.frombuffer(memory.read(out, size), result)


def fold(
    parsed: Any, result: npt.DTypeLike, results: int, arrays: Sequence[Array], *, first: int = 0, offset: int = 0
) -> Array:
    """Fold each array as a leaf by a warp of its own; return an array of the `results` of each.

    Each has memory of its own that ends with it, and starts `offset` bytes into that.
    """
    memory = machine.GlobalMemory()
    table = [(placed(memory, array, offset), array.size, first) for array in arrays]
    leaves = placed(memory, np.array(table, np.uint64))
    size = len(arrays) * results * np.dtype(result).itemsize
    out = memory.allocate(size)
    launch(parsed, memory, struct.pack("2Q", leaves, out), blocks=len(arrays))
    return np.frombuffer(memory.read(out, size), result).reshape(len(arrays), results)


def placed(memory: machine.GlobalMemory, array: Array, offset: int = 0) -> int:
    """Return the address of an array in memory that ends with it."""
    address = memory.allocate(offset + array.nbytes) + offset
    memory.write(address, array.tobytes())
    return address


def launch(parsed: Any, memory: machine.GlobalMemory, arguments: bytes, threads: int = 32, blocks: int = 1) -> None:
    """Run a kernel by blocks of so many threads, with these bytes as its arguments."""
    machine.run(
        machine.Launch(
            kernel=parsed,
            grid=(blocks, 1, 1),
            block=(threads, 1, 1),
            cluster=None,
            dynamic_shared_bytes=0,
            arguments=arguments,
            cooperative=False,
            resident_blocks=blocks,
            seed=None,
        ),
        memory,
    )


def leaves(name: str) -> Iterator[Array]:
    """Yield leaves, whole and not: ties everywhere, worse than zeros, and NaN of any bits."""
    dtype = element_type(name).dtype
    rng = np.random.default_rng(4)
    vector, unsigned = 16 // dtype.itemsize, np.dtype(f"u{dtype.itemsize}")
    for length in (256 * vector, 129 * vector, vector):
        yield rng.integers(0, 3, length).astype(dtype)
        if dtype.kind in "iu":
            limits = np.iinfo(dtype)
            yield np.full(length, limits.max, dtype)
            yield np.full(length, limits.min, dtype)
            yield rng.integers(limits.min, limits.max, length, dtype, endpoint=True)
            continue
        yield -rng.integers(1, 4, length).astype(dtype)
        yield np.full(length, -np.inf, dtype)
        yield np.full(length, np.inf, dtype)
        zeros = np.where(rng.random(length) < 0.5, -0.0, 0.0).astype(dtype)
        yield zeros
        for one in (0.0, -0.0):
            few = np.full(length, -one, dtype)
            few[rng.integers(0, length)] = one
            yield few
            for other in (1, -1):
                yield np.where(rng.random(length) < 0.5, other, few).astype(dtype)
        x = rng.standard_normal(length).astype(dtype)
        yield x
        quiet = int(np.array(np.nan, dtype).view(unsigned))
        sign = 1 << (8 * dtype.itemsize - 1)
        signalling = int(np.array(np.inf, dtype).view(unsigned)) + 1
        some = x.copy()
        some.view(unsigned)[rng.integers(0, length, 3)] = (quiet | sign | 1, signalling, quiet)
        yield some
        yield np.full(length, signalling | sign, unsigned).view(dtype)
        last = np.full(length, -np.inf, dtype)
        last[-1] = ml_dtypes.finfo(dtype).smallest_subnormal
        yield last
