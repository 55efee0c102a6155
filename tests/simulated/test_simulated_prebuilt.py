"""Kernels compiled beforehand, used by a process that has no compiler: its first calls, on a simulated GPU."""

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.compiler import nvrtc
from lowlevel_reduce.prebuilding import BuildTarget


@pytest.fixture
def prebuilt(tmp_path, monkeypatch):
    """Return a function that compiles kernels for the H200 into a directory, and one that then takes NVRTC away."""

    def build(*args, **options):
        with simulator.use("H200"), lr.Context.primary() as context:
            kernels = lr.prebuild(*args, target=context, into=tmp_path / "kernels", **options)
            assert BuildTarget.of_context(context).output == "ptx"
            assert all(kernel.resources is None for kernel in kernels)
            return kernels

    def leave():
        def load():
            raise lr.NoCompilerError("there is no NVRTC")

        monkeypatch.setenv("LOWLEVEL_REDUCE_PREBUILT_DIR", str(tmp_path / "kernels"))
        monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
        monkeypatch.setattr(nvrtc, "load", load)
        monkeypatch.setattr(nvrtc, "is_loaded", lambda: False)

    return build, leave


def test_first_calls_without_a_compiler(prebuilt):
    build, leave = prebuilt
    build("sum", dtype="float32")
    build("sum", dtype="float32", segmented=True)
    leave()
    rng = np.random.default_rng(5)
    x, y = rng.standard_normal(70_000, dtype=np.float32), rng.integers(-9, 9, (40, 300)).astype(np.float32)
    with simulator.use("H200"):
        for length in (0, 1, 1000, 1025, 5000, 12_345, 70_000):
            assert lr.sum(x[:length]).numpy().tobytes() == lr.tree.reduce(x[:length]).tobytes()
        assert (lr.sum(y, axis=0).numpy() == y.sum(0)).all()
        sums = lr.segmented_reduce(x[:10], np.array([0, 3, 3, 10]), "sum")
        assert sums.numpy().tobytes() == np.stack([lr.tree.reduce(part) for part in (x[:3], x[:0], x[3:10])]).tobytes()
        with pytest.raises(lr.NoCompilerError, match=r"holds no prod_float32_\w+ for sm_90 .* there is no NVRTC"):
            lr.prod(x)
        assert float(lr.sum(x[:8])) == pytest.approx(float(x[:8].sum()), rel=1e-6)


def test_a_directory_that_is_not_there_is_an_error_before_anything_is_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_PREBUILT_DIR", str(tmp_path / "nothing"))
    with simulator.use("H200") as driver:
        with pytest.raises(lr.CacheError, match="which is no directory"):
            lr.sum(np.ones(3, np.float32))
        monkeypatch.delenv("LOWLEVEL_REDUCE_PREBUILT_DIR")
        assert float(lr.sum(np.ones(3, np.float32))) == 3
        assert len(driver.launches) == 1
