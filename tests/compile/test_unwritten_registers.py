"""No register goes round in a loop before it has been written, not even if what it holds is not used.

From -O1 on, ptxas (12.9 to 13.5) takes a register that a loop fills from another one, and that was not written before
the loop, for that other one. So counters of neighbouring rows that changed places in a loop, some of their digits never
written, mixed their rows on a real device. The PTX was right, so the simulator did not show it
(benchmarks/NOTES.md, "Bytes along axis 0").
"""

import re

import pytest
from test_kernels import Case, row_programs, whole_programs

from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.strategy.stubs import OPTIONS

CASES = [
    Case("minmax", "float8_e4m3fn"),
    Case("mean_var", "bool"),
    Case("mean", "int8", None, {"nan": "ignore"}),
    Case("dot", "int8"),
    Case("logsumexp", "int8"),
    Case("sum", "float32"),
    Case("argmax", "float16"),
]
KINDS = {
    **{f"{shape}-0": lambda case, s=shape: row_programs(case, s, 0, "sm_90") for shape in ((4096, 7), (1 << 14, 1001))},
    "4096x4099-1": lambda case: row_programs(case, (4096, 4099), 1, "sm_90"),
    "2000x2^16-1": lambda case: row_programs(case, (2000, 1 << 16), 1, "sm_90"),
    "tiles": lambda case: whole_programs(case, {"strategy": "tiles", "leaves": 100_000}, "sm_90"),
}

_REGISTER = re.compile(r"%[a-z]+\d+")
_NO_RESULT = ("st", "bra", "bar", "barrier", "ret", "exit", "red", "cp", "fence", "membar", "griddepcontrol",
              "mbarrier", "prefetch", "nanosleep", "trap")  # fmt: skip


def statements(ptx):
    """Return a kernel's instructions, without its declarations, and the place of each label among them."""
    body = ptx[ptx.index(".entry") :]
    found, labels = [], {}
    for line in body[body.index("\n{") + 2 :].splitlines():
        text = re.sub(r"//.*", "", line).strip()
        label = re.fullmatch(r"(\S+):", text)
        if label:
            labels[label[1]] = len(found)
        block = re.fullmatch(r"\{(.*;.*)\}", text)  # of inline assembly
        for part in (block[1] if block else text).split(";"):
            instruction = " ".join(part.split())
            if instruction and instruction not in "{}" and not instruction.startswith(".") and not label:
                found.append(instruction)
    return found, labels


def reads_and_writes(text):
    """Return the registers that an instruction reads, those that it writes, and whether it is executed for certain."""
    guard = re.match(r"@!?(%p\d+) +", text)
    text = text[guard.end() :] if guard else text
    opcode, _, operands = text.partition(" ")
    first = re.match(r"\{[^}]*\}|[^,]*", operands).group()
    writes = set() if opcode.split(".")[0] in _NO_RESULT else set(_REGISTER.findall(first))
    reads = set(_REGISTER.findall(operands if not writes else operands[len(first) :])) | (
        {guard[1]} if guard else set()
    )
    return reads, writes, guard is None


def written_before(found, labels):
    """Return a function that tells whether a register has been written on every path to an instruction."""
    parsed = [reads_and_writes(text) for text in found]
    # A bit for each register: there may be thousands of them, and as many instructions.
    bits = {name: 1 << number for number, name in enumerate(set(_REGISTER.findall(" ".join(found))))}
    before, pending = {0: 0}, [0]
    while pending:
        at = pending.pop()
        _, writes, is_sure = parsed[at]
        after = before[at] | (sum(bits[name] for name in writes) if is_sure else 0)
        target = re.search(r"\bbra(?:\.uni)? (\S+)$", found[at])
        ends = target or re.match(r"ret|exit", found[at])
        following = [] if ends and is_sure else [at + 1]
        for place in [*following, *([labels[target[1]]] if target else [])]:
            known = after if place not in before else before[place] & after
            if place < len(found) and known != before.get(place):
                before[place] = known
                pending.append(place)
    # What no path leads to is as good as written.
    return lambda name, at: at not in before or bool(before[at] & bits[name])


def that_go_round(ptx):
    """Return a loop's copies that fill a register from one that a third fills, and that need not be written yet."""
    found, labels = statements(ptx)
    is_written = written_before(found, labels)
    loops = []
    for at, text in enumerate(found):
        target = re.search(r"\bbra(?:\.uni)? (\S+)$", text)
        if target and labels[target[1]] <= at:
            loops.append(range(labels[target[1]], at + 1))
    hits, inner = set(), set()
    for loop in sorted(loops, key=len):  # each instruction in its innermost loop
        own, inner = set(loop) - inner, inner | set(loop)
        copies = [(at, *reads_and_writes(found[at])[:2]) for at in sorted(own) if found[at].startswith("mov")]
        sources = {target: source for _, reads, writes in copies for source in reads for target in writes}
        for at, reads, writes in copies:
            for source in (name for name in reads if not is_written(name, at)):
                # Filled from a third register, which need not have been written either; one that is filled from the
                # register that it fills is a variable of its own, under two names.
                third = sources.get(source)
                if third is not None and third not in writes | {source} and not is_written(third, at):
                    hits.add(found[at])
    return sorted(hits)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_no_register_goes_round_unwritten(kind, case):
    for source in KINDS[kind](case):
        ptx = compile_program(Program(source.entry, source.text, options=OPTIONS), "sm_90", output="ptx")
        assert that_go_round(ptx.data.decode()) == []


ROUND = """
struct Digits {{ int digit[2]; }};
extern "C" __global__ void digits(int* out, int n)
{{
    Digits all[4]{initialised};
#pragma unroll 1
    for (int i = 0; i < n; ++i)
#pragma unroll 1
        for (int c = 0; c < 4; ++c) {{
            if (i & 1) out[c] = all[0].digit[0] + i;
            else all[0].digit[0] = out[c] * i;
            const Digits first = all[0];
            for (int k = 1; k < 4; ++k) all[k - 1] = all[k];
            all[3] = first;
        }}
}}
"""


@pytest.mark.parametrize(("initialised", "is_seen"), [("", True), (" = {}", False)])
def test_registers_that_go_round_are_seen(initialised, is_seen):
    program = Program("digits", ROUND.format(initialised=initialised))
    assert bool(that_go_round(compile_program(program, "sm_90", output="ptx").data.decode())) == is_seen
