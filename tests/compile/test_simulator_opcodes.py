"""Instructions as NVRTC emits them, and as ptxas accepts them in inline assembly, on the simulated machine."""

import struct
from functools import cache

import numpy as np
import pytest

from lowlevel_reduce.compiler import Program, compile_program, supported_architectures
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.simulator import machine, ptx

try:
    ARCHITECTURES = supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

ALL = ("sm_75", "sm_80", "sm_90", "sm_100")
RNG = np.random.default_rng(33)


def since(first):
    """Return the architectures of this module from one on."""
    return [name for name in ALL if int(name[3:]) >= int(first[3:])]


@cache
def compiled(source, architecture):
    program = Program("k", source)
    compile_program(program, architecture, output="cubin")  # ptxas knows all of it
    return ptx.parse(compile_program(program, architecture, output="ptx").data.decode())


def run(source, architecture, *arguments, threads=32, blocks=1, cluster=None, seed=None):
    """Run kernel k on arrays, which are copied back, and integers."""
    if architecture.rstrip("a") not in ARCHITECTURES:
        pytest.skip(f"this NVRTC does not know {architecture}")
    kernel, memory = compiled(source, architecture).kernels["k"], machine.GlobalMemory()
    block, places = bytearray(kernel.parameter_bytes), []
    for parameter, argument in zip(kernel.parameters, arguments, strict=True):
        value = argument
        if isinstance(argument, np.ndarray):
            value = memory.allocate(argument.nbytes)
            memory.write(value, argument.tobytes())
            places.append((value, argument))
        struct.pack_into({4: "i", 8: "Q"}[parameter.size], block, parameter.offset, value)
    launch = machine.Launch(
        kernel, (blocks, 1, 1), (threads, 1, 1), cluster and (cluster, 1, 1), 0, bytes(block), False, 8, seed
    )
    counters = machine.run(launch, memory)
    found = [np.frombuffer(memory.read(at, a.nbytes), a.dtype).reshape(a.shape) for at, a in places]
    return found, counters


CALLS = r"""
struct Pair { double sum; int count; };
__device__ unsigned int calls = 5;
__device__ float table[3][2] = {{1, 2}, {3, 4}, {5, 6}};
__constant__ float weights[4] = {1.f, 2.f, 4.f, 8.f};
__device__ unsigned int* pointer = &calls;

__noinline__ __device__ Pair combine(Pair a, Pair b) {
    atomicAdd(&calls, 1u);
    a.sum += b.sum;
    a.count += b.count;
    return a;
}
__noinline__ __device__ Pair tree(Pair mine) {
    for (int lane = 16; lane; lane >>= 1) {
        Pair other = {__shfl_down_sync(~0u, mine.sum, lane), __shfl_down_sync(~0u, mine.count, lane)};
        mine = combine(mine, other);
    }
    return mine;
}
extern "C" __global__ void k(const float* in, Pair* out, float* more, int n) {
    Pair mine = {in[threadIdx.x], in[threadIdx.x] > 0.f};
    mine = tree(mine);
    if (threadIdx.x % 32 == 0) out[threadIdx.x / 32] = mine;
    __syncthreads();
    more[threadIdx.x] = weights[(threadIdx.x + n) & 3] * table[threadIdx.x % 3][n & 1] + *pointer;
}
"""


@pytest.mark.parametrize("architecture", ALL)
def test_functions_structures_and_variables(architecture):
    values = RNG.standard_normal(64).astype("f4")
    pairs = np.zeros(2, [("sum", "f8"), ("count", "i4"), ("padding", "i4")])
    found, _ = run(CALLS, architecture, values, pairs, np.zeros(64, "f4"), 7, threads=64)
    wide = values.astype("f8").reshape(2, 32)
    positive = (values > 0).reshape(2, 32).astype(int)
    for lane in (16, 8, 4, 2, 1):
        wide, positive = wide[:, :lane] + wide[:, lane : 2 * lane], positive[:, :lane] + positive[:, lane : 2 * lane]
    assert found[1]["sum"].tolist() == wide[:, 0].tolist()
    assert found[1]["count"].tolist() == positive[:, 0].tolist()
    weights, table = [1, 2, 4, 8], [[1, 2], [3, 4], [5, 6]]
    expected = [weights[(i + 7) & 3] * table[i % 3][1] + 5 + 5 * 64 for i in range(64)]
    assert found[2].tolist() == expected


