"""Prebuilt kernels with the NVRTC that is installed: what is kept, what is found, and by processes without NVRTC."""

import os
from pathlib import Path

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import prebuilding
from lowlevel_reduce.compiler import Program, compile_many, compile_program, nvrtc, open_cache, prebuilt_at, toolchain
from lowlevel_reduce.errors import CompileError, NoCompilerError
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.prebuilding import BuildTarget, build_kernels
from lowlevel_reduce.strategy.family import family_of
from lowlevel_reduce.strategy.stubs import KernelSource

pytestmark = pytest.mark.usefixtures("cache_directory")  # each test compiles anew

H200 = BuildTarget.of_architecture("sm_90")
ONE = Program("one", 'extern "C" __global__ void one(int* x) { *x = 1; }\n')
TWO = Program("two", 'extern "C" __global__ void two(int* x) { *x = 2; }\n')


@pytest.fixture
def prebuilt(tmp_path, monkeypatch):
    """A directory of prebuilt kernels that processes are told of; there is no cache."""
    directory = tmp_path / "prebuilt"
    directory.mkdir()
    monkeypatch.setenv("LOWLEVEL_REDUCE_PREBUILT_DIR", str(directory))
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    return directory


@pytest.fixture
def without_nvrtc(monkeypatch):
    """Return a function from whose call on NVRTC cannot be loaded."""

    def leave():
        def load():
            raise NoCompilerError("there is no NVRTC")

        monkeypatch.setattr(nvrtc, "load", load)
        monkeypatch.setattr(nvrtc, "is_loaded", lambda: False)

    return leave


def test_a_process_without_a_compiler_runs_what_is_prebuilt(prebuilt, without_nvrtc):
    source, *others = family_of("sum", dtype="float32", compute_capability=(9, 0))[:2]
    built = build_kernels([source, *others], H200, into=prebuilt)
    assert [(kernel.architecture, kernel.compiled) for kernel in built] == [("sm_90", True)] * 2
    without_nvrtc()
    found = compile_kernel(source, "sm_90")
    assert found.from_cache
    assert found.kernels[source.entry] == built[0].resources
    with pytest.raises(NoCompilerError) as caught:
        compile_kernel(source, "sm_80")
    for part in (str(prebuilt), "LOWLEVEL_REDUCE_PREBUILT_DIR", source.entry, "sm_80", "there is no NVRTC"):
        assert part in str(caught.value)


@pytest.mark.filterwarnings("ignore::lowlevel_reduce.CacheWarning")
def test_a_cache_that_cannot_be_written_is_an_error_where_nothing_else_is_asked_for(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(tmp_path / "file" / "cache"))
    source = KernelSource("one", ONE.source)
    assert not compile_kernel(source, "sm_90").from_cache, "a call goes on"
    for _ in range(2):
        with pytest.raises(lr.CacheError, match="1 kernels could not be written"):
            build_kernels([source], H200)
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(tmp_path / "cache"))
    assert [kernel.compiled for kernel in build_kernels([source], H200)] == [True]


def test_without_a_directory_a_missing_compiler_is_told_as_ever(without_nvrtc):
    without_nvrtc()
    with pytest.raises(NoCompilerError, match=r"\Athere is no NVRTC\Z"):
        compile_program(ONE, "sm_90")


def test_what_is_prebuilt_does_not_enter_the_cache_and_what_is_cached_is_not_compiled_again(tmp_path, monkeypatch):
    into = prebuilt_at(str(tmp_path / "prebuilt"))
    assert not compile_program(ONE, "sm_90", into=into).from_cache
    cache = open_cache()
    assert not [entry for entry in cache.entries() if entry.name.startswith("cubin")]
    cached = compile_program(TWO, "sm_90")
    monkeypatch.setattr(nvrtc, "compile_source", lambda *_, **__: pytest.fail("compiled again"))
    copied = compile_program(TWO, "sm_90", into=into)
    assert copied.from_cache
    assert copied.data == cached.data
    assert len(into.entries()) == 2
    assert compile_program(ONE, "sm_90", into=into).from_cache


def test_what_another_compiler_has_prebuilt_is_found(prebuilt, monkeypatch):
    made = compile_program(ONE, "sm_90", into=prebuilt_at(str(prebuilt)))
    monkeypatch.setattr(toolchain, "ask", lambda cache: toolchain.Toolchain((99, 0), 1))
    monkeypatch.setattr(nvrtc, "compile_source", lambda *_, **__: pytest.fail("compiled again"))
    assert compile_program(ONE, "sm_90").data == made.data
    (many,) = compile_many([(ONE, "sm_90")])
    assert many.data == made.data


def test_a_damaged_prebuilt_kernel_is_compiled_anew_and_left_as_it_is(prebuilt):
    compile_program(ONE, "sm_90", into=prebuilt_at(str(prebuilt)))
    (path,) = prebuilt.iterdir()
    damaged = path.read_bytes()[:-1]
    path.write_bytes(damaged)
    assert not compile_program(ONE, "sm_90").from_cache
    assert path.read_bytes() == damaged


def test_attempts_that_spilled_are_kept_too(prebuilt, without_nvrtc):
    # Four blocks of 512 threads leave each 32 registers, too few for 32 words and their addresses; one leaves it 128.
    body = """
extern "C" __global__ void __launch_bounds__(512, {blocks}) spills(float* x, int n) {{
    float v[32];
    #pragma unroll
    for (int i = 0; i < 32; i++) v[i] = x[i * n + threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 32; i++) x[i * n + threadIdx.x] = v[i] * v[31 - i] + v[(i * 7) % 32];
}}
"""
    source = KernelSource("spills", body.format(blocks=4), (body.format(blocks=1),))
    made = compile_kernel(source, "sm_90", into=prebuilt_at(str(prebuilt)))
    assert made.kernels["spills"].spill_store_bytes == 0
    assert len(list(prebuilt.iterdir())) == 2
    without_nvrtc()
    assert compile_kernel(source, "sm_90").data == made.data


def test_the_first_kernel_that_fails_is_the_error(tmp_path):
    good = KernelSource("one", ONE.source)
    bad = KernelSource("bad", 'extern "C" __global__ void bad() { nothing(); }\n')
    with pytest.raises(CompileError, match="bad does not compile"):
        build_kernels([good, bad, good], H200, into=tmp_path / "prebuilt")


def test_each_is_told_of_as_it_is_done(tmp_path):
    seen = []
    sources = [KernelSource("one", ONE.source), KernelSource("two", TWO.source)]
    built = build_kernels(sources, H200, into=tmp_path / "prebuilt", each=seen.append)
    assert [kernel.name for kernel in built] == ["one", "two"]
    assert sorted(seen) == sorted(built)
    assert all(kernel.resources.registers > 0 for kernel in built)
    again = build_kernels(sources, H200, into=tmp_path / "prebuilt")
    assert [kernel.compiled for kernel in again] == [False, False]


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX modes")
def test_everybody_may_read_what_is_prebuilt(tmp_path):
    before = os.umask(0o022)
    try:
        compile_program(ONE, "sm_90", into=prebuilt_at(str(tmp_path / "a" / "prebuilt")))
    finally:
        os.umask(before)
    directory = tmp_path / "a" / "prebuilt"
    (path,) = directory.iterdir()
    assert (directory.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o755, 0o644)


def test_into_may_be_any_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(prebuilding, "family_of", lambda *_, **__: [KernelSource("one", ONE.source)])
    for into in (Path("relative"), "relative", tmp_path / "relative"):
        lr.prebuild("sum", dtype="float32", target=H200, into=into)
    assert len(list((tmp_path / "relative").iterdir())) == 1
