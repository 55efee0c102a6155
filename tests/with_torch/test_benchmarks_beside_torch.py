"""What the benchmarks call of PyTorch gives what they check, and can be compiled whole: on the CPU as on a GPU."""

import json

import numpy as np
import pytest
import torch

from benchmarks.measure.problems import LAG, Case, check, pattern
from benchmarks.measure.shapes import drawn, named
from benchmarks.peers.torch_compiled import TorchCompiledPeer
from benchmarks.peers.torch_peer import TorchPeer
from benchmarks.peers.torch_peer import host_array as host_plane
from benchmarks.profile import torch_host
from benchmarks.suites.forms import FORMS, Arrays, host_array
from lowlevel_reduce.dtypes import numpy_dtype

MOST_BYTES = 100_000


def peer_of(kind):
    made = kind.__new__(kind)
    made.torch = torch
    return made


def tensor_of(case, first):
    """Return a case's array: `first` elements later in the pattern."""
    elements = np.resize(pattern(case.dtype).values, first + case.shift + case.span)[first:]
    dtype = numpy_dtype(case.dtype)
    bits = elements if dtype.kind in "biufc" else elements.view(np.int16)
    return torch.from_numpy(bits.copy()).view(getattr(torch, case.dtype)).as_strided(
        case.shape, case.element_strides, case.shift
    )  # fmt: skip


def input_of(case):
    return tensor_of(case, 0) if case.arrays == 1 else (tensor_of(case, 0), tensor_of(case, LAG))


MODELS = [
    Case("mean", (8, 40, 6), 1, "bfloat16"), Case("norm_inf", (4, 8, 6, 8), (1, 3), "bfloat16"),
    Case("norm2", (4000,), None, "bfloat16"), Case("mean", (6, 8, 7, 7), (2, 3), "float16"),
]  # fmt: skip


def test_what_pytorch_reduces_is_what_is_checked():
    cases = [case for case in map(drawn, [21] * 120, range(120)) if case.nbytes <= MOST_BYTES]
    assert len({case.op for case in cases}) == 6
    for case in sorted((*cases, *MODELS), key=lambda case: case.dtype):  # the elements of few types are kept
        elements, known = input_of(case), {}
        for kind in (TorchPeer, TorchCompiledPeer):
            found = peer_of(kind).function(case)(elements)
            planes = [host_plane(torch, each) for each in (found if isinstance(found, tuple) else (found,))]
            check(case, planes, exact=False, known=known)


def test_what_is_compiled_is_one_graph():
    """Whatever the operator: Dynamo would raise where it cannot follow."""
    cases = [case for case in map(drawn, [5] * 60, range(60)) if case.nbytes <= MOST_BYTES]
    chosen = {case.op: case for case in (*cases, *MODELS)}
    for case in sorted(chosen.values(), key=lambda case: case.dtype):
        torch._dynamo.reset()
        compiled = torch.compile(
            peer_of(TorchCompiledPeer).function(case), fullgraph=True, dynamic=False, backend="eager"
        )
        assert compiled(input_of(case)) is not None, named(case)


class OnTheHost(Arrays):
    """The arrays of every form, as tensors on the CPU."""

    def of(self, host):
        return torch.from_numpy(host.copy())


ON_THE_DEVICE = ("stream= another stream", "in a capture of torch", "a NumPy array in")


@pytest.mark.parametrize("form", [form for form in FORMS if "torch" in form.others and form.name not in ON_THE_DEVICE],
                         ids=lambda form: form.name)  # fmt: skip
def test_pytorchs_form_of_a_call_is_the_same_reduction(form):
    arrays = OnTheHost(None, {"torch": torch}, (16, 1024))
    found, right = host_array(form.others["torch"](arrays)), np.asarray(form.right(arrays))
    np.testing.assert_allclose(found.astype(np.float64), right.astype(np.float64), rtol=1e-3, atol=0.05)


def test_the_host_time_of_an_operator_has_an_empty_one_of_its_signature(capsys, tmp_path):
    """The measurement runs, and each empty operator takes what ours takes and returns tensors like its."""
    for row in torch_host.rows_of("cpu"):
        ours, empty = (each if isinstance(each, tuple) else (each,) for each in (row.operator(), row.empty()))
        assert [(each.shape, each.dtype) for each in ours] == [(each.shape, each.dtype) for each in empty]
    options = ["--rounds", "1", "--calls", "1", "--commit", "abc", "--json", str(tmp_path / "found.json")]
    torch_host.main(["--device", "cpu", *options])
    assert capsys.readouterr().out.count("us above both") == 3
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found["us"]) == {"softmax", "rms_norm", "layer_norm"}
    conditions = found["conditions"]
    assert (conditions["commit"], conditions["rounds"], conditions["calls"]) == ("abc", 1, 1)
    assert conditions["packages"]["torch"].startswith(torch.__version__.split("+")[0])
    assert conditions["device"] == "cpu"