SWITCH = r"""
extern "C" __global__ void k(const int* in, int* out) {
    int x = in[threadIdx.x], y;
    switch (x) {
        case 0: y = __popc(x + 77); break;
        case 1: y = x * 17 + clock() * 0; break;
        case 2: y = atomicAdd(out + 64, 1) * 0 + 5; break;
        case 3: y = __clz(x); break;
        case 4: y = __brev(x); break;
        case 5: y = __ffs(x << 7); atomicAdd(out + 64, 2); break;
        case 6: y = x / 3 - 100; atomicSub(out + 65, 3); break;
        default: y = -1;
    }
    out[threadIdx.x] = y;
}
"""


@pytest.mark.parametrize("architecture", ALL)
def test_a_switch(architecture):
    cases = (np.arange(64) % 9).astype("i4")
    found, _ = run(SWITCH, architecture, cases, np.zeros(66, "i4"), threads=64)
    by_case = [4, 17, 5, 30, 0x20000000, 8, -98, -1, -1]
    assert found[1][:64].tolist() == [by_case[c] for c in cases]
    assert found[1][64:].tolist() == [(cases == 2).sum() + 2 * (cases == 5).sum(), -3 * (cases == 6).sum()]


VOTES = r"""
extern "C" __global__ void k(const int* in, int* out) {
    int i = threadIdx.x, x = in[i], r[12];
    r[0] = __syncthreads_count(x > 0);
    r[1] = __syncthreads_and(x > -100);
    r[2] = __syncthreads_or(x == 1000);
    r[3] = __ballot_sync(~0u, x & 1);
    r[4] = __all_sync(~0u, x < 0) + 2 * __any_sync(~0u, x < 0) + 4 * __uni_sync(~0u, x < 0);
    r[5] = __match_any_sync(~0u, x & 3);
    int same;
    r[6] = __match_all_sync(~0u, i / 32, &same);
    r[7] = same;
    r[8] = __byte_perm(x, i, 0x5140);
    r[9] = __funnelshift_l(x, i, 5);
    r[10] = atomicInc((unsigned*)out + 12 * 64, 100u) * 0 + __mul24(x, i);
    r[11] = min(max(x, -5), 5) + __sad(x, i, 3u) + (int)__umulhi(x, i) + __vadd2(x, i) + __dp4a(x, i, x);
    for (int j = 0; j < 12; ++j) out[12 * i + j] = r[j];
}
"""


def half_sum(x, y):
    return ((x & 0xFFFF) + (y & 0xFFFF) & 0xFFFF) | ((x & 0xFFFF0000) + (y & 0xFFFF0000) & 0xFFFF0000)


@pytest.mark.parametrize("architecture", ALL)
def test_warps_and_integers(architecture):
    x = RNG.integers(-90, 90, 64).astype("i4")
    found, _ = run(VOTES, architecture, x, np.zeros(12 * 64 + 1, "i4"), threads=64)
    assert found[1][-1] == 64
    rows = found[1][:-1].reshape(64, 12).view("u4").astype("i8")
    words = x.view("u4").astype("i8")
    assert set(rows[:, 0]) == {(x > 0).sum()}
    assert set(rows[:, 1]) == {1}
    assert set(rows[:, 2]) == {0}
    for warp in range(2):
        lanes = range(32 * warp, 32 * warp + 32)
        assert {rows[i, 3] for i in lanes} == {sum((int(x[i]) & 1) << i % 32 for i in lanes)}
        signs = {bool(x[i] < 0) for i in lanes}
        assert {rows[i, 4] for i in lanes} == {(signs == {True}) + 2 * (True in signs) + 4 * (len(signs) == 1)}
        for i in lanes:
            assert rows[i, 5] == sum(1 << j % 32 for j in lanes if x[j] & 3 == x[i] & 3)
    assert rows[:, 6:8].tolist() == [[0xFFFFFFFF, 1]] * 64
    for i in range(64):
        w = int(words[i])
        source = w.to_bytes(4, "little") + i.to_bytes(4, "little")
        assert rows[i, 8] == int.from_bytes(bytes(source[d] for d in (0, 4, 1, 5)), "little")
        assert rows[i, 9] == ((i << 32 | w) << 5 >> 32) & 0xFFFFFFFF
        assert rows[i, 10] == int(x[i]) * i & 0xFFFFFFFF
        signed = [(b ^ 128) - 128 for b in w.to_bytes(4, "little")]
        dot = sum(a * b for a, b in zip(signed, i.to_bytes(4, "little"), strict=True)) + int(x[i])
        total = min(max(int(x[i]), -5), 5) + abs(int(x[i]) - i) + 3 + (w * i >> 32) + half_sum(w, i) + dot
        assert rows[i, 11] == total & 0xFFFFFFFF


