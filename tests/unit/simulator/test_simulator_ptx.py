"""The PTX parser, and each family of arithmetic against Python's integers, fractions and NumPy."""

import itertools
import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lowlevel_reduce.simulator import machine, ptx
from lowlevel_reduce.simulator.machine.arithmetic import floats
from lowlevel_reduce.simulator.ptx.code import UnknownInstruction
from lowlevel_reduce.simulator.ptx.operands import Address, Immediate, Name, Pair, Vector

KERNEL = """
.version 8.8
.target sm_90 // a comment
.address_size 64
.visible .entry first(.param .u64 x, .param .u32 n, .param .align 8 .b8 s[12])
.maxntid 256, 1, 1
.minnctapersm 2
{
    .reg .pred %p<3>;
    .reg .b32 %r<4>;
    .reg .b64 %SP;
    .shared .align 4 .b8 one[6];
    .shared .align 16 .b8 two[32];
    .local .align 8 .b8 depot[24];
L: @!%p1 ld.global.nc.L1::no_allocate.v2.u32 {%r1, %r2}, [%SP+-8];
    shfl.sync.bfly.b32 %r1|%p2, %r2, 0x10, 31, -1; /* two
    lines */ { .reg .pred p; setp.eq.f32 p, 0f3F800000, %r3; }
    bra.uni L;
}
.visible .entry second()
{
    ret;
}
"""


def test_a_module_is_parsed():
    module = ptx.parse(KERNEL)
    assert (module.target, module.version, list(module.kernels)) == ("sm_90", "8.8", ["first", "second"])
    first = module.kernels["first"]
    assert [(p.name, p.size, p.alignment, p.offset) for p in first.parameters] == [
        ("x", 8, 8, 0),
        ("n", 4, 4, 8),
        ("s", 12, 8, 16),
    ]
    assert (first.max_threads, first.min_blocks, first.static_shared_bytes, first.local_bytes) == (256, 2, 48, 24)
    assert (module.kernels["second"].max_threads, module.kernels["second"].parameter_bytes) == (1024, 0)
    load, shuffle, compare, branch = first.instructions
    assert load.modifiers == ("global", "nc", "L1::no_allocate", "v2", "u32")
    assert load.operands == (Vector((Name("%r1"), Name("%r2"))), Address("%SP", -8))
    assert (load.guard.register, load.guard.negated, load.line) == ("%p1", True, 15)
    assert shuffle.operands == (
        Pair(Name("%r1"), Name("%p2")),
        Name("%r2"),
        Immediate(16),
        Immediate(31),
        Immediate(-1),
    )
    assert compare.operands[1] == Immediate(0x3F800000, 32)
    assert first.registers[compare.operands[0].name] == "pred"
    assert (branch.opcode, branch.target, branch.line) == ("bra", 0, 18)


def test_what_the_parser_does_not_know_is_named():
    with pytest.raises(UnknownInstruction, match=r"line 3: .*add\.s32 %r1, \?") as caught:
        ptx.parse(".entry k()\n{ .reg .b32 %r<2>;\nadd.s32 %r1, ?;\n}")
    assert caught.value.line == 3
    with pytest.raises(UnknownInstruction, match="label"):
        ptx.parse(".entry k()\n{ bra NOWHERE; }")


def compute(instruction, rows, kinds, result):
    """Run one instruction in a thread a row; operands of these kinds come from memory, `result` goes back."""
    declare, load = [], []
    for i, kind in enumerate(kinds):
        size = int("".join(c for c in kind if c.isdigit())[:2])
        declare.append(f".reg .b{size} %x{i};")
        load.append(f"ld.global.b{size} %x{i}, [%a+{8 * i}];")
    size = int("".join(c for c in result if c.isdigit())[:2])
    text = f"""
.version 8.8
.target sm_90
.address_size 64
.entry k(.param .u64 a, .param .u64 b)
{{ .reg .b64 %a; .reg .b64 %b; .reg .b64 %t; .reg .b32 %i; .reg .b{size} %y; .reg .pred %p; {" ".join(declare)}
ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; mov.u32 %i, %tid.x;
mul.wide.u32 %t, %i, 32; add.s64 %a, %a, %t; mul.wide.u32 %t, %i, 8; add.s64 %b, %b, %t;
{" ".join(load)} {instruction} st.global.b{size} [%b], %y; ret; }}
"""
    memory = machine.GlobalMemory()
    a, b = memory.allocate(32 * len(rows)), memory.allocate(8 * len(rows))
    memory.fill(b, 0, 8 * len(rows))
    packed = b"".join(struct.pack("<4Q", *[v & (2**64 - 1) for v in row], *[0] * (4 - len(row))) for row in rows)
    memory.write(a, packed)
    kernel = ptx.parse(text).kernels["k"]
    launch = machine.Launch(kernel, (1, 1, 1), (len(rows), 1, 1), None, 0, struct.pack("QQ", a, b), False, 1)
    machine.run(launch, memory)
    return [v & ((1 << size) - 1) for v in struct.unpack(f"<{len(rows)}Q", memory.read(b, 8 * len(rows)))]


def signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


WORDS = st.one_of(st.integers(0, 2**64 - 1), st.sampled_from([0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]))
TRIPLES = st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=8)


def cut(a, b):
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


INTEGERS = {
    "add": lambda a, b, c, n: a + b,
    "sub": lambda a, b, c, n: a - b,
    "mul.lo": lambda a, b, c, n: a * b,
    "mul.hi": lambda a, b, c, n: a * b >> n,
    "min": lambda a, b, *_: min(a, b),
    "max": lambda a, b, *_: max(a, b),
    "div": lambda a, b, *_: cut(a, b),
    "rem": lambda a, b, c, n: a if b == 0 else a - cut(a, b) * b,
    "mad.lo": lambda a, b, c, n: a * b + c,
    "mad.hi": lambda a, b, c, n: (a * b >> n) + c,
}


@settings(max_examples=8, deadline=None)
@given(TRIPLES)
@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("operation", sorted(INTEGERS))
def test_integers(operation, kind, rows):
    bits, three = int(kind[1:]), operation.startswith("mad")
    read = (lambda v: signed(v, bits)) if kind[0] == "s" else (lambda v: v & ((1 << bits) - 1))
    arguments = "%x0, %x1, %x2" if three else "%x0, %x1"
    got = compute(f"{operation}.{kind} %y, {arguments};", rows, [kind] * 3, kind)
    expected = [INTEGERS[operation](*map(read, row), bits) & ((1 << bits) - 1) for row in rows]
    assert got == expected


@settings(max_examples=20, deadline=None)
@given(TRIPLES)
def test_bits(rows):
    def words(instruction, result="b32"):
        return compute(instruction, rows, ["b32", "b32", "b32"], result)

    low = [tuple(v & 0xFFFFFFFF for v in row) for row in rows]
    assert words("popc.b32 %y, %x0;") == [bin(a).count("1") for a, _, _ in low]
    assert words("clz.b32 %y, %x0;") == [32 - a.bit_length() for a, _, _ in low]
    assert words("brev.b32 %y, %x0;") == [int(f"{a:032b}"[::-1], 2) for a, _, _ in low]
    assert words("shl.b32 %y, %x0, %x1;") == [(a << b) & 0xFFFFFFFF if b < 32 else 0 for a, b, _ in low]
    assert words("shr.s32 %y, %x0, %x1;") == [(signed(a, 32) >> min(b, 31)) & 0xFFFFFFFF for a, b, _ in low]
    assert words("shf.r.wrap.b32 %y, %x0, %x1, %x2;") == [((b << 32 | a) >> (c & 31)) & 0xFFFFFFFF for a, b, c in low]
    assert words("lop3.b32 %y, %x0, %x1, %x2, 0xe8;") == [(a & b) | (a & c) | (b & c) for a, b, c in low]
    assert words("bfe.u32 %y, %x0, 5, 9;") == [a >> 5 & 511 for a, _, _ in low]
    assert words("bfe.s32 %y, %x0, 5, 9;") == [signed(a >> 5, 9) & 0xFFFFFFFF for a, _, _ in low]
    assert words("bfi.b32 %y, %x0, %x1, 7, 25;") == [(b & 127) | (a << 7 & 0xFFFFFFFF) for a, b, _ in low]
    assert words("prmt.b32 %y, %x0, %x1, 0x3650;") == [
        sum(((b << 32 | a) >> 8 * k & 255) << 8 * i for i, k in enumerate((0, 5, 6, 3))) for a, b, _ in low
    ]
    dots = [sum(signed(a >> 8 * i, 8) * signed(b >> 8 * i, 8) for i in range(4)) + c for a, b, c in low]
    assert words("dp4a.s32.s32 %y, %x0, %x1, %x2;") == [dot & 0xFFFFFFFF for dot in dots]
    dots = [sum((a >> 16 * i & 65535) * (b >> 8 * i + 16 & 255) for i in range(2)) + c for a, b, c in low]
    assert words("dp2a.hi.u32.u32 %y, %x0, %x1, %x2;") == [dot & 0xFFFFFFFF for dot in dots]


