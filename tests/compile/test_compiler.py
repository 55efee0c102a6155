"""The compiler layer with the NVRTC that is installed: errors, reports, threads, and the cache across processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lowlevel_reduce.compiler import (
    Cubin,
    Program,
    SourceTree,
    compile_many,
    compile_program,
    nvrtc,
    open_cache,
    source_root,
    supported_architectures,
    toolchain,
)
from lowlevel_reduce.compiler.images import cubin_kernels, kernel_code
from lowlevel_reduce.errors import CacheError, CacheWarning, CompileError, CudaError, NoCompilerError, UnsupportedError

pytestmark = pytest.mark.usefixtures("cache_directory")  # each test compiles anew

ONE = Program("one", 'extern "C" __global__ void one(int* x) { *x = 1; }\n')
WITH_HEADER = Program(
    "with_header", '#include "inner/add.cuh"\nextern "C" __global__ void k(int* x) { *x = add(*x); }\n'
)
SPILLING = """
extern "C" __global__ void __launch_bounds__(1024, 1) spills(float* x, int n) {
    float v[64];
    #pragma unroll
    for (int i = 0; i < 64; i++) v[i] = x[i * n + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 64; i++) x[i * n + threadIdx.x] = v[i] * v[63 - i] + v[(i * 7) % 64];
}
extern "C" __global__ void plain(float* x) {
    __shared__ float s[512];
    s[threadIdx.x] = x[0];
    __syncthreads();
    x[threadIdx.x] = s[threadIdx.x ^ 7];
}
"""


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    root = tmp_path / "src"
    (root / "inner").mkdir(parents=True)
    (root / "inner" / "add.cuh").write_text(
        '#pragma once\n#include "one.cuh"\n__device__ int add(int x) { return x + ONE; }\n'
    )
    (root / "one.cuh").write_text("#pragma once\n#define ONE 1\n")
    return SourceTree(root)


def test_compile(nvrtc_version: tuple[int, int]) -> None:
    cubin = compile_program(ONE, "sm_90")
    assert cubin.data.startswith(b"\x7fELF")
    assert cubin.names == tuple(cubin.kernels) == ("one",)
    assert 0 < cubin.kernels["one"].registers <= 32
    assert cubin.kernels["one"].spill_store_bytes == 0
    assert (cubin.architecture, cubin.nvrtc_version, cubin.program) == ("sm_90", nvrtc_version, ONE)
    assert not cubin.from_cache
    again = compile_program(ONE, "sm_90")
    assert again.from_cache
    assert contents(again) == contents(cubin)


def contents(cubin: Cubin) -> tuple[Any, ...]:
    return (
        cubin.data,
        cubin.names,
        dict(cubin.kernels),
        cubin.architecture,
        cubin.nvrtc_version,
        cubin.log,
        cubin.output,
    )


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_every_architecture_reports_every_kernel(architecture: str) -> None:
    if architecture.rstrip("a") not in supported_architectures():
        pytest.skip(f"this NVRTC does not know {architecture}")
    cubin = compile_program(Program("spilling", SPILLING), architecture)
    assert set(cubin.kernels) == {"spills", "plain"}
    assert cubin.kernels["plain"].shared_bytes == 2048
    assert cubin.kernels["plain"].barriers == 1
    assert cubin.kernels["plain"].spill_load_bytes == 0


def test_spills_are_reported() -> None:
    kernels = compile_program(Program("spilling", SPILLING), "sm_90").kernels
    assert kernels["spills"].registers <= 64  # what 1024 threads a block leave each
    assert kernels["spills"].spill_store_bytes > 0
    assert kernels["spills"].spill_load_bytes > 0
    assert kernels["spills"].stack_bytes > 0
    assert kernels["plain"].spill_store_bytes == 0


def test_spills_of_a_function_that_was_not_inlined_are_its_kernels() -> None:
    source = SPILLING.replace(
        'extern "C" __global__ void __launch_bounds__(1024, 1) spills', "__device__ __noinline__ void f"
    )
    source += 'extern "C" __global__ void __launch_bounds__(1024, 2) calls(float* x, int n) { f(x, n); }\n'
    kernels = compile_program(Program("calls", source), "sm_90").kernels
    assert kernels["calls"].spill_store_bytes > 0
    assert kernels["plain"].spill_store_bytes == 0


def test_a_report_that_lacks_a_kernel_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    options = tuple(option for option in nvrtc.DEFAULT_OPTIONS if "ptxas" not in option)
    monkeypatch.setattr(nvrtc, "DEFAULT_OPTIONS", options)
    with pytest.raises(Exception, match="does not report the resources of kernel 'one'"):
        compile_program(ONE, "sm_90")


def test_the_symbol_table_tells_kernels_from_functions() -> None:
    source = (
        "__device__ __noinline__ int f(int* x, int n) { return n > 0 ? f(x + 1, n - 1) * f(x, n - 2) : *x; }\n"
        "__constant__ int table[9];\n"
        'extern "C" __global__ void b(int* x, int n) { *x = f(x, n) + table[n]; }\n'
        'extern "C" __global__ void a(int* x) { extern __shared__ int s[]; s[0] = *x; __syncthreads(); *x = s[0]; }\n'
    )
    assert cubin_kernels(compile_program(Program("names", source), "sm_90").data) == ("a", "b")


def test_the_code_of_each_kernel() -> None:
    """The same where the kernel is the same, and other code where it is not, whatever stands beside it."""
    one = 'extern "C" __global__ void a(int* x) { *x = 1; }\n'
    two = one.replace("a(int", "b(int").replace("= 1", "= 2")
    alone, both = (compile_program(Program("code", text), "sm_90").data for text in (one, one + two))
    assert kernel_code(alone, "a") == kernel_code(both, "a") != kernel_code(both, "b")
    assert len(kernel_code(alone, "a")) % 16 == 0
    with pytest.raises(Exception, match="the cubin has no code of b"):
        kernel_code(alone, "b")


def test_ptx() -> None:
    ptx = compile_program(ONE, "sm_90a", output="ptx")
    assert b".target sm_90a" in ptx.data
    assert b"\0" not in ptx.data
    assert ptx.names == ("one",)
    assert not ptx.kernels
    assert "ptxas" not in ptx.log  # a virtual architecture: nothing was assembled on the way
    assert compile_program(ONE, "sm_90a", output="ptx").from_cache
    assert not compile_program(ONE, "sm_90a").from_cache


def test_headers_come_from_the_tree_alone(tree: SourceTree, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compile_program(WITH_HEADER, "sm_90", tree=tree).names == ("k",)
    # A file of the working directory must not get in: the key would not know it.
    (tree.root / "stray.h").write_text("#define STRAY 1\n")
    monkeypatch.chdir(tree.root)
    for name in ('"stray.h"', "<stray.h>"):
        with pytest.raises(CompileError, match=r"could not open|cannot open"):
            nvrtc.compile_source("stray", f"#include {name}\n{ONE.source}", "sm_90", headers={})


def test_a_changed_header_is_compiled_anew(tree: SourceTree) -> None:
    before = compile_program(WITH_HEADER, "sm_90", tree=tree)
    (tree.root / "one.cuh").write_text("#pragma once\n#define ONE 2\n")
    assert compile_program(WITH_HEADER, "sm_90", tree=tree).from_cache  # one process sees one state of the sources
    after = compile_program(WITH_HEADER, "sm_90", tree=SourceTree(tree.root))
    assert not after.from_cache
    assert after.data != before.data


def test_the_cubin_does_not_depend_on_where_it_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    here = compile_program(ONE, "sm_90")
    monkeypatch.chdir(tmp_path)
    there = compile_program(ONE, "sm_90")
    assert here.data == there.data
    assert str(tmp_path).encode() not in there.data
    assert not there.from_cache


def test_an_error_shows_its_line() -> None:
    source = "// one\n__device__ int f() {\n    return   missing;\n}\n" + ONE.source
    with pytest.raises(CompileError, match='identifier "missing" is undefined') as caught:
        compile_program(Program("wrong", source), "sm_90")
    error = caught.value
    assert (error.program, error.file, error.line) == ("wrong", "wrong", 3)
    assert error.source_line == "    return   missing;"
    assert "wrong:3: return   missing;" in str(error)
    assert "1 error detected" in error.log


def test_an_error_in_a_header_shows_the_headers_line(tree: SourceTree) -> None:
    (tree.root / "one.cuh").write_text("#pragma once\n#define ONE 1\n\nint unused() { return nothing; }\n")
    with pytest.raises(CompileError) as caught:
        compile_program(WITH_HEADER, "sm_90", tree=tree)
    error = caught.value
    assert (error.program, error.file, error.line) == ("with_header", "one.cuh", 4)
    assert error.source_line == "int unused() { return nothing; }"


def test_the_first_error_is_shown_and_no_warning() -> None:
    source = '__device__ void f() { int unused; }\nstatic_assert(1 == 2, "first");\n#error second\n'
    with pytest.raises(CompileError) as caught:
        compile_program(Program("two", source), "sm_90")
    assert caught.value.line == 2
    assert "second" in caught.value.log


def test_an_error_of_the_assembler_has_no_line() -> None:
    source = 'extern "C" __global__ void k(int* x) { asm volatile("bogus.u32 %0;" :: "r"(*x)); }\n'
    with pytest.raises(CompileError, match="bogus") as caught:
        compile_program(Program("ptxas", source), "sm_90")
    assert (caught.value.file, caught.value.line, caught.value.source_line) == (None, None, None)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(CompileError, match="--no-such-option"):
        compile_program(Program("option", ONE.source, options=("--no-such-option",)), "sm_90")


def test_no_kernel_is_an_error(cache_directory: Path) -> None:
    for output in ("cubin", "ptx"):
        with pytest.raises(CompileError, match="no kernel"):
            compile_program(Program("empty", "__device__ int x;\n"), "sm_90", output=output)  # type: ignore[arg-type]
    assert not list(cache_directory.glob("cubin-*"))


@pytest.mark.parametrize("architecture", ["sm_70", "sm_91", "sm_999", "sm_75a", "sm_90f"])
@pytest.mark.parametrize("output", ["cubin", "ptx"])
def test_an_unknown_architecture(architecture: str, output: Any, nvrtc_version: tuple[int, int]) -> None:
    with pytest.raises(UnsupportedError) as caught:
        compile_program(ONE, architecture, output=output)
    message = str(caught.value)
    assert architecture in message
    assert "NVRTC {}.{}".format(*nvrtc_version) in message
    assert "sm_90" in message


@pytest.mark.parametrize("architecture", ["90", "compute_90", "sm90", "SM_90", "sm_90 ", ""])
def test_a_misspelt_architecture(architecture: str) -> None:
    with pytest.raises(ValueError, match="sm_90a"):
        compile_program(ONE, architecture)


def test_supported_architectures() -> None:
    architectures = supported_architectures()
    assert {"sm_75", "sm_80", "sm_90"} <= set(architectures)
    numbers = [int(re.fullmatch(r"sm_(\d+)", name).group(1)) for name in architectures]  # type: ignore[union-attr]
    assert numbers == sorted(numbers)
    assert numbers[0] == 75


def test_many(cache_directory: Path) -> None:
    programs = [Program(f"p{i}", ONE.source.replace("= 1", f"= {i}")) for i in range(6)]
    requests = [(program, architecture) for program in programs for architecture in ("sm_80", "sm_90")]
    cubins = compile_many([*requests, requests[0]])
    assert [(cubin.program, cubin.architecture) for cubin in cubins] == [*requests, requests[0]]
    assert cubins[-1] is cubins[0]
    assert len(list(cache_directory.glob("cubin-*"))) == len(requests)
    assert len({cubin.data for cubin in cubins}) == len(requests)
    again = compile_many(requests)
    assert all(cubin.from_cache for cubin in again)
    assert [cubin.data for cubin in again] == [cubin.data for cubin in cubins[:-1]]
    assert compile_many([]) == []


def test_many_raises_what_one_raises() -> None:
    with pytest.raises(CompileError, match="wrong does not compile"):
        compile_many([(ONE, "sm_90"), (Program("wrong", "int f( {"), "sm_90"), (ONE, "sm_80")])


def test_python_runs_while_nvrtc_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    source = SPILLING.replace("64", "128").replace("63", "127")
    nvrtc.load()
    worker = threading.Thread(target=compile_program, args=(Program("slow", source), "sm_90"))
    ticks = 0
    worker.start()
    while worker.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 3  # with the GIL held through the compile there would be one or two


def test_programs_are_destroyed_on_every_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    real, alive = nvrtc._bindings(), set()

    class Counting:
        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

        def nvrtcCreateProgram(self, *arguments: Any) -> Any:  # noqa: N802
            result = real.nvrtcCreateProgram(*arguments)
            alive.add(int(result[1]))
            return result

        def nvrtcDestroyProgram(self, handle: Any) -> Any:  # noqa: N802
            alive.remove(int(handle))
            return real.nvrtcDestroyProgram(handle)

        def nvrtcGetCUBINSize(self, handle: Any) -> Any:  # noqa: N802
            if failing:
                return (real.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY,)
            return real.nvrtcGetCUBINSize(handle)

    monkeypatch.setattr(nvrtc, "_bindings", Counting)
    failing = False
    compile_program(ONE, "sm_90")
    with pytest.raises(CompileError):
        compile_program(Program("wrong", "int f( {"), "sm_90")
    with pytest.raises(UnsupportedError):
        compile_program(ONE, "sm_90f")
    failing = True
    with pytest.raises(CudaError, match="nvrtcGetCUBINSize failed with NVRTC_ERROR_OUT_OF_MEMORY"):
        compile_program(ONE, "sm_90")
    assert not alive


def test_an_empty_log_leaves_one_byte_strings_alone() -> None:
    # NVRTC's empty log is one NUL. Written into a shared one-byte object it would change it for the whole process.
    compile_program(ONE, "sm_90", output="ptx")
    assert [bytes([value])[0] for value in range(256)] == list(range(256))


def test_missing_nvrtc_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda import pathfinder

    def missing(_: str) -> None:
        raise pathfinder.DynamicLibNotFoundError("Failure finding libnvrtc")

    monkeypatch.setattr(pathfinder, "load_nvidia_dynamic_lib", missing)
    nvrtc.load.cache_clear()
    try:
        for cache in ("off", str(Path(os.environ["LOWLEVEL_REDUCE_CACHE_DIR"]))):
            monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", cache)
            with pytest.raises(NoCompilerError, match=r'pip install "lowlevel-reduce\[cu12\]" or .*\[cu13\]'):
                compile_program(ONE, "sm_90")
    finally:
        nvrtc.load.cache_clear()


@pytest.mark.parametrize("damage", ["truncate", "flip", "foreign", "link", "writable", "metadata"])
def test_a_damaged_entry_is_compiled_anew_and_replaced(damage: str, cache_directory: Path, tmp_path: Path) -> None:
    before = compile_program(ONE, "sm_90")
    (entry,) = cache_directory.glob("cubin-*")
    data = entry.read_bytes()
    if damage == "truncate":
        entry.write_bytes(data[:-1])
    elif damage == "flip":
        entry.write_bytes(data[:300] + bytes([data[300] ^ 1]) + data[301:])
    elif damage == "foreign":
        entry.write_text("something else")
    elif damage == "link":
        entry.rename(tmp_path / "elsewhere")
        entry.symlink_to(tmp_path / "elsewhere")
    elif damage == "writable":
        entry.chmod(0o666)
    else:
        open_cache().store(entry.name, {"kernels": {"one": {"registers": 1}}}, b"")  # type: ignore[union-attr]
    after = compile_program(ONE, "sm_90")
    assert not after.from_cache
    assert after.data == before.data
    assert compile_program(ONE, "sm_90").from_cache


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX modes")
def test_a_shared_directory_is_refused(cache_directory: Path) -> None:
    compile_program(ONE, "sm_90")
    cache_directory.chmod(0o770)
    with pytest.raises(CacheError, match="others may write"):
        compile_program(ONE, "sm_90")


def test_an_unwritable_directory_is_told_and_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.warns(CacheWarning, match="off") as told:
        first = compile_program(ONE, "sm_90")
    assert len(told) == 1
    assert str(tmp_path / "file" / "cache") in str(told[0].message)
    monkeypatch.setattr(nvrtc, "compile_source", lambda *_, **__: pytest.fail("compiled again"))
    assert contents(compile_program(ONE, "sm_90")) == contents(first)


@pytest.mark.parametrize("kernels", [[], 3, None, "one", {"one": []}, {"one": {"registers": 1}}, {}, {"two": {}}])
def test_an_entry_whose_kernels_are_none_is_compiled_anew(kernels: Any, cache_directory: Path) -> None:
    before = compile_program(ONE, "sm_90")
    cache = open_cache()
    assert cache is not None
    (entry,) = cache_directory.glob("cubin-*")
    held = cache.load(entry.name)
    assert held is not None
    cache.store(entry.name, {**held.metadata, "kernels": kernels}, held.payload)
    after = compile_program(ONE, "sm_90")
    assert not after.from_cache
    assert (after.data, after.kernels) == (before.data, before.kernels)


def test_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache_directory: Path) -> None:
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert not compile_program(ONE, "sm_90").from_cache
    assert not compile_program(ONE, "sm_90").from_cache
    assert not cache_directory.exists()
    assert not (tmp_path / "xdg").exists()


CHILD = """
import sys
from pathlib import Path
from lowlevel_reduce.compiler import Program, compile_program
cubin = compile_program(Program("one", sys.argv[1]), "sm_90")
maps = Path("/proc/self/maps")
loaded = "libnvrtc" in maps.read_text() if maps.exists() else "cuda.bindings.nvrtc" in sys.modules
print(cubin.from_cache, loaded, "cuda.bindings.nvrtc" in sys.modules, len(cubin.data))
"""


def child(source: str = ONE.source, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    return subprocess.Popen([sys.executable, "-c", CHILD, source], env=environment, stdout=subprocess.PIPE, text=True)


def report(process: subprocess.Popen[str]) -> tuple[bool, bool, bool, int]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    cached, loaded, imported, size = out.split()
    return cached == "True", loaded == "True", imported == "True", int(size)


def test_a_warm_process_does_not_load_nvrtc() -> None:
    *first, size = report(child())
    assert first == [False, True, True]
    assert report(child()) == (True, False, False, size)
    *other, _ = report(child(ONE.source.replace("= 1", "= 2")))
    assert other == [False, True, True]


def test_what_decides_the_choice_of_nvrtc_makes_a_process_ask_again(tmp_path: Path) -> None:
    report(child())
    *again, _ = report(child(LD_LIBRARY_PATH=str(tmp_path)))
    assert again == [True, True, True]  # it asked, and NVRTC turned out to be the same


def test_a_replaced_nvrtc_makes_a_process_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = open_cache()
    assert cache is not None
    compile_program(ONE, "sm_90")
    recorded = toolchain.recall(cache)
    assert recorded is not None
    real = toolchain._describe_file

    def newer(path: str) -> dict[str, Any] | None:
        info = real(path)
        return info and {**info, "mtime_ns": info["mtime_ns"] + 1} if path != toolchain._LINKER_CACHE else info

    monkeypatch.setattr(toolchain, "_describe_file", newer)
    assert toolchain.recall(cache) is None
    assert toolchain.identify(cache) == recorded
    assert toolchain.recall(cache) == recorded


def test_a_stale_record_does_not_decide_the_key(monkeypatch: pytest.MonkeyPatch, cache_directory: Path) -> None:
    # The record says another version than the library that is then loaded: the entry belongs to the latter.
    cache = open_cache()
    assert cache is not None
    compile_program(ONE, "sm_90")
    actual = toolchain.recall(cache)
    assert actual is not None
    (record,) = cache_directory.glob("toolchain-*")
    held = cache.load(record.name)
    assert held is not None
    cache.store(record.name, {**held.metadata, "version": [11, 8]}, b"")
    monkeypatch.setattr(nvrtc, "is_loaded", lambda: False)
    assert toolchain.identify(cache).version == (11, 8)
    assert compile_program(ONE, "sm_90").from_cache
    assert toolchain.recall(cache) == actual


def test_processes_compile_at_once(cache_directory: Path) -> None:
    sizes = {report(process)[3] for process in [child() for _ in range(4)]}
    assert len(sizes) == 1
    assert {path.name.split("-")[0] for path in cache_directory.iterdir()} == {"cubin", "toolchain"}
    assert report(child()) == (True, False, False, *sizes)


def test_the_shipped_headers_are_found() -> None:
    headers = sorted(path.relative_to(source_root()).as_posix() for path in source_root().rglob("*.cuh"))
    if not headers:
        pytest.skip("cuda_src holds no header")
    SourceTree(source_root()).closure("all", "".join(f'#include "{name}"\n' for name in headers))
