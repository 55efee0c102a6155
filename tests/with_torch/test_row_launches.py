"""What launches of row operations on torch's tensors keep: torch's graphs outlive what is kept of them here."""

import gc
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch has an environment with it")

import lowlevel_reduce as lr  # noqa: E402
from lowlevel_reduce.calls import threads  # noqa: E402
from lowlevel_reduce.driver import Graph  # noqa: E402
from lowlevel_reduce.plans import loading  # noqa: E402
from lowlevel_reduce.rowops import exponentials  # noqa: E402
from lowlevel_reduce.torch import launching  # noqa: E402


@pytest.mark.parametrize("offset", [0, 1], ids=["aligned", "not aligned"])
def test_the_kernel_of_a_graph_is_loaded_as_long_as_the_graph(stream, monkeypatch, offset):
    """However many forms and kernels follow, and whatever is let go of, before the next replay."""
    monkeypatch.setattr(loading, "MAX_LOADED", 1)
    rows = np.random.default_rng(5).standard_normal((4, 64)).astype(np.float32)
    content = np.concatenate([np.zeros(offset, np.float32), rows.ravel()])
    x, out = lr.DeviceArray.from_numpy(content, stream), lr.DeviceArray.empty((4, 64), np.float32, stream)
    tensor = SimpleNamespace(
        shape=(4, 64), stride=lambda: (64, 1), dtype=torch.float32, element_size=lambda: 4,
        device=SimpleNamespace(index=0),
    )  # fmt: skip
    operation = exponentials.softmax_of(log=False, causal=False, lengths=False, scaled=False)
    expected = lr.softmax(rows, stream=stream).numpy()
    plan, launch = launching._bound(operation, tensor, None, {}, {}, {}, stream.handle)
    with Graph.capture(stream) as graph:
        launch(x.pointer + 4 * offset, out.pointer)
    with graph, graph.instantiate() as executable:
        del plan, launch
        lr.max(x, stream=stream)
        threads.here().forget()
        gc.collect()
        executable.launch(stream)
        assert out.numpy().tobytes() == expected.tobytes()