def rounded(exact, kind, mode):
    """Round a fraction to a type by going through its neighbours."""
    value = exact.numerator / exact.denominator
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    with np.errstate(over="ignore"):
        start = dtype(value)
    near = [start, np.nextafter(start, dtype(-np.inf)), np.nextafter(start, dtype(np.inf))]
    near = sorted({float(x) for x in near if np.isfinite(float(x))})
    below = [x for x in near if Fraction(x) <= exact]
    above = [x for x in near if Fraction(x) >= exact]
    if mode == "rn":
        even = {x: int.from_bytes(dtype(x).tobytes(), "little") & 1 for x in near}
        best = min(near, key=lambda x: (abs(Fraction(x) - exact), even[x]))
    else:
        best = max(below) if mode == "rm" or (mode == "rz" and exact > 0) else min(above)
    return int.from_bytes(dtype(best).tobytes(), "little")


MODERATE = st.builds(math.ldexp, st.integers(1, 2**24 - 1), st.integers(-40, 10))
HALVES = st.builds(
    lambda m, e, s: s * math.ldexp(m, e), st.integers(1, 255), st.integers(-9, -2), st.sampled_from([1, -1])
)


def bits_of(value, kind):
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind]
    return int.from_bytes(dtype(value).tobytes(), "little")


@settings(max_examples=8, deadline=None)
@given(st.lists(st.tuples(HALVES, HALVES, HALVES), min_size=1, max_size=8), st.lists(MODERATE, min_size=3, max_size=3))
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("kind", ["f32", "f64", "f16", "bf16"])
def test_floats_are_rounded_once(kind, mode, rows, more):
    if kind in {"f32", "f64"}:
        rows = [*rows, tuple(more)]
    if kind in {"f16", "bf16"} and mode != "rn":
        return
    size = {"f32": "f32", "f64": "f64"}.get(kind, "f16")
    encoded = [tuple(bits_of(v, kind) for v in row) for row in rows]
    operations = {
        "add": lambda a, b, c: a + b,
        "sub": lambda a, b, c: a - b,
        "mul": lambda a, b, c: a * b,
        "fma": lambda a, b, c: a * b + c,
    }
    if kind in {"f32", "f64"}:
        operations["div"] = lambda a, b, c: a / b
    for name, exact in operations.items():
        arguments = "%x0, %x1, %x2" if name == "fma" else "%x0, %x1"
        got = compute(f"{name}.{mode}.{kind} %y, {arguments};", encoded, [size] * 3, size)
        for value, row in zip(got, rows, strict=True):
            truth = exact(*map(Fraction, row))
            if truth:
                assert value == rounded(truth, kind, mode), (name, row)


def test_products_with_a_power_of_two_are_added_up_exactly():
    """Also where they are subnormal, or reach the smallest or the largest normal number."""
    rng = np.random.default_rng(0)
    exponents = [-1074, -1040, -1022, -896, -500, -3, 0, 60, 500, 896, 1000]
    rows = [
        (float(x) * 2.0**shift, 2.0**exponent * (-1) ** k, float(c) * 2.0**near)
        for k, exponent in enumerate(exponents)
        for shift, near in itertools.product((0, -60, 20), (0, max(exponent, -1000), -1030))
        for x, c in rng.standard_normal((4, 2))
    ]
    rows.append((1.5, 2.0**-1074, 2.0**-1074))  # 2.5 of the smallest: 2, where a product rounded by itself makes it 3
    encoded = [tuple(bits_of(value, "f64") for value in row) for row in rows]
    got = compute("fma.rn.f64 %y, %x0, %x1, %x2;", encoded, ["f64"] * 3, "f64")
    turned = compute("fma.rn.f64 %y, %x1, %x0, %x2;", encoded, ["f64"] * 3, "f64")
    assert got == turned
    for value, (a, b, c) in zip(got, rows, strict=True):
        truth = Fraction(a) * Fraction(b) + Fraction(c)
        assert value == rounded(truth, "f64", "rn"), (a, b, c)


@pytest.mark.parametrize("kind", ["f32", "f64"])
@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_sums_that_cancel_are_zeros_of_the_right_sign(mode, kind):
    zero, negative, one, minus = (bits_of(x, kind) for x in (0.0, -0.0, 1.0, -1.0))
    cancelled = negative if mode == "rm" else zero
    rows = [(one, minus), (minus, one), (zero, negative), (zero, zero), (negative, negative)]
    expected = [cancelled, cancelled, cancelled, zero, negative]
    assert compute(f"add.{mode}.{kind} %y, %x0, %x1;", rows, [kind] * 2, kind) == expected
    opposite = [(a, b ^ negative) for a, b in rows]
    assert compute(f"sub.{mode}.{kind} %y, %x0, %x1;", opposite, [kind] * 2, kind) == expected
    fused = [(a, one, b) for a, b in rows]
    assert compute(f"fma.{mode}.{kind} %y, %x0, %x1, %x2;", fused, [kind] * 3, kind) == expected