MATRIX = r"""
extern "C" __global__ void k(const unsigned* a, const unsigned* b, const float* c, float* d) {
    __shared__ __align__(16) unsigned tile[16 * 8];
    int lane = threadIdx.x;
    for (int i = 0; i < 4; ++i) tile[4 * lane + i] = a[4 * lane + i];
    __syncwarp();
    unsigned place = (unsigned)__cvta_generic_to_shared(tile) + (lane % 16) * 32 + lane / 16 * 16, x0, x1, x2, x3;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3) : "r"(place));
    int row = lane / 4, column = lane % 4 * 2;
    float y0 = c[8 * row + column], y1 = c[8 * row + column + 1], y2 = c[8 * row + 64 + column],
          y3 = c[8 * row + 65 + column];
    unsigned b0 = b[row * 8 + lane % 4], b1 = b[row * 8 + lane % 4 + 4];
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};" : "+f"(y0), "+f"(y1), "+f"(y2), "+f"(y3)
                 : "r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(b0), "r"(b1));
    d[8 * row + column] = y0; d[8 * row + column + 1] = y1; d[8 * row + 64 + column] = y2;
    d[8 * row + 65 + column] = y3;
}
"""


@pytest.mark.parametrize("architecture", since("sm_80"))
def test_a_tile_of_matrices(architecture):
    a, b = RNG.integers(-8, 9, (16, 16)).astype("f2"), RNG.integers(-8, 9, (16, 8)).astype("f2")
    c = RNG.integers(-8, 9, (16, 8)).astype("f4")
    found, _ = run(MATRIX, architecture, a, np.ascontiguousarray(b.T), c, np.zeros((16, 8), "f4"))
    assert found[3].tolist() == (a.astype("f8") @ b.astype("f8") + c).tolist()


WMMA = r"""
extern "C" __global__ void k(const void* a, const void* b, float* d) {
    asm volatile("{.reg .b32 a<8>, b<8>; .reg .f32 c<8>, d<8>;"
        "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {a0,a1,a2,a3,a4,a5,a6,a7}, [%0], 16;"
        "wmma.load.b.sync.aligned.col.m16n16k16.global.f16 {b0,b1,b2,b3,b4,b5,b6,b7}, [%1], 16;"
        "mov.f32 c0, 0f3F800000; mov.f32 c1, c0; mov.f32 c2, c0; mov.f32 c3, c0; mov.f32 c4, c0; mov.f32 c5, c0;"
        "mov.f32 c6, c0; mov.f32 c7, c0;"
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {d0,d1,d2,d3,d4,d5,d6,d7}, {a0,a1,a2,a3,a4,a5,a6,a7},"
        " {b0,b1,b2,b3,b4,b5,b6,b7}, {c0,c1,c2,c3,c4,c5,c6,c7};"
        "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%2], {d0,d1,d2,d3,d4,d5,d6,d7}, 16;}"
        :: "l"(__cvta_generic_to_global(a)), "l"(__cvta_generic_to_global(b)), "l"(__cvta_generic_to_global(d))
        : "memory");
}
"""


