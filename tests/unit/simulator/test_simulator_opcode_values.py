"""Instructions that compute, value by value against NumPy, ml_dtypes and Python's integers."""

import ml_dtypes
import numpy as np
import pytest
from ptx_kernel import elementwise, execute, own_places

from lowlevel_reduce.simulator.ptx.code import UnknownInstruction

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)
RNG = np.random.default_rng(20)
SPECIAL = np.array([0, -0.0, 1, -1, np.inf, -np.inf, np.nan, 448, 464, 480, 57344, 61440, 65504, 2.0**-9, 2.0**-10,
                    2.0**-16, 3 * 2.0**-17, 2.0**-17, 1e-30, -1e30, 3.4e38, 1.0625, 1.1875], np.float32)  # fmt: skip
FLOATS = np.r_[SPECIAL, (RNG.standard_normal(489) * 2.0 ** RNG.integers(-20, 20, 489)).astype(np.float32)]
WORDS = RNG.integers(0, 1 << 32, 256, dtype=np.uint64).astype(np.uint32)
OTHERS = np.r_[WORDS[:8], RNG.integers(0, 1 << 32, 248, dtype=np.uint64).astype(np.uint32)]


def canonical(bits, nan, value):
    return np.where(nan, bits.dtype.type(value), bits)


class TestConversions:
    @pytest.mark.parametrize(("kind", "dtype"), [("e4m3", E4M3), ("e5m2", E5M2)])
    @pytest.mark.parametrize("relu", [False, True])
    def test_to_eight_bits(self, kind, dtype, relu):
        other = FLOATS[::-1].copy()
        got = elementwise(f"cvt.rn.satfinite{'.relu' * relu}.{kind}x2.f32 %d, %0, %1;", FLOATS, other, result="u2")
        largest = float(ml_dtypes.finfo(dtype).max)

        def expected(x):
            x = np.where(x < 0, np.float32(0), x) if relu else x
            bits = np.clip(x, -largest, largest).astype(dtype).view(np.uint8)
            return canonical(bits, np.isnan(x), 0x7F)

        assert (got >> 8).tolist() == expected(FLOATS).tolist()
        assert (got & 255).tolist() == expected(other).tolist()

    @pytest.mark.parametrize(("kind", "dtype"), [("e4m3", E4M3), ("e5m2", E5M2)])
    def test_halves_to_eight_bits(self, kind, dtype):
        halves = np.arange(1 << 16, dtype=np.uint32)[::131]
        pairs = halves | (halves[::-1] << 16)
        got = elementwise(f"cvt.rn.satfinite.{kind}x2.f16x2 %d, %0;", pairs.astype(np.uint32), result="u2")
        largest = float(ml_dtypes.finfo(dtype).max)
        for shift in (0, 8):
            x = (pairs >> (2 * shift) & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32)
            with np.errstate(invalid="ignore"):
                bits = canonical(np.clip(x, -largest, largest).astype(dtype).view(np.uint8), np.isnan(x), 0x7F)
            assert (got >> shift & 255).tolist() == bits.tolist()

    @pytest.mark.parametrize(("kind", "dtype"), [("e4m3", E4M3), ("e5m2", E5M2)])
    def test_from_eight_bits(self, kind, dtype):
        low = np.arange(256, dtype=np.uint16)
        pairs = (low | low[::-1] << 8).astype(np.uint16)
        got = elementwise(f"cvt.rn.f16x2.{kind}x2 %d, %0;", pairs, result="u4")
        for shift in (0, 8):
            x = (pairs >> shift & 255).astype(np.uint8).view(dtype).astype(np.float16)
            expected = canonical(x.view(np.uint16), np.isnan(x), 0x7FFF)
            assert (got >> (2 * shift) & 0xFFFF).tolist() == expected.tolist()

    @pytest.mark.parametrize(("kind", "dtype", "nan"), [("f16", np.dtype("f2"), 0x7FFF), ("bf16", BF16, 0x7FFF)])
    @pytest.mark.parametrize("form", ["", ".relu", ".satfinite", ".relu.satfinite"])
    def test_pairs_of_halves(self, kind, dtype, nan, form):
        other = FLOATS[::-1].copy()
        largest = float(ml_dtypes.finfo(dtype).max)
        got = elementwise(f"cvt.rn{form}.{kind}x2.f32 %d, %0, %1;", FLOATS, other, result="u4")
        single = elementwise(f"cvt.rn{form}.{kind}.f32 %d, %0;", FLOATS, result="u2")

        def expected(x):
            with np.errstate(over="ignore"):
                rounded = x.astype(dtype).astype(np.float64)
            if "satfinite" in form:
                rounded = np.clip(rounded, -largest, largest)
            bits = rounded.astype(dtype).view(np.uint16)
            if "relu" in form:
                bits = np.where(rounded < 0, 0, np.where(rounded == 0, 0, bits)).astype(np.uint16)
            return canonical(bits, np.isnan(x), nan)

        assert (got >> 16).tolist() == expected(FLOATS).tolist()
        assert (got & 0xFFFF).tolist() == expected(other).tolist()
        assert single.tolist() == expected(FLOATS).tolist()

    @pytest.mark.parametrize("mode", ["rn", "rz", "rna"])
    def test_tf32(self, mode):
        x = FLOATS[np.isfinite(FLOATS)]
        x = np.r_[x, np.float32(1) + np.float32(2.0**-11) * np.arange(9, dtype=np.float32)]
        got = elementwise(f"cvt.{mode}.tf32.f32 %d, %0;", x, result="f4").astype(np.float64)
        step = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x.astype("f8")), 2.0**-126))) - 10)
        scaled = x.astype("f8") / step
        rounded = {"rn": np.rint, "rz": np.trunc, "rna": lambda v: np.copysign(np.floor(abs(v) + 0.5), v)}[mode](scaled)
        assert got.tolist() == (rounded * step).astype("f4").astype("f8").tolist()
        assert elementwise("cvt.rn.relu.tf32.f32 %d, %0;", np.float32([-2, 3, np.nan]), result="u4").tolist() == [
            0, 0x40400000, 0x7FFFFFFF,
        ]  # fmt: skip

    @pytest.mark.parametrize(
        ("form", "highest"),
        [("s32.f32", 0), ("u32.f32", 0), ("u16.f32", 0), ("s64.f32", 1 << 63), ("u64.f32", 1 << 63),
         ("s32.f64", 1 << 31), ("u32.f64", 1 << 31), ("s16.f64", 1 << 15), ("s64.f64", 1 << 63), ("u64.f64", 1 << 63)],
    )  # fmt: skip
    def test_not_a_number_to_an_integer(self, form, highest):
        """Zero, but where one of the two has 64 bits the highest bit: (long long)x and (int)y of a kernel's NaN."""
        values = np.array([np.nan, -np.nan, 1], f"f{int(form[-2:]) // 8}")
        got = elementwise(f"cvt.rzi.{form} %d, %0;", values, result=f"u{int(form[1:3]) // 8}")
        assert got.tolist() == [highest, highest, 1]


