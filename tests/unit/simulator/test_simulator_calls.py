"""Functions, tables of branches, and variables of modules."""

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver as cu
from ptx_kernel import execute, fault, own_places, text

from lowlevel_reduce.simulator import SimulatedDriver, machine, ptx
from lowlevel_reduce.simulator.ptx.code import UnknownInstruction

SQUARE = """
.func (.param .b32 result) square(.param .b32 x)
{ .reg .b32 %r<4>; ld.param.u32 %r1, [x]; mul.lo.s32 %r2, %r1, %r1; st.param.b32 [result+0], %r2; ret; }
"""
# Collatz steps of the square: a loop in a function that calls another one.
STEPS = (
    SQUARE
    + """
.func (.param .align 8 .b8 result[8]) steps(.param .b32 x, .param .align 8 .b8 extra[16])
{
    .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<4>;
    ld.param.u32 %r1, [x]; ld.param.u64 %rd1, [extra+8];
    { .param .b32 in; .param .b32 out; st.param.b32 [in], %r1; call.uni (out), square, (in); ld.param.b32 %r2, [out]; }
    mov.u32 %r3, 0;
    LOOP: setp.le.u32 %p1, %r2, 1; @%p1 bra DONE;
    and.b32 %r4, %r2, 1; setp.eq.u32 %p2, %r4, 0; @%p2 bra EVEN;
    mad.lo.u32 %r2, %r2, 3, 1; bra.uni NEXT;
    EVEN: shr.u32 %r2, %r2, 1;
    NEXT: add.u32 %r3, %r3, 1; bra.uni LOOP;
    DONE: cvt.u64.u32 %rd2, %r3; add.s64 %rd3, %rd2, %rd1; st.param.b64 [result], %rd3; ret;
}
"""
)