@pytest.mark.parametrize("architecture", ALL)
def test_wmma(architecture):
    a, b = (RNG.integers(-8, 9, (16, 16)).astype("f2") for _ in range(2))
    found, _ = run(WMMA, architecture, a, np.ascontiguousarray(b.T), np.zeros((16, 16), "f4"))
    assert found[2].tolist() == (a.astype("f8") @ b.astype("f8") + 1).tolist()


VECTORS = r"""
extern "C" __global__ void k(const float4* in, float4* sum, unsigned* halves, const unsigned* pairs) {
    float4 x = in[threadIdx.x];
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :: "l"(__cvta_generic_to_global(sum)), "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w) : "memory");
    float2 y;
    asm volatile("atom.global.v2.f32.add {%0, %1}, [%2], {%3, %4};" : "=f"(y.x), "=f"(y.y)
                 : "l"(__cvta_generic_to_global(sum + 1)), "f"(x.x), "f"(x.y) : "memory");
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;"
                 :: "l"(__cvta_generic_to_global(halves)), "r"(pairs[threadIdx.x]) : "memory");
}
"""


@pytest.mark.parametrize("architecture", since("sm_90"))
def test_vector_atomics(architecture):
    x = RNG.integers(-99, 99, (32, 4)).astype("f4")
    pairs = RNG.integers(-9, 9, (32, 2)).astype("f2")
    source = VECTORS.replace("atom.global.v2.f32.add", "atom.global.add.v2.f32")
    found, _ = run(source, architecture, x, np.zeros((2, 4), "f4"), np.zeros(2, "f2"), pairs)
    assert found[1].tolist() == [x.sum(axis=0).tolist(), [*x.sum(axis=0)[:2].tolist(), 0, 0]]
    assert found[2].tolist() == pairs.sum(axis=0).tolist()


STAGES = r"""
extern "C" __global__ void k(const int4* in, int4* out, int n) {
    __shared__ __align__(16) int4 stage[2][64];
    int i = threadIdx.x;
    unsigned place = (unsigned)__cvta_generic_to_shared(&stage[0][i]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.commit_group;"
                 :: "r"(place), "l"(__cvta_generic_to_global(in + i)) : "memory");
    for (int tile = 0; tile < n; ++tile) {
        if (tile + 1 < n)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16; cp.async.commit_group;"
                         :: "r"(place + (tile + 1) % 2 * 1024),
                            "l"(__cvta_generic_to_global(in + 64 * (tile + 1) + i)) : "memory");
        else asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        out[64 * tile + i] = stage[tile % 2][63 - i];
        __syncthreads();
    }
}
"""


@pytest.mark.parametrize("architecture", since("sm_80"))
def test_staged_copies(architecture):
    values = RNG.integers(0, 999, (5, 64, 4)).astype("i4")
    found, _ = run(STAGES, architecture, values, np.zeros_like(values), 5, threads=64)
    assert found[1].tolist() == values[:, ::-1].tolist()


BULK = r"""
extern "C" __global__ void __cluster_dims__(2, 1, 1) k(const unsigned* in, unsigned* out) {
    __shared__ __align__(16) unsigned data[65];
    __shared__ __align__(8) unsigned long long bar;
    unsigned d = (unsigned)__cvta_generic_to_shared(data), m = (unsigned)__cvta_generic_to_shared(&bar);
    unsigned i = threadIdx.x;
    if (i == 0) {
        data[64] = 7;
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1; fence.mbarrier_init.release.cluster;"
                     :: "r"(m) : "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 260;" :: "r"(m) : "memory");
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    unsigned leader;
    asm volatile("{.reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p;}" : "=r"(leader));
    if (i < 32 && leader) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];"
                     :: "r"(d), "l"(__cvta_generic_to_global(in + 64 * blockIdx.x)), "r"(m) : "memory");
        unsigned rank, there, bar_there;
        asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(d), "r"(rank ^ 1));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar_there) : "r"(m), "r"(rank ^ 1));
        asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];"
                     :: "r"(there + 256), "r"(1000 + rank), "r"(bar_there) : "memory");
    }
    asm volatile("{.reg .pred p; W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0; @!p bra W;}"
                 :: "r"(m) : "memory");
    out[64 * blockIdx.x + i] = data[i] + data[64];
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
"""