class TestExtremes:
    @pytest.mark.parametrize("operation", ["min", "max"])
    def test_of_three(self, operation):
        x, y, z = (RNG.permutation(FLOATS) for _ in range(3))
        function = {"min": np.fmin, "max": np.fmax}[operation]
        with_nan = {"min": np.minimum, "max": np.maximum}[operation]
        got = elementwise(f"{operation}.f32 %d, %0, %1, %2;", x, y, z, result="f4")
        assert np.array_equal(got, function(function(x, y), z), equal_nan=True)
        got = elementwise(f"{operation}.NaN.f32 %d, %0, %1, %2;", x, y, z, result="f4")
        assert np.array_equal(got, with_nan(with_nan(x, y), z), equal_nan=True)
        got = elementwise(f"{operation}.NaN.f32 %d, %0, %1;", x, y, result="f4")
        assert np.array_equal(got, with_nan(x, y), equal_nan=True)

    @pytest.mark.parametrize("operation", ["min", "max"])
    def test_with_signs_apart(self, operation):
        x, y = RNG.permutation(FLOATS), RNG.permutation(FLOATS)
        keep = ~(np.isnan(x) | np.isnan(y))
        x, y = x[keep], y[keep]
        got = elementwise(f"{operation}.xorsign.abs.f32 %d, %0, %1;", x, y, result="f4")
        magnitude = {"min": np.minimum, "max": np.maximum}[operation](abs(x), abs(y))
        negative = np.signbit(x) ^ np.signbit(y)
        assert got.tobytes() == np.where(negative, -magnitude, magnitude).astype("f4").tobytes()

    def test_of_sixteen_bits_and_at_zero(self):
        for kind, dtype in (("s16", "i2"), ("u16", "u2")):
            a, b = WORDS.view(dtype), OTHERS.view(dtype)
            for name, function in (("add", np.add), ("min", np.minimum), ("max", np.maximum)):
                got = elementwise(f"{name}.{kind}x2 %d, %0, %1;", WORDS, OTHERS, result="u4")
                assert got.view(dtype).tolist() == function(a, b).tolist()
        got = elementwise("max.relu.s32 %d, %0, %1;", WORDS, OTHERS, result="i4")
        assert got.tolist() == np.maximum(np.maximum(WORDS.view("i4"), OTHERS.view("i4")), 0).tolist()


