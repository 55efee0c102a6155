"""A warp's loads of a leaf are all in flight at once: none waits until one before it has arrived.

If the compiler gives a load a register that an earlier one has not yet filled, it waits for that one; and because loads
share the scoreboards that instructions wait for, it may wait for others too. Sums then take 13 percent longer, and
nothing else shows it (benchmarks/NOTES.md, "Loads that wait for each other").
"""

from typing import NamedTuple

import pytest
from test_kernels import Case, row_programs, whole_programs

from lowlevel_reduce.compiler.images import kernel_code
from lowlevel_reduce.plans.loading import compile_kernel

OPERATORS = ("sum", "max", "norm1", "norm2", "norm_inf")
CASES = [Case(op, dtype) for op in OPERATORS for dtype in ("float32", "float16", "float64", "int8")]
CASES += [Case("sum", "complex64"), Case("mean_var", "float32"), Case("argmax", "float32"), Case("prod", "float32")]
KINDS = {
    "tiles": lambda case: whole_programs(case, {"strategy": "tiles", "leaves": 100_000}, "sm_90"),
    "batch": lambda case: row_programs(case, (32, 1 << 23), 1, "sm_90"),
    "batch by leaves": lambda case: row_programs(case, (4096, 4096), 1, "sm_90"),
    "rows": lambda case: row_programs(case, (2000, 1 << 16), 1, "sm_90"),
}

LEAF_LOADS = 8
INSTRUCTION_BYTES, LOAD_GLOBAL, ALWAYS = 16, 0x981, 7


class Instruction(NamedTuple):
    """What the machine code of Volta and later devices says of an instruction.

    Attributes
    ----------
    is_load : bool
        Whether it loads from global memory, under no condition.
    sets : int
        The number of the scoreboard that it holds until its result is there; 7 for none.
    waits : int
        The scoreboards that it waits for, one bit each.
    """

    is_load: bool
    sets: int
    waits: int


def decoded(code):
    """Return the instructions; Jia et al., "Dissecting the NVIDIA Volta GPU architecture", have the bits."""
    found = []
    for at in range(0, len(code), INSTRUCTION_BYTES):
        word = int.from_bytes(code[at : at + INSTRUCTION_BYTES], "little")
        is_load = word & 0xFFF == LOAD_GLOBAL and word >> 12 & 0xF == ALWAYS
        found.append(Instruction(is_load, word >> 110 & 7, word >> 116 & 63))
    return found


def leaf_loads(instructions):
    """Yield the loads of whole leaves: as many as a lane has vectors, one right behind the other."""
    run = []
    for instruction in [*instructions, Instruction(False, 7, 0)]:
        if instruction.is_load:
            run.append(instruction)
            continue
        if len(run) == LEAF_LOADS:
            yield run
        run = []


def waits_within(loads):
    """Return which loads wait for a scoreboard that one before them holds."""
    return [
        number
        for number, load in enumerate(loads)
        if any(load.waits >> before.sets & 1 for before in loads[:number] if before.sets < 6)
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_load_of_a_leaf_waits_for_another(kind, case):
    source, _ = KINDS[kind](case)
    image = compile_kernel(source, "sm_90")
    leaves = list(leaf_loads(decoded(kernel_code(image.data, source.entry))))
    assert leaves, "no leaf is loaded at once: has the kernel changed, or the machine code?"
    assert not any(map(waits_within, leaves))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_moments_of_two_bytes_load_whole_leaves_first(dtype):
    """Of tiles of whole arrays; else the last of a leaf's loads come behind the folds of the first vectors."""
    source, _ = KINDS["tiles"](Case("mean_var", dtype))
    leaves = list(leaf_loads(decoded(kernel_code(compile_kernel(source, "sm_90").data, source.entry))))
    assert leaves
    assert not any(map(waits_within, leaves))


def test_a_load_that_waits_is_seen():
    free = Instruction(True, 5, 0)
    assert waits_within([free] * 8) == []
    assert waits_within([free, free, Instruction(True, 5, 1 << 5), free]) == [2]
    assert waits_within([Instruction(True, 7, 0), Instruction(True, 5, 1 << 4)]) == []