@pytest.mark.parametrize("architecture", since("sm_90"))
def test_bulk_copies_and_clusters(architecture):
    values = RNG.integers(0, 999, (4, 64)).astype("u4")
    source = BULK.replace("W:", "W%=:").replace("bra W;", "bra W%=;")
    found, _ = run(source, architecture, values, np.zeros_like(values), threads=64, blocks=4, cluster=2)
    assert found[1].tolist() == [(values[i] + 1007 + (i + 1) % 2).tolist() for i in range(4)]


NEW = r"""
extern "C" __global__ void k(const float* in, float* out) {
    int i = threadIdx.x;
    float x = in[i], y = in[i + 32], z = in[i + 64], lowest, three, magnitudes;
    asm volatile("redux.sync.min.NaN.f32 %0, %1, 0xffffffff;" : "=f"(lowest) : "f"(x));
    asm volatile("max.f32 %0, %1, %2, %3;" : "=f"(three) : "f"(x), "f"(y), "f"(z));
    asm volatile("min.xorsign.abs.f32 %0, %1, %2;" : "=f"(magnitudes) : "f"(x), "f"(y));
    unsigned long long pair, ones;
    asm volatile("mov.b64 %0, {%1, %2};" : "=l"(pair) : "f"(x), "f"(y));
    asm volatile("mov.b64 %0, {%1, %1};" : "=l"(ones) : "f"(z));
    asm volatile("fma.rn.f32x2 %0, %0, %1, %1;" : "+l"(pair) : "l"(ones));
    float low, high;
    asm volatile("mov.b64 {%0, %1}, %2;" : "=f"(low), "=f"(high) : "l"(pair));
    out[i] = lowest; out[i + 32] = three; out[i + 64] = magnitudes; out[i + 96] = low; out[i + 128] = high;
}
"""


def test_instructions_of_blackwell():
    x, y, z = RNG.integers(-50, 50, (3, 32)).astype("f4")
    found, _ = run(NEW, "sm_100a", np.r_[x, y, z], np.zeros((5, 32), "f4"))
    sign = np.where(np.signbit(x) ^ np.signbit(y), -1, 1)
    expected = [
        np.full(32, x.min()),
        np.maximum(np.maximum(x, y), z),
        np.minimum(abs(x), abs(y)) * sign,
        x * z + z,
        y * z + z,
    ]
    assert found[1].tolist() == np.array(expected).tolist()


NARROW = r"""
extern "C" __global__ void k(const float* in, unsigned* out) {
    int i = threadIdx.x;
    unsigned short e4, e5;
    unsigned back, pair, tf;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(e4) : "f"(in[i]), "f"(in[i + 32]));
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(e5) : "f"(in[i]), "f"(in[i + 32]));
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(back) : "h"(e4));
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(in[i]), "f"(in[i + 32]));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(tf) : "f"(in[i]));
    out[5 * i] = e4; out[5 * i + 1] = e5; out[5 * i + 2] = back; out[5 * i + 3] = pair; out[5 * i + 4] = tf;
}
"""


@pytest.mark.parametrize("architecture", since("sm_90"))
def test_narrow_floats(architecture):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.linspace(-5, 5, 64).astype("f4")
    found, _ = run(NARROW, architecture, x, np.zeros((32, 5), "u4"))
    high, low = x[:32], x[32:]

    def bits(dtype, values, shift):
        return values.astype(dtype).view(f"u{np.dtype(dtype).itemsize}").astype("u4") << shift

    e4, e5, bf = (np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e4m3fn", "float8_e5m2", "bfloat16"))
    columns = [bits(e4, high, 8) | bits(e4, low, 0), bits(e5, high, 8) | bits(e5, low, 0)]
    columns.append(bits("f2", high.astype(e4), 16) | bits("f2", low.astype(e4), 0))
    columns.append(bits(bf, np.maximum(high, 0), 16) | bits(bf, np.maximum(low, 0), 0))
    columns.append((high.view("u4") + 0x1000) & 0xFFFFE000)
    assert found[1].T.tolist() == [column.tolist() for column in columns]