class TestPacked:
    def test_pairs_of_floats(self):
        x, y, z = (RNG.standard_normal((64, 2)).astype("f4") for _ in range(3))
        words = [v.view("u8").ravel() for v in (x, y, z)]
        wide = [v.astype(np.longdouble) for v in (x, y, z)]
        for form, expected in (
            ("add.rn.f32x2 %d, %0, %1", x + y),
            ("sub.rn.f32x2 %d, %0, %1", x - y),
            ("mul.rn.f32x2 %d, %0, %1", x * y),
            ("fma.rn.f32x2 %d, %0, %1, %2", (wide[0] * wide[1] + wide[2]).astype("f4")),
        ):
            got = elementwise(form + ";", *words, result="u8")
            assert got.tobytes() == expected.tobytes(), form

    @pytest.mark.parametrize(("kind", "dtype"), [("f16x2", np.dtype("f2")), ("bf16x2", BF16)])
    def test_halves(self, kind, dtype):
        rng = np.random.default_rng(21)
        x, y, z = (rng.standard_normal((64, 2)).astype(dtype) for _ in range(3))
        words = [v.view("u4").ravel() for v in (x, y, z)]
        wide = [v.astype(np.float64) for v in (x, y, z)]
        exact = wide[0] * wide[1] + wide[2]  # in float64: 22 bits and a shift of a few
        expected = exact.astype("f4").astype(dtype) if dtype == BF16 else exact.astype(dtype)
        for relu in ("", ".relu"):
            got = elementwise(f"fma.rn{relu}.{kind} %d, %0, %1, %2;", *words, result="u4")
            kept = np.where(expected.astype("f4") < 0, dtype.type(0), expected) if relu else expected
            assert got.tobytes() == kept.astype(dtype).tobytes()

    def test_a_nan_passes_relu(self):
        pair = np.array([0x7E00C000], "u4")
        assert elementwise("fma.rn.relu.f16x2 %d, %0, 0x3C003C00, 0;", pair, result="u4").tolist() == [0x7FFF0000]

    @pytest.mark.parametrize(
        ("name", "function"),
        [("ex2", np.exp2), ("lg2", np.log2), ("sin", np.sin), ("cos", np.cos), ("tanh", np.tanh), ("rsqrt", None)],
    )
    def test_approximations_are_the_rounded_values(self, name, function):
        x = np.abs(RNG.standard_normal(64)).astype("f4") + np.float32(0.01)
        got = elementwise(f"{name}.approx.f32 %d, %0;", x, result="f4")
        exact = 1 / np.sqrt(x.astype("f8")) if function is None else function(x.astype("f8"))
        assert got.tobytes() == exact.astype("f4").tobytes()

    @pytest.mark.parametrize(("kind", "one"), [("f16", 0x3C00), ("bf16", 0x3F80), ("f32", 0x3F800000), ("u32", -1)])
    def test_set_gives_one_or_all_bits(self, kind, one):
        width = {"f16": 2, "bf16": 2}.get(kind, 4)
        got = elementwise(f"set.gt.{kind}.f32 %d, %0, 0f3F800000;", np.array([2, 1, np.nan], "f4"), result=f"u{width}")
        assert got.tolist() == [one & (1 << 8 * width) - 1, 0, 0]

    @pytest.mark.parametrize("flush", ["", ".ftz"])
    def test_approximate_division_by_the_largest_numbers_is_zero(self, flush):
        """As the manual has it, of x / y with --use_fast_math and of __fdividef."""
        a = np.array([1e38, -1e38, np.inf, np.nan, 1e38, 6], np.float32)
        b = np.array([2e38, 2e38, 2e38, 2e38, 2.0**126, 3], np.float32)
        got = elementwise(f"div.approx{flush}.f32 %d, %0, %1;", a, b, result="f4")
        np.testing.assert_array_equal(got, np.array([0, -0.0, np.nan, np.nan, a[4] / b[4], 2], np.float32))
        assert np.signbit(got[1])

    def test_tests_and_selections(self):
        x = np.r_[SPECIAL, np.float32([1e-40, -1e-40])]
        tiny = np.finfo(np.float32).tiny
        forms = {
            "finite": np.isfinite(x), "infinite": np.isinf(x), "number": ~np.isnan(x), "notanumber": np.isnan(x),
            "normal": np.isfinite(x) & (abs(x) >= tiny), "subnormal": (x != 0) & (abs(x) < tiny),
        }  # fmt: skip
        for form, expected in forms.items():
            code = f"testp.{form}.f32 %p1, %0; selp.u32 %d, 1, 0, %p1;".replace("%0", "%f1")
            got = elementwise("mov.b32 %f1, %0; " + code, x, result="u4")
            assert got.tolist() == expected.astype("u4").tolist(), form
        got = elementwise("slct.u32.s32 %d, %0, %1, %2;", WORDS, OTHERS, RNG.permutation(WORDS), result="u4")
        assert set(got.tolist()) <= set(WORDS.tolist()) | set(OTHERS.tolist())
        signs = np.array([5, -5, 0], "i4")
        assert elementwise("slct.u32.s32 %d, 1, 2, %0;", signs, result="u4").tolist() == [1, 2, 1]
        a, b = np.float32([1, -2, 3]), np.float32([-1, -0.0, 5])
        got = elementwise("copysign.f32 %d, %0, %1;", a, b, result="f4")
        assert got.tolist() == np.copysign(b, a).tolist()

    @pytest.mark.parametrize(
        ("form", "expected"),
        [("abs.ftz.f32 %d, %0;", [0, 0, 1, 0]), ("neg.ftz.f32 %d, %0;", [-0.0, 0, -1, -0.0]),
         ("slct.ftz.f32.f32 %d, 0f3F800000, 0f40000000, %0;", [1, 1, 1, 1]),
         ("setp.gt.ftz.f32 %p1, %0, 0f00000000; selp.f32 %d, 0f3F800000, 0f00000000, %p1;", [0, 0, 1, 0]),
         ("setp.eq.and.ftz.f32 %p1, %0, 0f00000000, 1; selp.f32 %d, 0f3F800000, 0f00000000, %p1;", [1, 1, 0, 1]),
         ("cvt.rpi.ftz.s32.f32 %r1, %0; cvt.rn.f32.s32 %d, %r1;", [0, 0, 1, 0]),
         ("cvt.rmi.ftz.s32.f32 %r1, %0; cvt.rn.f32.s32 %d, %r1;", [0, 0, 1, 0])],
    )  # fmt: skip
    def test_subnormals_are_flushed_before_they_are_looked_at(self, form, expected):
        """What --ftz=true makes of fabsf, of comparisons, and of conversions to integers."""
        subnormal = np.array([1e-40, -1e-40, 1, 0], np.float32)
        got = elementwise(form, subnormal, result="f4")
        assert got.view("u4").tolist() == np.array(expected, np.float32).view("u4").tolist()

    def test_subnormal_halves_are_flushed_too(self):
        halves = np.array([0x0001, 0x8001, 0x3C00], "u2")
        assert elementwise("neg.ftz.f16 %d, %0;", halves, result="u2").tolist() == [0x8000, 0, 0xBC00]
        form = "setp.ne.ftz.f16 %p1, %0, 0; selp.b16 %d, 1, 0, %p1;"
        assert elementwise(form, halves, result="u2").tolist() == [0, 0, 1]


