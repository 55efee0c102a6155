"""Kernels compiled in processes of their own: what they leave in the directory, and how their failures are told."""

import sys

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.compiler import prebuilt_at
from lowlevel_reduce.kernel_wheel import compiling
from lowlevel_reduce.kernel_wheel.compiling import compile_beside, is_compiled
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy.stubs import KernelSource

WRONG = KernelSource("wrong", 'extern "C" __global__ void wrong(int* x) { *x = nothing; }')


def kernel(name, number):
    return KernelSource(name, f'extern "C" __global__ void {name}(int* x) {{ *x = {number}; }}')


def test_kernels_are_there_afterwards_but_for_one_that_does_not_compile(tmp_path):
    directory, seen = prebuilt_at(str(tmp_path / "kernels")), []
    jobs = [(kernel("one", 1), "sm_90"), (WRONG, "sm_90"), (kernel("one", 1), "sm_80"), (kernel("two", 2), "sm_90")]
    compile_beside(jobs, directory, lambda: seen.append(None), most=2)
    assert len(seen) == len(jobs)
    assert [is_compiled(*job, directory) for job in jobs] == [True, False, True, True]
    assert not is_compiled(kernel("two", 2), "sm_80", directory)
    assert compile_kernel(kernel("two", 2), "sm_90", into=directory).from_cache
    with pytest.raises(lr.CompileError, match="nothing"):
        compile_kernel(WRONG, "sm_90", into=directory)


def test_every_attempt_before_the_one_that_counts_must_be_there(tmp_path):
    spills = """extern "C" __global__ void __launch_bounds__(1024, {blocks}) spills(const float* x, float* y)
    {{
        float v[96];
        for (int i = 0; i < 96; ++i) v[i] = x[i * 1024 + threadIdx.x];
        __syncthreads();
        for (int i = 0; i < 96; ++i) y[i * 1024 + threadIdx.x] = v[95 - i] * v[i];
    }}"""
    source = KernelSource("spills", spills.format(blocks=2), (spills.format(blocks=1),))
    directory = prebuilt_at(str(tmp_path))
    compile_kernel(source._replace(spare=()), "sm_90", into=directory)
    assert not is_compiled(source, "sm_90", directory), "the first attempt alone"
    compile_beside([(source, "sm_90")], directory, lambda: None, most=4)
    assert is_compiled(source, "sm_90", directory)


def test_what_another_compiler_made_is_refused(tmp_path, monkeypatch):
    directory = prebuilt_at(str(tmp_path))
    compile_kernel(kernel("one", 1), "sm_90", into=directory)
    monkeypatch.setattr(compiling, "version", lambda: (99, 1))
    with pytest.raises(lr.ReduceError, match=r"kernels of NVRTC 1\d\.\d, and this is 99\.1: name another directory"):
        is_compiled(kernel("one", 1), "sm_90", directory)
    assert not is_compiled(kernel("two", 2), "sm_90", directory)


def test_a_process_that_ends_is_told_with_its_last_words(tmp_path, monkeypatch):
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho out of order >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    directory = prebuilt_at(str(tmp_path / "kernels"))
    with pytest.raises(lr.ReduceError, match="compiled one for sm_90 ended with 3: out of order"):
        compile_beside([(kernel("one", 1), "sm_90")], directory, lambda: None, most=1)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    with pytest.raises(lr.ReduceError, match="cannot be started"):
        compile_beside([(kernel("one", 1), "sm_90")], directory, lambda: None, most=1)


@pytest.mark.parametrize("name", ["json", "lowlevel_reduce"])
def test_modules_in_the_working_directory_are_not_imported(name, tmp_path, monkeypatch):
    (tmp_path / f"{name}.py").write_text("raise RuntimeError('of the working directory')\n")
    monkeypatch.chdir(tmp_path)
    directory = prebuilt_at(str(tmp_path / "kernels"))
    compile_beside([(kernel("one", 1), "sm_90")], directory, lambda: None, most=1)
    assert is_compiled(kernel("one", 1), "sm_90", directory)


def test_no_process_is_started_for_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))
    compile_beside([], prebuilt_at(str(tmp_path)), lambda: pytest.fail("of no kernel"), most=4)
