"""The assembler's report, from logs recorded with three releases of NVRTC."""

from __future__ import annotations

import pytest

from lowlevel_reduce.compiler.images import cubin_kernels, kernel_code, ptx_kernels
from lowlevel_reduce.compiler.resources import Resources, parse_resources
from lowlevel_reduce.errors import ReduceError

# One program with three kernels: `calls` has a callee that was not inlined and spills.
NVRTC_12_6_SM_80 = """\
ptxas info    : 0 bytes gmem, 400 bytes cmem[3]
ptxas info    : Compiling entry function 'constant' for 'sm_80'
ptxas info    : Function properties for constant
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers, 364 bytes cmem[0]
ptxas info    : Compiling entry function 'shared' for 'sm_80'
ptxas info    : Function properties for shared
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 2048 bytes smem, 360 bytes cmem[0]
ptxas info    : Compiling entry function 'calls' for 'sm_80'
ptxas info    : Function properties for calls
ptxas         .     1064 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1064 bytes cumulative stack size, 364 bytes cmem[0]
ptxas info    : Function properties for _Z6calleePfi
ptxas         .     0 bytes stack frame, 1004 bytes spill stores, 1008 bytes spill loads
"""
NVRTC_12_9_SM_90 = """\
prog(2): warning #177-D: variable "unused" was declared but never referenced
  __device__ void f() { int unused; }
                            ^

Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"

ptxas warning : Value of threads per SM for entry spill is out of range. .minnctapersm will be ignored
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'constant' for 'sm_90'
ptxas info    : Function properties for constant
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compile time = 1.409 ms
ptxas info    : Compiling entry function 'shared' for 'sm_90'
ptxas info    : Function properties for shared
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 2048 bytes smem
ptxas info    : Compile time = 1.167 ms
ptxas info    : Compiling entry function 'calls' for 'sm_90'
ptxas info    : Function properties for calls
ptxas         .     1096 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 1096 bytes cumulative stack size
ptxas info    : Compile time = 20.553 ms
ptxas info    : Function properties for _Z6calleePfi
ptxas         .     0 bytes stack frame, 1056 bytes spill stores, 1068 bytes spill loads
"""
NVRTC_13_5_SM_90 = """\
ptxas warning : Stack size for entry function 'two' cannot be statically determined
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'two' for 'sm_90'
ptxas info    : Function properties for two
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 198 registers, used 1 barriers
ptxas info    : Compile time = 15.707 ms
ptxas info    : Function properties for _Z3recPfi
ptxas         .     32 bytes stack frame, 28 bytes spill stores, 28 bytes spill loads
ptxas info    : Function properties for _Z2spPfi
ptxas         .     0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads
ptxas info    : Compiling entry function 'shared' for 'sm_90'
ptxas info    : Function properties for shared
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 1 barriers, 2048 bytes smem
ptxas info    : Compile time = 1.281 ms
"""


def test_nvrtc_12_6() -> None:
    assert parse_resources(NVRTC_12_6_SM_80, ["calls", "constant", "shared"]) == {
        "calls": Resources(32, 0, 1064, 1004, 1008, 364, 1),
        "constant": Resources(8, 0, 0, 0, 0, 364, 0),
        "shared": Resources(12, 2048, 0, 0, 0, 360, 1),
    }


def test_nvrtc_12_9_says_nothing_of_constants_on_sm_90() -> None:
    assert parse_resources(NVRTC_12_9_SM_90, ["calls", "shared"]) == {
        "calls": Resources(32, 0, 1096, 1056, 1068, None, 1),
        "shared": Resources(12, 2048, 0, 0, 0, None, 1),
    }


def test_nvrtc_13_5_adds_up_all_callees_and_stops_at_the_next_kernel() -> None:
    assert parse_resources(NVRTC_13_5_SM_90, ["shared", "two"]) == {
        "shared": Resources(14, 2048, 0, 0, 0, None, 1),
        "two": Resources(198, 0, 32, 32, 36, None, 1),
    }


@pytest.mark.parametrize(
    "log",
    [
        "",
        NVRTC_12_6_SM_80.replace("entry function 'shared'", "entry function 'shared2'"),
        NVRTC_12_6_SM_80.replace("Used 12 registers", "Uses 12 registers"),
        "ptxas info    : Compiling entry function 'shared' for 'sm_80'\nptxas info    : Used 12 registers\n",
    ],
)
def test_a_kernel_without_a_report_is_an_error(log: str) -> None:
    with pytest.raises(ReduceError, match="kernel 'shared'"):
        parse_resources(log, ["shared"])


def test_ptx_kernels() -> None:
    ptx = b".version 8.7\n// .entry no\n.visible .entry b(\n)\n{ret;}\n.visible .func f()\n\t.entry a_$1()\n"
    assert ptx_kernels(ptx) == ("a_$1", "b")


@pytest.mark.parametrize(
    "data", [b"", b"//\n// Generated by", b"\x7fELF\x02\x01\x01" + b"\xff" * 200, b"\x7fELF\x02\x01"]
)
def test_what_is_no_cubin_is_refused(data: bytes) -> None:
    with pytest.raises(ReduceError, match="not a cubin"):
        cubin_kernels(data)
    with pytest.raises(ReduceError, match="not a cubin"):
        kernel_code(data, "k")