class TestIntegers:
    def test_carries_through_128_bits(self):
        a, b = (RNG.integers(0, 1 << 32, (64, 4), dtype=np.uint64).astype("u4") for _ in range(2))
        a[:8], b[:8] = 0xFFFFFFFF, np.array([[1, 0, 0, 0]] * 4 + [[0xFFFFFFFF] * 4] * 4)
        for name, sign in (("add", 1), ("sub", -1)):
            body = own_places(16, 16, 16) + "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd10];"
            body += "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd11];"
            body += f"{name}.cc.u32 %r30, %r10, %r20; {name}c.cc.u32 %r31, %r11, %r21;"
            body += f"{name}c.cc.u32 %r32, %r12, %r22; {name}c.u32 %r33, %r13, %r23;"
            body += "st.global.v4.u32 [%rd12], {%r30, %r31, %r32, %r33};"
            found, _ = execute(body, a, b, np.zeros_like(a), threads=64)
            for i in range(64):
                x, y, z = (sum(int(w) << 32 * j for j, w in enumerate(rows[i])) for rows in (a, b, found[2]))
                assert z == (x + sign * y) % (1 << 128)

    def test_products_of_64_bits_by_carries(self):
        a, b = WORDS.astype("u8") << np.uint64(32) | OTHERS, OTHERS.astype("u8") << np.uint64(32) | WORDS
        code = """
            mov.b64 {%r1, %r2}, %0; mov.b64 {%r3, %r4}, %1; mul.lo.u32 %r5, %r1, %r3; mul.hi.u32 %r6, %r1, %r3;
            mad.lo.cc.u32 %r6, %r1, %r4, %r6; madc.hi.u32 %r7, %r1, %r4, 0;
            mad.lo.cc.u32 %r6, %r2, %r3, %r6; madc.hi.cc.u32 %r7, %r2, %r3, %r7; addc.u32 %r8, 0, 0;
            mad.lo.cc.u32 %r7, %r2, %r4, %r7; madc.hi.u32 %r8, %r2, %r4, %r8; mov.b64 %d, {%r7, %r8};
        """
        got = elementwise(code, a, b, result="u8")
        assert got.tolist() == [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]

    @pytest.mark.parametrize("mode", ["", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"])
    def test_permutations(self, mode):
        selector = np.arange(256, dtype=np.uint32) * np.uint32(0x0101) if not mode else np.arange(256, dtype=np.uint32)
        form = f"prmt.b32{'.' * bool(mode)}{mode} %d, %0, %1, %2;"
        got = elementwise(form, WORDS, OTHERS, selector, result="u4")
        rows = {
            "f4e": ["3210", "4321", "5432", "6543"], "b4e": ["5670", "6701", "7012", "0123"],
            "rc8": ["0000", "1111", "2222", "3333"], "ecl": ["3210", "3211", "3222", "3333"],
            "ecr": ["0000", "1110", "2210", "3210"], "rc16": ["1010", "3232", "1010", "3232"],
        }  # fmt: skip
        for i in range(256):
            source = int(WORDS[i]).to_bytes(4, "little") + int(OTHERS[i]).to_bytes(4, "little")
            if mode:
                expected = bytes(source[int(digit)] for digit in rows[mode][i & 3][::-1])
            else:
                digits = [int(selector[i]) >> 4 * j & 15 for j in range(4)]
                expected = bytes((255 if source[d & 7] > 127 else 0) if d & 8 else source[d & 7] for d in digits)
            assert int(got[i]).to_bytes(4, "little") == expected

    @pytest.mark.parametrize("selector", [0x3210, 0x7654, 0x5140, 0x0000, 0xBA98, 0x3F08, 0x8888])
    def test_permutations_by_a_constant(self, selector):
        selectors = np.full(256, selector, np.uint32)
        expected = elementwise("prmt.b32 %d, %0, %1, %2;", WORDS, OTHERS, selectors, result="u4")
        got = elementwise(f"prmt.b32 %d, %0, %1, {selector:#x};", WORDS, OTHERS, result="u4")
        assert got.tolist() == expected.tolist()

    @pytest.mark.parametrize("kind", ["b16", "b32", "b64", "u32", "s32", "u64", "s64"])
    @pytest.mark.parametrize("amount", [0, 1, 15, 31, 32, 63, 64, 200])
    def test_shifts_by_a_constant(self, kind, amount):
        bits = int(kind[1:])
        patterns = (WORDS.astype("u8") << np.uint64(32) | OTHERS).astype(f"u{bits // 8}")
        opcodes = ["shl", "shr"] if kind[0] == "b" else ["shr"]
        for opcode in opcodes:
            got = elementwise(f"{opcode}.{kind} %d, %0, {amount};", patterns, result=f"u{bits // 8}")
            values = patterns.view(f"i{bits // 8}") if kind[0] == "s" else patterns
            shift = (lambda v: v << amount) if opcode == "shl" else (lambda v: v >> amount)
            assert got.tolist() == [shift(int(v)) & ((1 << bits) - 1) for v in values]

    def test_small_ones(self):
        a, b = WORDS.astype("i8"), OTHERS.astype("i8")
        signed = [((v & 0xFFFFFF) ^ 0x800000) - 0x800000 for v in (a, b)]
        plain = [v & 0xFFFFFF for v in (a, b)]
        for kind, (x, y) in (("s32", signed), ("u32", plain)):
            low = elementwise(f"mul24.lo.{kind} %d, %0, %1;", WORDS, OTHERS, result="u4")
            high = elementwise(f"mad24.hi.{kind} %d, %0, %1, 5;", WORDS, OTHERS, result="u4")
            assert low.tolist() == [int(p) * int(q) & 0xFFFFFFFF for p, q in zip(x, y, strict=True)]
            assert high.tolist() == [(int(p) * int(q) >> 16) + 5 & 0xFFFFFFFF for p, q in zip(x, y, strict=True)]
        count = np.arange(64, dtype="u4")
        got = elementwise("bmsk.clamp.b32 %d, 4, %0;", count, result="u4")
        assert got.tolist() == [(((1 << min(n, 32)) - 1) << 4) & 0xFFFFFFFF for n in range(64)]
        got = elementwise("szext.wrap.s32 %d, 0xAB, %0;", count, result="i4")
        assert got[[4, 8, 9]].tolist() == [0xB - 16, 0xAB - 256, 0xAB]
        assert elementwise("szext.clamp.u32 %d, -1, %0;", count, result="u4")[[0, 8, 40]].tolist() == [
            0,
            255,
            2**32 - 1,
        ]

    @pytest.mark.parametrize(
        "form",
        ["add.cc.f32 %f1, %f1, %f2", "fma.rn.relu.f32 %f1, %f1, %f2, %f3", "cvt.rn.e4m3x2.f32 %h1, %f1, %f2",
         "min.xorsign.f32 %f1, %f2, %f3", "testp.odd.f32 %p1, %f1", "prmt.b32.f8e %r1, %r2, %r3, %r4",
         "mbarrier.frob.b64 [%rd0], 1", "wmma.frob.sync.aligned.m16n16k16.f16 %r1", "add.f32x2 %r1, %r2, %r3",
         "redux.sync.add.f32 %f1, %f2, -1",
         "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1}",
         "cp.async.bulk.tensor.2d.shared.global [%rd0], [%rd0], [%rd1]"],
    )  # fmt: skip
    def test_forms_that_do_not_exist_are_named(self, form):
        with pytest.raises(UnknownInstruction, match=r"PTX line \d+") as caught:
            execute(form + ";", np.zeros(64))
        assert caught.value.text == form
