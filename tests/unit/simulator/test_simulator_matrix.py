"""Matrices held by warps, against fragments written down from the PTX manual and products in NumPy."""

import ml_dtypes
import numpy as np
import pytest
from ptx_kernel import execute, fault

BF16 = np.dtype(ml_dtypes.bfloat16)
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)


def tf32(x):
    return (np.asarray(x, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


# Row and column of element i in lane l, as in the tables of the manual.
def half_a_k16(lane, i):
    row = lane // 4 if (i < 2 or 4 <= i < 6) else lane // 4 + 8
    return row, lane % 4 * 2 + (i & 1) + (8 if i >= 4 else 0)


def half_b_k16(lane, i):
    return lane % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), lane // 4


def half_a_k8(lane, i):
    return (lane // 4 if i < 2 else lane // 4 + 8), lane % 4 * 2 + (i & 1)


def half_b_k8(lane, i):
    return lane % 4 * 2 + i, lane // 4


def accumulator(lane, i):
    return (lane // 4 if i < 2 else lane // 4 + 8), lane % 4 * 2 + (i & 1)


def tf32_a_k8(lane, i):
    return (lane // 4 if i in (0, 2) else lane // 4 + 8), lane % 4 + (4 if i >= 2 else 0)


def tf32_b_k8(lane, i):
    return lane % 4 + 4 * i, lane // 4


def tf32_a_k4(lane, i):
    return lane // 4 + 8 * i, lane % 4


def tf32_b_k4(lane, i):
    return lane % 4, lane // 4


def byte_a_k32(lane, i):
    row = lane // 4 if (i < 4 or 8 <= i < 12) else lane // 4 + 8
    return row, lane % 4 * 4 + (i & 3) + (16 if i >= 8 else 0)


def byte_b_k32(lane, i):
    return lane % 4 * 4 + (i & 3) + (16 if i >= 4 else 0), lane // 4


def byte_a_k16(lane, i):
    return (lane // 4 if i < 4 else lane // 4 + 8), lane % 4 * 4 + (i & 3)


def byte_b_k16(lane, i):
    return lane % 4 * 4 + i, lane // 4


def double_a(lane, i):
    return lane // 4, lane % 4


def double_b(lane, i):
    return lane % 4, lane // 4


def double_c(lane, i):
    return lane // 4, lane % 4 * 2 + i


def spread(matrix, place):
    """Return the elements of each lane."""
    count = matrix.size // 32
    return np.array([[matrix[place(lane, i)] for i in range(count)] for lane in range(32)], matrix.dtype)


def gathered(lanes, place, shape):
    matrix = np.zeros(shape, lanes.dtype)
    for lane in range(32):
        for i in range(lanes.shape[1]):
            matrix[place(lane, i)] = lanes[lane, i]
    return matrix


def multiply(form, a, b, c, places, result):
    """Execute one mma of a warp."""
    place_a, place_b, place_c = places
    lanes = [spread(a, place_a), spread(b, place_b), spread(c, place_c), np.zeros((32, c.size // 32), result)]
    wide = a.dtype.itemsize == 8
    width, name = (8, "rd") if wide else (4, "r")
    code, used, names = "", 20, []
    for number, array in enumerate(lanes):
        count = array.nbytes // 32 // width
        row = count * width
        code += f"mul.wide.u32 %rd15, %r0, {row}; add.s64 %rd{4 + number}, %rd15, %rd{number};\n"
        mine = [f"%{name}{used + i}" for i in range(count)]
        used += count
        names.append("{" + ", ".join(mine) + "}")
        if number < 3:
            code += "".join(f"ld.global.b{8 * width} {n}, [%rd{4 + number}+{width * i}];" for i, n in enumerate(mine))
    code += f"\nmma.sync.aligned.{form} {names[3]}, {names[0]}, {names[1]}, {names[2]};\n"
    for i, n in enumerate(names[3].strip("{}").split(", ")):
        code += f"st.global.b{8 * width} [%rd7+{width * i}], {n};"
    found, counters = execute(code, *lanes)
    assert counters.instructions_by_class["matrix"] == 1
    return gathered(found[3], place_c, c.shape)


def chain(a, b, c):
    """Return the product by the rounding model: exact products added in float32, k ascending."""
    total = np.asarray(c, np.float32)
    for k in range(a.shape[1]):
        product = np.asarray(a[:, k, None], np.longdouble) * np.asarray(b[None, k, :], np.longdouble)
        total = (total.astype(np.longdouble) + product).astype(np.float32)
    return total


HALVES = [
    ("m16n8k16", np.dtype("f2"), "f16", (half_a_k16, half_b_k16, accumulator), 16),
    ("m16n8k8", np.dtype("f2"), "f16", (half_a_k8, half_b_k8, accumulator), 8),
    ("m16n8k16", BF16, "bf16", (half_a_k16, half_b_k16, accumulator), 16),
    ("m16n8k8", BF16, "bf16", (half_a_k8, half_b_k8, accumulator), 8),
    ("m16n8k32", E4M3, "e4m3", (byte_a_k32, byte_b_k32, accumulator), 32),
    ("m16n8k32", E5M2, "e5m2", (byte_a_k32, byte_b_k32, accumulator), 32),
]


@pytest.mark.parametrize(("shape", "dtype", "kind", "places", "depth"), HALVES)
def test_narrow_floats_into_float32(shape, dtype, kind, places, depth):
    rng = np.random.default_rng(depth)
    a, b = rng.standard_normal((16, depth)).astype(dtype), rng.standard_normal((depth, 8)).astype(dtype)
    c = rng.standard_normal((16, 8)).astype(np.float32)
    got = multiply(f"{shape}.row.col.f32.{kind}.{kind}.f32", a, b, c, places, np.float32)
    assert got.tobytes() == chain(a.astype("f8"), b.astype("f8"), c).tobytes()


@pytest.mark.parametrize("case", HALVES[:2])
def test_half_accumulators(case):
    shape, dtype, _, places, depth = case
    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((16, depth)).astype(dtype), rng.standard_normal((depth, 8)).astype(dtype)
    c = rng.standard_normal((16, 8)).astype(np.float16)
    got = multiply(f"{shape}.row.col.f16.f16.f16.f16", a, b, c, places, np.float16)
    assert got.tobytes() == chain(a, b, c).astype(np.float16).tobytes()


@pytest.mark.parametrize(
    ("shape", "places", "depth"),
    [
        ("m16n8k8", (tf32_a_k8, tf32_b_k8, accumulator), 8),
        ("m16n8k4", (tf32_a_k4, tf32_b_k4, accumulator), 4),
    ],
)
def test_tf32_looks_at_19_bits(shape, places, depth):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((16, depth)).astype("f4"), rng.standard_normal((depth, 8)).astype("f4")
    c = rng.standard_normal((16, 8)).astype("f4")
    got = multiply(f"{shape}.row.col.f32.tf32.tf32.f32", a, b, c, places, np.float32)
    assert got.tobytes() == chain(tf32(a), tf32(b), c).tobytes()


def test_doubles():
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-(2**20), 2**20, shape).astype("f8") for shape in ((8, 4), (4, 8)))
    c = rng.integers(-100, 100, (8, 8)).astype("f8")
    got = multiply("m8n8k4.row.col.f64.f64.f64.f64", a, b, c, (double_a, double_b, double_c), np.float64)
    assert got.tobytes() == (a @ b + c).tobytes()
    one, tiny = np.zeros((8, 4)), np.zeros((4, 8))
    one[:, 0], tiny[0, :] = 1 + 2.0**-30, 1 - 2.0**-30
    got = multiply("m8n8k4.row.col.f64.f64.f64.f64", one, tiny, -np.ones((8, 8)), (double_a, double_b, double_c), "f8")
    assert (got == -(2.0**-60)).all()  # a product that was rounded would leave zero


@pytest.mark.parametrize(
    ("shape", "places", "depth"),
    [
        ("m16n8k32", (byte_a_k32, byte_b_k32, accumulator), 32),
        ("m16n8k16", (byte_a_k16, byte_b_k16, accumulator), 16),
    ],
)
@pytest.mark.parametrize(("left", "right"), [("s8", "s8"), ("u8", "s8"), ("u8", "u8")])
def test_bytes(shape, places, depth, left, right):
    rng = np.random.default_rng(5)
    types = {"s8": np.int8, "u8": np.uint8}
    a, b = (
        rng.integers(np.iinfo(types[k]).min, np.iinfo(types[k]).max + 1, size).astype(types[k])
        for k, size in ((left, (16, depth)), (right, (depth, 8)))
    )
    c = rng.integers(-(2**31), 2**31, (16, 8)).astype(np.int32)
    exact = a.astype("i8") @ b.astype("i8") + c
    for modifier, expected in (("", exact), (".satfinite", np.clip(exact, -(2**31), 2**31 - 1))):
        got = multiply(f"{shape}.row.col{modifier}.s32.{left}.{right}.s32", a, b, c, places, np.int32)
        assert got.tobytes() == expected.astype(np.int32).tobytes()


def test_a_matrix_needs_the_whole_warp():
    body = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd1, %fd2}, {%fd3}, {%fd4}, {%fd5, %fd6};"
    assert "all lanes" in fault(body, np.zeros(1), threads=16).reason


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("turned", [False, True])
def test_ldmatrix_stmatrix_movmatrix(count, turned):
    matrices = np.random.default_rng(count).integers(0, 1 << 16, (count, 8, 8)).astype(np.uint16)
    names = ", ".join(f"%r{10 + i}" for i in range(count))
    trans = ".trans" if turned else ""
    body = f"""
        and.b32 %r1, %r0, {8 * count - 1}; mul.wide.u32 %rd4, %r1, 16; add.s64 %rd5, %rd4, %rd0;
        ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%rd5];
        mov.u32 %r6, s; shl.b32 %r7, %r1, 4; add.s32 %r6, %r6, %r7;
        setp.lt.u32 %p1, %r0, {8 * count}; @%p1 st.shared.v4.b32 [%r6], {{%r2, %r3, %r4, %r5}}; bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{names}}}, [%r6];
        mul.wide.u32 %rd6, %r0, {4 * count}; add.s64 %rd6, %rd6, %rd1;
    """
    body += "".join(f"st.global.b32 [%rd6+{4 * i}], %r{10 + i};" for i in range(count))
    body += f"bar.sync 0; stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [%r6], {{{names}}}; bar.sync 0;"
    body += """
        ld.shared.v4.b32 {%r2, %r3, %r4, %r5}, [%r6]; add.s64 %rd5, %rd4, %rd2;
        st.global.v4.b32 [%rd5], {%r2, %r3, %r4, %r5};
        movmatrix.sync.aligned.m8n8.trans.b16 %r20, %r10; mul.wide.u32 %rd7, %r0, 4; add.s64 %rd7, %rd7, %rd3;
        st.global.b32 [%rd7], %r20;
    """
    lanes, back, other = np.zeros((32, count, 2), "u2"), np.zeros_like(matrices), np.zeros((32, 2), "u2")
    found, _ = execute(body, matrices, lanes, back, other, declarations=f".shared .align 16 .b8 s[{128 * count}];")
    seen = matrices.transpose(0, 2, 1) if turned else matrices
    for lane in range(32):
        for i in range(count):
            pair = seen[i, lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2]
            assert found[1][lane, i].tolist() == pair.tolist()
        assert found[3][lane].tolist() == seen[0].T[lane // 4, lane % 4 * 2 : lane % 4 * 2 + 2].tolist()
    assert found[2].tobytes() == seen.tobytes()


@pytest.mark.parametrize("layouts", [("row", "col"), ("col", "row")])
@pytest.mark.parametrize(
    ("shape", "extents", "registers"),
    [("m16n16k16", (16, 16, 16), (8, 8)), ("m32n8k16", (32, 8, 16), (8, 8)), ("m8n32k16", (8, 32, 16), (8, 8))],
)
def test_wmma(layouts, shape, extents, registers):
    m, n, k = extents
    rng = np.random.default_rng(11)
    a, b = rng.standard_normal((m, k)).astype("f2"), rng.standard_normal((k, n)).astype("f2")
    c = rng.standard_normal((m, n)).astype("f4")

    def stored(matrix, layout, pitch):
        lines = matrix if layout == "row" else matrix.T
        padded = np.full((lines.shape[0], pitch), -7, matrix.dtype)
        padded[:, : lines.shape[1]] = lines
        return padded

    def names(first, count):
        return "{" + ", ".join(f"%{first[0]}{int(first[1:]) + i}" for i in range(count)) + "}"

    left, right = layouts
    body = f"""
        wmma.load.a.sync.aligned.{left}.{shape}.global.f16 {names("r10", registers[0])}, [%rd0], 40;
        wmma.load.b.sync.aligned.{right}.{shape}.global.f16 {names("r20", registers[1])}, [%rd1], 40;
        wmma.load.c.sync.aligned.row.{shape}.f32 {names("f10", 8)}, [%rd2], 32;
        wmma.mma.sync.aligned.{left}.{right}.{shape}.f32.f32 {names("f20", 8)}, {names("r10", 8)}, {names("r20", 8)},
            {names("f10", 8)};
        wmma.store.d.sync.aligned.col.{shape}.global.f32 [%rd3], {names("f20", 8)}, 36;
    """
    arrays = [stored(a, left, 40), stored(b, right, 40), stored(c, "row", 32), np.zeros((n, 36), "f4")]
    found, _ = execute(body, *arrays)
    assert found[3][:, :m].T.tobytes() == chain(a, b, c).tobytes()