def test_not_a_number_zeros_and_order():
    nan, one = 0x7FC01234, bits_of(1.0, "f32")
    negative_zero = 0x80000000

    def run(text, rows):
        return compute(text, rows, ["f32"] * 2, "f32")

    assert run("add.f32 %y, %x0, %x1;", [(nan, one)]) == [0x7FFFFFFF]
    assert run("min.f32 %y, %x0, %x1;", [(nan, one), (0, negative_zero)]) == [one, negative_zero]
    assert run("max.f32 %y, %x0, %x1;", [(nan, one), (negative_zero, 0)]) == [one, 0]
    assert run("min.NaN.f32 %y, %x0, %x1;", [(nan, one)]) == [0x7FFFFFFF]
    assert run("add.ftz.f32 %y, %x0, %x1;", [(1, 1)]) == [0]
    assert run("add.f32 %y, %x0, %x1;", [(1, 1)]) == [2]
    assert run("add.sat.f32 %y, %x0, %x1;", [(one, one), (nan, one)]) == [one, 0]
    for text in ("add.sat.f32 %y, %x0, %x1;", "cvt.sat.f32.f32 %y, %x0;"):
        assert run(text, [(negative_zero, negative_zero)]) == [0], text
    assert run("neg.f32 %y, %x0;", [(0, 0)]) == [negative_zero]
    halves = 0x3C003C00
    assert compute("fma.rn.f16x2 %y, %x0, %x0, %x0;", [(halves,)], ["b32"], "b32") == [0x40004000]
    for name, expected in {"lt": 0, "ltu": 1, "ne": 0, "neu": 1, "num": 0, "nan": 1}.items():
        text = f"setp.{name}.f32 %p, %x0, %x1; selp.u32 %y, 1, 0, %p;"
        assert run(text, [(nan, one)]) == [expected], name


@pytest.mark.parametrize(
    ("form", "kind", "result", "value", "expected"),
    [
        ("cvt.rni.s32.f32", "f32", "s32", bits_of(2.5, "f32"), 2),
        ("cvt.rpi.s32.f32", "f32", "s32", bits_of(-2.5, "f32"), 2**32 - 2),
        ("cvt.rzi.s32.f32", "f32", "s32", bits_of(3e10, "f32"), 2**31 - 1),
        ("cvt.rzi.u32.f64", "f64", "u32", bits_of(-1.5, "f64"), 0),
        ("cvt.rzi.s32.f32", "f32", "s32", 0x7FC00000, 0),
        ("cvt.rn.f32.u64", "u64", "f32", 2**64 - 1, bits_of(2.0**64, "f32")),
        ("cvt.rz.f32.u64", "u64", "f32", 2**64 - 1, bits_of(2.0**64 - 2.0**40, "f32")),
        ("cvt.rn.f32.s64", "s64", "f32", 2**54 + 2**30 + 1, bits_of(2.0**54 + 2.0**31, "f32")),
        ("cvt.rn.f16.f64", "f64", "f16", bits_of(1 + 2.0**-11 + 2.0**-40, "f64"), 0x3C01),
        ("cvt.rn.bf16.f32", "f32", "f16", 0x3F808001, 0x3F81),
        ("cvt.rz.f16.f32", "f32", "f16", bits_of(1e6, "f32"), 0x7BFF),
        ("cvt.s64.s32", "s32", "s64", 2**32 - 5, 2**64 - 5),
        ("cvt.sat.u8.s32", "s32", "u32", 300, 255),
        ("cvt.s8.s32", "s32", "s32", 200, 2**32 - 56),
    ],
)
def test_conversions(form, kind, result, value, expected):
    assert compute(f"{form} %y, %x0;", [(value,)], [kind], result) == [expected]


def test_directed_rounding_of_subnormals_and_overflow():
    x = np.array([2.0**-150, -(2.0**-150), 3.5e38, -3.5e38])
    assert floats.narrow(x, "f32", "rp").tolist() == [1, 0x80000000, 0x7F800000, 0xFF7FFFFF]
    assert floats.narrow(x, "f32", "rm").tolist() == [0, 0x80000001, 0x7F7FFFFF, 0xFF800000]
