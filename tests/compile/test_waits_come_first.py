"""A kernel that may start early waits for the one before it, and only then accesses global memory.

The source says so, but the compiler decides: ptxas has moved `griddepcontrol.wait` behind loads of the kind that the
kernels use, because it takes memory that is read by ``ld.global.nc`` for constant while the kernel runs. So the machine
code is looked at. Touching and prefetching are meant to come before the wait: nothing sees what they read.
"""

import re

import pytest
from kept import listing
from test_kernels import Case, Kind, row_programs, segment_programs, whole_programs

from lowlevel_reduce.cli import sass
from lowlevel_reduce.plans.loading import compile_kernel

CASES = [
    Case("sum", "float32"),
    Case("max", "int8"),
    Case("mean_var", "float32"),
    Case("sum", "complex64"),
    Case("dot", "float32"),
]
WHOLE = [
    {"strategy": "block", "leaves": 1},
    {"strategy": "block", "leaves": 64},
    {"strategy": "cluster", "leaves": 32},
    {"strategy": "tiles", "leaves": 1000},
    {"strategy": "tiles", "leaves": 100_000},
    {"strategy": "two_pass", "leaves": 100_000},
]
ROWS = [((10**6, 8), 1), ((10**6, 100), 1), ((10**5, 1000), 1), ((10**4, 4096), 1), ((10**4, 4099), 1),
        ((132, 16384), 1), ((2000, 1 << 16), 1), ((8, 1 << 20), 1), ((4, 10**6), 0), ((500, 100), 0),
        ((4096, 4096), 0), ((1 << 20, 256), 0), ((1 << 20, 99), 0)]  # fmt: skip
KINDS = {
    **{"-".join(map(str, m.values())): lambda case, m=m: whole_programs(case, m, "sm_90") for m in WHOLE},
    **{f"{shape}-{axis}": lambda case, s=shape, a=axis: row_programs(case, s, a, "sm_90") for shape, axis in ROWS},
    "segments": lambda case: [] if case.reduction.two_arrays else segment_programs(case, "int64", 1),
}  # fmt: skip
# Of a sample's kinds each counts here, though other tests of this folder have shown the same sources.
KINDS = {Kind(name, ("waits", programs(CASES[0]))): programs for name, programs in KINDS.items()}

_GUARD = re.compile(r"@(!?)(U?P\d+) +")
_PREDICATE = re.compile(r"\bU?P\d+\b")
_ACCESS = re.compile(r"(LDGSTS|LDG|LD|STG|ST|ATOMG|ATOM|RED)\b")
_TOUCH = ".STRONG.SYS"  # ld.volatile
# The length on the device, read only where there is one: a wait comes first then, under the same condition, which the
# compiler computes twice. The field's place among the arguments of sm_90 is that of kernels.FIELDS.
_LENGTH_POINTER = re.compile(r"LDC\.64 (R\d+), c\[0x0\]\[0x230\]")
_LABEL = re.compile(r"(\.L_x_\d+)")


def accesses_before_the_wait(lines):
    """Return the accesses of global memory that some path from the start reaches without a wait.

    A path knows the predicates that its branches have decided, until they are written again.
    """
    places = {line[:-1]: at for at, line in enumerate(lines) if line.endswith(":")}
    pointers = {match[1] for match in map(_LENGTH_POINTER.search, lines) if match}
    seen, found, paths = set(), set(), [(0, frozenset())]
    while paths:
        at, known = paths.pop()
        if at >= len(lines) or (at, known) in seen:
            continue
        seen.add((at, known))
        line = lines[at].strip()
        guard, line = _GUARD.match(line), _GUARD.sub("", line, count=1)
        condition = None if guard is None else (guard[2], not guard[1])
        if condition and (condition[0], not condition[1]) in known:
            paths.append((at + 1, known))  # not executed
            continue
        opcode = line.split(" ")[0].rstrip(";")
        is_sure = condition is None or condition in known
        if opcode == "ACQBULK" and is_sure:
            continue
        is_length = condition is not None and opcode == "LDG.E.64" and any(f"[{name}.64]" in line for name in pointers)
        if _ACCESS.match(opcode) and _TOUCH not in opcode and not is_length:
            found.add(line)
        if opcode.split(".")[0] in {"BRA", "BRX", "EXIT", "RET"}:
            paths.extend(_after_branch(line, opcode, condition, known, places))
            if not is_sure or "," in line:  # it may not be taken
                decided = known if condition is None or "," in line else known | {(condition[0], not condition[1])}
                paths.append((at + 1, decided))
            continue
        written = set(_PREDICATE.findall(line))
        paths.append((at + 1, frozenset(each for each in known if each[0] not in written)))
    return sorted(found)


def _after_branch(line, opcode, condition, known, places):
    """Yield where a branch leads if it is taken, and what is known then."""
    target = _LABEL.search(line)
    if not opcode.startswith("BRA") or target is None:
        return
    decided = known | ({condition} if condition else set())
    second = re.match(r"\S+ (!?)(P\d+),", line)
    if second:
        decided |= {(second[2], not second[1])}
    if not any((name, not value) in decided for name, value in decided):
        yield places[target[1]], frozenset(decided)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_read_or_written_before_the_wait(kind, case, few):
    for source in few(KINDS[kind](case), 1):
        code = listing(compile_kernel(source, "sm_90").data)
        lines = [line.text for line in sass._of_kernel(code, source.entry)]
        assert any("ACQBULK" in line for line in lines), "a kernel that does not wait"
        assert accesses_before_the_wait(lines) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ACQBULK; LDG.E R2, [R4];", []),
        ("LDG.E R2, [R4]; ACQBULK;", ["LDG.E R2, [R4];"]),
        ("LDG.E.STRONG.SYS R2, [R4]; UBLKPF.L2 [R4], R2; ACQBULK; STG.E [R4], R2;", []),
        ("@P0 BRA `(.L_x_0); ACQBULK; .L_x_0: STG.E [R4], R2;", ["STG.E [R4], R2;"]),
        ("@!P0 BRA `(.L_x_0); ACQBULK; .L_x_0: @P0 LDG.E R2, [R4]; EXIT;", []),
        ("@!P0 BRA `(.L_x_0); ACQBULK; .L_x_0: ISETP P0, PT, R1, RZ, PT; @P0 LDG.E R2, [R4];", ["LDG.E R2, [R4];"]),
        ("@P0 EXIT; ACQBULK; RED.E.ADD [R4], R2;", []),
        ("@P1 BRA P0, `(.L_x_0); ACQBULK; EXIT; .L_x_0: @!P0 LDG.E R2, [R4]; LDGSTS.E [R1], [R4];",
         ["LDGSTS.E [R1], [R4];"]),
        # What ptxas has made of a wait in the second round of a loop: it comes behind that round's loads.
        (".L_x_0: ISETP.NE.AND P0, PT, R5, 0x1, PT; @!P0 LDG.E R2, [R4]; @P0 BRA `(.L_x_1); ACQBULK; .L_x_1: "
         "ISETP.GE.U32.AND P0, PT, R5, 0x2, PT; @!P0 BRA `(.L_x_0); EXIT;", ["LDG.E R2, [R4];"]),
    ],
)  # fmt: skip
def test_an_access_before_the_wait_is_seen(text, expected):
    lines = [part + end for part, end in re.findall(r"([^;:]+)([;:])", text)]
    assert accesses_before_the_wait([line.strip() for line in lines]) == expected
