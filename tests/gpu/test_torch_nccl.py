"""torch's NCCL as the engine of `lr.distributed`: a group of one rank on one GPU, eager, by a plan, and in a graph.

Two ranks are timed, and their bits compared, by ``python -m benchmarks.profile.parts_table``.
"""

import numpy as np
import pytest

import lowlevel_reduce as lr

N = 300_007
X = (np.random.default_rng(5).standard_normal(N) * 1e3).astype(np.float32)


@pytest.fixture(scope="module")
def torch(machine, tmp_path_factory):
    found = pytest.importorskip("torch", reason="PyTorch is not installed")
    if machine != "cuda":
        pytest.skip("PyTorch speaks to NVIDIA's driver, not to a simulated one")
    if not found.cuda.is_available() or not found.distributed.is_nccl_available():
        pytest.skip("PyTorch has no NCCL here")
    meeting = tmp_path_factory.mktemp("nccl") / "meeting"
    found.distributed.init_process_group("nccl", init_method=f"file://{meeting}", rank=0, world_size=1)
    yield found
    lr.distributed.forget(found.distributed.group.WORLD)
    found.distributed.destroy_process_group()


class TestTorch:
    @pytest.mark.parametrize("op", ["sum", "argmax", "mean_var", "logsumexp"])
    def test_calls_in_torchs_current_stream(self, torch, op):
        x = torch.from_numpy(X).cuda()
        expected = lr.reduce(x, op)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for options in ({}, {"length": N}, {"length": N}):
                    found = lr.distributed.reduce(x, op, **options)
                    found = found if isinstance(found, tuple) else (found,)
                    assert [a.numpy().tobytes() for a in found] == [b.numpy().tobytes() for b in expected]

    def test_rows(self, torch):
        x = torch.from_numpy(X[: 3 * 100_000].reshape(3, -1)).cuda().bfloat16()
        found = lr.distributed.logsumexp(x, axis=1, length=100_000)
        assert found.numpy().tobytes() == lr.logsumexp(x, axis=1).numpy().tobytes()

    def test_a_plan_in_a_graph(self, torch):
        x, out = torch.from_numpy(X).cuda(), torch.zeros((), device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        plan = lr.distributed.plan("sum", length=N, dtype="float32")
        launch = plan.bind(side)
        assert launch.capturable
        with torch.cuda.stream(side):
            launch(x.data_ptr(), out.data_ptr())
        side.synchronize()
        assert out.cpu().numpy().tobytes() == lr.sum(x).numpy().tobytes()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
            launch(x.data_ptr(), out.data_ptr())
        x.mul_(2)
        out.zero_()
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert out.cpu().numpy().tobytes() == lr.sum(x).numpy().tobytes()

    def test_a_part_that_does_not_fit(self, torch):
        x = torch.from_numpy(X).cuda()
        with pytest.raises(lr.CutError, match=f"rank 0 has {N - 1} elements"):
            lr.distributed.sum(x[1:], length=N)
        with pytest.raises(lr.CutError, match=f"rank 0 has {N - 7} elements"):
            lr.distributed.plan("sum", length=N, dtype="float32", shape=N - 7)
        assert lr.distributed.sum(x, length=N).numpy().tobytes() == lr.sum(x).numpy().tobytes()
