"""What tests keep between runs: threads that need one kernel at the same time compile it once."""

import threading

import kept
import pytest

from lowlevel_reduce.compiler import Program, compile_program, program


@pytest.mark.parametrize("own", [False, True])
def test_threads_that_need_one_kernel_at_once_compile_it_once(own, tmp_path, monkeypatch):
    """In the kept cache; in one of a test's own, which may be about compiling, each does what the library does."""
    everyone, compiled = threading.Barrier(3), []
    real, looked_up = program.nvrtc.compile_source, program._looked_up

    def compile_source(*arguments, **options):
        compiled.append(arguments[0])
        return real(*arguments, **options)

    def look_up_together(*arguments, **options):
        found = looked_up(*arguments, **options)
        everyone.wait(60)
        return found

    monkeypatch.setattr(kept, "DIRECTORY", tmp_path / "kept")
    kept.use_kept_kernels(monkeypatch)
    monkeypatch.setattr(program.nvrtc, "compile_source", compile_source)
    monkeypatch.setattr(program, "_looked_up", look_up_together)
    if own:
        monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(tmp_path / "own"))
    one = Program("one", 'extern "C" __global__ void one() {}')
    found = []
    threads = [threading.Thread(target=lambda: found.append(compile_program(one, "sm_90"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3
    assert len({cubin.data for cubin in found}) == 1
    assert len(compiled) == (3 if own else 1)
    assert sum(not cubin.from_cache for cubin in found) == len(compiled)
