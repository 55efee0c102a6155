"""Small PTX kernels for tests: arrays in, arrays out."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lowlevel_reduce.simulator import machine, ptx

Array = npt.NDArray[Any]

REGISTERS = (
    ".reg .pred %p<20>; .reg .b16 %h<40>; .reg .b32 %r<60>; .reg .f32 %f<60>; .reg .b64 %rd<60>; "
    ".reg .f64 %fd<40>; .reg .b128 %q<4>;"
)


def text(body: str, *, arrays: int = 1, declarations: str = "", module: str = "") -> str:
    """Return a module whose kernel has the addresses of arrays in %rd0, %rd1, … and its thread's number in %r0."""
    parameters = ", ".join(f".param .u64 a{i}" for i in range(arrays))
    loads = "\n".join(f"ld.param.u64 %rd{i}, [a{i}];" for i in range(arrays))
    return (
        f".version 8.8\n.target sm_100\n.address_size 64\n{module}\n.visible .entry k({parameters})\n"
        f"{{\n{REGISTERS}\n{declarations}\n{loads}\nmov.u32 %r0, %tid.x;\n{body}\nret;\n}}\n"
    )


def execute(
    body: str,
    *arrays: Array,
    threads: int = 32,
    blocks: int = 1,
    cluster: int | None = None,
    declarations: str = "",
    module: str = "",
    seed: int | None = None,
    instructions: int | None = None,
) -> tuple[list[Array], Any]:
    """Run a kernel on arrays and return what they hold then, and the counters."""
    memory = machine.GlobalMemory()
    addresses = [memory.allocate(array.nbytes) for array in arrays]
    for address, array in zip(addresses, arrays, strict=True):
        memory.write(address, array.tobytes())
    parsed = ptx.parse(text(body, arrays=len(arrays), declarations=declarations, module=module))
    launch = machine.Launch(
        kernel=parsed.kernels["k"],
        grid=(blocks, 1, 1),
        block=(threads, 1, 1),
        cluster=(cluster, 1, 1) if cluster else None,
        dynamic_shared_bytes=0,
        arguments=struct.pack(f"{len(arrays)}Q", *addresses),
        cooperative=False,
        resident_blocks=8,
        seed=seed,
        instructions=instructions,
    )
    counters = machine.run(launch, memory)
    found = [
        np.frombuffer(memory.read(address, array.nbytes), array.dtype).reshape(array.shape)
        for address, array in zip(addresses, arrays, strict=True)
    ]
    return found, counters


def fault(body: str, *arrays: Array, **options: Any) -> machine.KernelFault:
    """Return the fault that a kernel commits."""
    with pytest.raises(machine.KernelFault) as caught:
        execute(body, *arrays, **options)
    return caught.value


def own_places(*strides: int) -> str:
    """Return code that adds to %rd10, %rd11, … the thread's place in each array, given the bytes of an element."""
    lines = []
    for i, stride in enumerate(strides):
        lines.append(f"mul.wide.u32 %rd{10 + i}, %r0, {stride}; add.s64 %rd{10 + i}, %rd{10 + i}, %rd{i};")
    return "\n".join(lines) + "\n"


def elementwise(instruction: str, *inputs: Array, result: npt.DTypeLike, width: int | None = None) -> Array:
    """Execute an instruction with each thread's elements as %0, %1, … and return its result, as %d, by element."""
    registers = {1: "h", 2: "h", 4: "r", 8: "rd"}
    count = inputs[0].size
    output = np.zeros(count, result)
    places = [array.itemsize for array in inputs] + [output.itemsize]
    code = own_places(*places)
    for i, array in enumerate(inputs):
        size = array.itemsize
        name = f"%{registers[size]}{20 + i}"
        code += f"ld.global.b{8 * size} {name}, [%rd{10 + i}];\n"
        instruction = instruction.replace(f"%{i}", name)
    kept = width or output.itemsize
    target = f"%{registers[kept]}30"
    code += instruction.replace("%d", target) + f"\nst.global.b{8 * output.itemsize} [%rd{10 + len(inputs)}], {target};"
    found, _ = execute(code, *inputs, output, threads=count)
    return found[-1]