def collatz(x):
    count = 0
    while x > 1:
        x, count = (3 * x + 1 if x & 1 else x // 2), count + 1
    return count


CALL_STEPS = (
    own_places(8)
    + """
    mov.u64 %rd20, 1000;
    { .param .b32 p0; .param .align 8 .b8 p1[16]; .param .align 8 .b8 r[8];
      st.param.b32 [p0+0], %r0; st.param.b64 [p1+8], %rd20; call.uni (r), steps, (p0, p1); ld.param.b64 %rd21, [r+0]; }
    st.global.u64 [%rd10], %rd21;
"""
)


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_functions_that_diverge_and_nest(seed):
    found, counters = execute(CALL_STEPS, np.zeros(64, "u8"), threads=64, module=STEPS, seed=seed)
    assert found[0].tolist() == [1000 + collatz(i * i) for i in range(64)]
    assert counters.instructions_by_class["control"] > 64


def test_a_call_under_a_guard_and_at_two_places():
    body = (
        own_places(4)
        + """
        mov.u32 %r5, 7; setp.lt.u32 %p1, %r0, 5; .param .b32 a; .param .b32 b; st.param.b32 [a], %r0;
        st.param.b32 [b], %r5; @%p1 call (b), square, (a); ld.param.b32 %r6, [b];
        st.param.b32 [a], %r6; call (b), square, (a); ld.param.b32 %r7, [b]; st.global.u32 [%rd10], %r7;
    """
    )
    found, _ = execute(body, np.zeros(32, "u4"), module=SQUARE)
    assert found[0].tolist() == [(i * i if i < 5 else 7) ** 2 for i in range(32)]


def test_registers_of_a_function_are_its_own():
    # The caller's %r1 and %r2 have the names of the callee's.
    body = (
        own_places(4)
        + """
        mov.u32 %r1, 3; mov.u32 %r2, 4; .param .b32 a; .param .b32 b; st.param.b32 [a], %r0;
        call (b), square, (a); add.u32 %r3, %r1, %r2; st.global.u32 [%rd10], %r3;
    """
    )
    assert execute(body, np.zeros(32, "u4"), module=SQUARE)[0][0].tolist() == [7] * 32


@pytest.mark.parametrize(
    ("module", "call", "why"),
    [
        (".func f() { call.uni f; ret; }", "call.uni f;", "calls itself"),
        (".func g(); .func f() { call.uni g; ret; } .func g() { call.uni f; ret; }", "call.uni f;", "calls itself"),
        ("", "mov.u64 %rd5, 0; call (b), %rd5, (a), prototype;", "through an address"),
        (".extern .func f();", "call.uni f;", "without a body"),
        (SQUARE, "call.uni square, (a);", "do not fit"),
    ],
)
def test_calls_that_are_not_simulated(module, call, why):
    with pytest.raises(UnknownInstruction, match=why) as caught:
        execute(f".param .b32 a; .param .b32 b; st.param.b32 [a], %r0;\n{call}", np.zeros(1), module=module)
    assert "call" in str(caught.value)
    assert caught.value.line > 0


def test_a_function_that_is_not_simulated_does_not_hinder_a_kernel_that_leaves_it_alone():
    body = own_places(4) + "setp.gt.u32 %p1, %r0, 99; @%p1 call.uni f; st.global.u32 [%rd10], %r0;"
    assert execute(body, np.zeros(32, "u4"), module=".func f() { call.uni f; ret; }")[0][0][31] == 31


def test_branches_by_index():
    body = (
        own_places(4)
        + """
        and.b32 %r1, %r0, 3; mov.u32 %r2, 5;
        TABLE: .branchtargets A, B, C, A;
        brx.idx %r1, TABLE;
        A: mov.u32 %r2, 10; bra.uni END;
        B: mov.u32 %r2, 20; bra.uni END;
        C: add.u32 %r2, %r0, 100;
        END: st.global.u32 [%rd10], %r2;
    """
    )
    found, counters = execute(body, np.zeros(32, "u4"))
    assert found[0].tolist() == [(10, 20, 100 + i, 10)[i % 4] for i in range(32)]
    assert counters.divergent_branches == 2  # one warp goes three ways
    assert "of 4" in fault(body.replace("and.b32 %r1, %r0, 3", "and.b32 %r1, %r0, 7"), np.zeros(32, "u4")).reason


VARIABLES = """
.visible .global .align 4 .u32 counter = 5;
.const .align 4 .b8 bytes[8] = {0, 0, 128, 63, 0, 0, 0, 64};
.const .f64 half = 0d3FE0000000000000;
.global .align 8 .u64 pointers[3] = {generic(counter), bytes+4, -1};
.global .align 4 .b8 scratch[64];
.global .f32 floats[] = {0f3F800000, 0f40000000};
.global .align 1 .b8 mangled[4] = {0xFF(counter), 0xFF00(counter), 0xFF0000(counter), 0xFF000000(counter)};
"""


def test_variables():
    body = (
        own_places(8)
        + """
        mov.u64 %rd2, bytes; ld.const.f32 %f1, [%rd2+4]; ld.const.f64 %fd1, [half]; cvt.f64.f32 %fd2, %f1;
        ld.global.u64 %rd3, [pointers+8]; ld.global.f32 %f2, [%rd3]; cvt.f64.f32 %fd3, %f2;
        ld.global.f32 %f3, [floats+4]; cvt.f64.f32 %fd4, %f3; ld.global.u32 %r3, [scratch+60];
        cvt.rn.f64.u32 %fd5, %r3; add.f64 %fd1, %fd1, %fd2; add.f64 %fd1, %fd1, %fd3; add.f64 %fd1, %fd1, %fd4;
        add.f64 %fd1, %fd1, %fd5; ld.global.u64 %rd4, [pointers]; atom.add.u32 %r4, [%rd4], 2;
        ld.global.u32 %r5, [counter]; cvt.rn.f64.u32 %fd6, %r5; add.f64 %fd1, %fd1, %fd6;
        cvta.const.u64 %rd5, %rd2; ld.u8 %r6, [%rd5+3]; cvt.rn.f64.u32 %fd7, %r6; add.f64 %fd1, %fd1, %fd7;
        st.global.f64 [%rd10], %fd1;
    """
    )
    found, _ = execute(body, np.zeros(32), module=VARIABLES)
    assert found[0].tolist() == [0.5 + 2 + 2 + 2 + 0 + (5 + 64) + 63] * 32


def test_variables_live_as_long_as_the_library():
    parsed = ptx.parse(text("mov.u64 %rd1, counter; red.global.add.u32 [%rd1], 1;", arrays=0, module=VARIABLES))
    memory = machine.GlobalMemory()
    addresses = machine.place_variables(parsed.variables, memory)
    for _ in range(2):
        launch = machine.Launch(parsed.kernels["k"], (1, 1, 1), (32, 1, 1), None, 0, b"", False, 1, addresses=addresses)
        machine.run(launch, memory)
    assert memory.read(addresses["counter"], 4) == (5 + 64).to_bytes(4, "little")
    low = addresses["counter"] & 0xFFFFFFFF
    assert memory.read(addresses["mangled"], 4) == low.to_bytes(4, "little")


def test_variables_of_a_library_through_the_driver():
    driver = SimulatedDriver("B200")

    def call(name, *arguments):
        code, *values = getattr(driver, name)(*arguments)
        assert code == cu.CUresult.CUDA_SUCCESS, name
        return values[0] if len(values) == 1 else tuple(values)

    call("cuInit", 0)
    context = call("cuDevicePrimaryCtxRetain", call("cuDeviceGet", 0))
    call("cuCtxPushCurrent", context)
    source = text("mov.u64 %rd1, counter; red.global.add.u32 [%rd1], 1;", arrays=0, module=VARIABLES)
    library = call("cuLibraryLoadData", source.encode(), None, None, 0, None, None, 0)
    address, size = call("cuLibraryGetGlobal", library, b"counter")
    assert size == 4
    assert driver.cuLibraryGetGlobal(library, b"counters")[0] == cu.CUresult.CUDA_ERROR_NOT_FOUND
    config = cu.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 2, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = 32, 1, 1
    function = call("cuKernelGetFunction", call("cuLibraryGetKernel", library, b"k"))
    for _ in range(2):
        call("cuLaunchKernelEx", config, function, 0, 0)
    seen = ctypes.c_uint32()
    call("cuMemcpyAsync", ctypes.addressof(seen), int(address), 4, 0)
    call("cuCtxSynchronize")
    assert seen.value == 5 + 2 * 64
    call("cuLibraryUnload", library)
    assert driver.cuMemcpyAsync(ctypes.addressof(seen), int(address), 4, 0)[0] != cu.CUresult.CUDA_SUCCESS


@pytest.mark.parametrize("statement", [".extern .global .u32 x;", ".global .u32 x = {1, 2};", ".global .u32 x = y(3);"])
def test_variables_that_are_not_known(statement):
    with pytest.raises(UnknownInstruction, match="PTX line 4"):
        ptx.parse(text("", module=statement))


def test_shared_variables_of_functions_have_places_of_their_own():
    module = """
        .shared .align 4 .b8 outer[128];
        .func fill(.param .b32 x) { .reg .b32 %r<4>; .shared .align 4 .b8 inner[128];
          ld.param.u32 %r1, [x]; shl.b32 %r2, %r1, 2; mov.u32 %r3, inner; add.u32 %r2, %r2, %r3;
          st.shared.u32 [%r2], 99; ret; }
    """
    body = (
        own_places(4)
        + """
        shl.b32 %r1, %r0, 2; mov.u32 %r2, outer; add.u32 %r1, %r1, %r2; st.shared.u32 [%r1], %r0;
        .param .b32 a; st.param.b32 [a], %r0; call.uni fill, (a); ld.shared.u32 %r3, [%r1];
        st.global.u32 [%rd10], %r3;
    """
    )
    found, _ = execute(body, np.zeros(32, "u4"), module=module)
    assert found[0].tolist() == list(range(32))


PRINT = f"""
.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 v);
.global .align 1 .b8 form[32] = {{{", ".join(map(str, b"i=%d x=%.2f l=%llu%%" + bytes([10])))}}};
"""


def test_a_kernel_prints(capsys):
    body = """
        .local .align 8 .b8 values[24]; mov.u64 %rd2, values; cvta.local.u64 %rd3, %rd2; mov.u64 %rd4, form;
        sub.s32 %r1, %r0, 1; st.local.u32 [%rd2], %r1; mov.f64 %fd1, 0d3FF8000000000000; st.local.f64 [%rd2+8], %fd1;
        mov.u64 %rd5, -1; st.local.u64 [%rd2+16], %rd5;
        .param .b64 a; .param .b64 b; .param .b32 c; st.param.b64 [a], %rd4; st.param.b64 [b], %rd3;
        call.uni (c), vprintf, (a, b); ld.param.b32 %r2, [c]; st.global.u32 [%rd0], %r2;
    """
    found, _ = execute(body, np.zeros(1, "u4"), module=PRINT, threads=2)
    assert capsys.readouterr().out == "".join(f"i={i} x=1.50 l={2**64 - 1}%\n" for i in (-1, 0))
    assert found[0][0] == 3


def test_an_assertion_that_fails():
    module = """
        .extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s) .noreturn;
        .global .align 1 .b8 what[6] = {120, 32, 62, 32, 48};
    """
    body = """
        mov.u64 %rd2, what; mov.u32 %r3, 17;
        .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; st.param.b64 [a], %rd2;
        st.param.b64 [b], %rd2; st.param.b32 [c], %r3; st.param.b64 [d], %rd2; st.param.b64 [e], %rd2;
        setp.eq.u32 %p1, %r0, 9; @%p1 call.uni __assertfail, (a, b, c, d, e);
    """
    error = fault(body, np.zeros(1), module=module)
    assert "'x > 0' fails in x > 0:17" in error.reason
    assert error.thread == (9, 0, 0)


def test_uninitialised_local_memory():
    declarations = ".local .align 16 .b8 l[32];"
    body = "mov.u64 %rd2, l; st.local.u32 [%rd2], %r0; {} st.global.u32 [%rd0], %r5;"
    execute(body.format("ld.local.u32 %r5, [%rd2];"), np.zeros(1, "u4"), declarations=declarations)
    execute(body.format("ld.local.v2.u8 {%h1, %h2}, [%rd2+6]; mov.u32 %r5, 0;"), np.zeros(1), declarations=declarations)
    for load in ("ld.local.u32 %r5, [%rd2+4];", "cvta.local.u64 %rd3, %rd2; ld.v2.u32 {%r5, %r6}, [%rd3];"):
        error = fault(body.format(load), np.zeros(1), declarations=declarations)
        assert "uninitialised bytes of local memory" in error.reason
    stale = "mov.u64 %rd2, l; setp.eq.u32 %p1, %r0, 0; mov.u32 %r1, %ctaid.x; setp.ne.u32 %p2, %r1, 0; "
    stale += "@!%p2 st.local.u32 [%rd2], %r0; ld.local.u32 %r5, [%rd2];"
    assert fault(stale, np.zeros(1), blocks=20, declarations=declarations).block != (0, 0, 0)
