"""PyTorch's tensors as inputs and outputs of kernels: those of a simulated device, all but whose place is PyTorch's."""

import runpy
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch has an environment with it")

from placed_tensors import Placed, content_of, library, place  # noqa: E402

import lowlevel_reduce as lr  # noqa: E402
from benchmarks.peers.torch_peer import host_array  # noqa: E402
from lowlevel_reduce import simulator  # noqa: E402
from lowlevel_reduce.arrays import libraries  # noqa: E402
from lowlevel_reduce.calls import threads  # noqa: E402
from lowlevel_reduce.driver import Stream  # noqa: E402
from lowlevel_reduce.dtypes import ELEMENT_TYPES  # noqa: E402
from lowlevel_reduce.torch import reductions  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "embed_in_torch.py"


@pytest.fixture(autouse=True)
def working(context, monkeypatch):
    """Where PyTorch works, and the package's way to its tensors."""
    working = SimpleNamespace(handle=0)
    libraries._known.clear()  # of a library that another test stands in for
    monkeypatch.setitem(libraries._known, Placed, libraries._torch(library(lambda ordinal: working.handle)))
    yield working
    Placed.memory.clear()


def random(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(4)) * 3


@pytest.mark.parametrize("name", [entry.name for entry in ELEMENT_TYPES])
def test_every_type(stream, name):
    x = random(3000).to(torch.complex64 if name.startswith("complex") else torch.float32).to(getattr(torch, name))
    expected = lr.tree.reduce(host_array(torch, x)).tobytes()
    on_device = place(x, stream)
    for _ in range(2):  # of which the second finds what the first has made
        assert lr.sum(on_device, stream=stream).numpy().tobytes() == expected


VIEWS = {
    "an offset": (lambda x: x.reshape(-1)[3:], None),
    "every other row": (lambda x: x[::2], 1),
    "every other column": (lambda x: x[:, ::2], 0),
    "transposed": (lambda x: x.t(), 1),
    "permuted": (lambda x: x.reshape(8, 10, 30).permute(2, 0, 1), (0, 2)),
    "expanded": (lambda x: x[:, :1].expand(80, 50), 1),
    "a diagonal": (lambda x: x.diagonal(), None),
    "windows": (lambda x: x.unfold(1, 7, 3), -1),
    "with a gradient": (lambda x: x.detach().requires_grad_(), 0),
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_have_the_bits_of_the_same_views_in_numpy(stream, view):
    take, axis = VIEWS[view]
    x = random(80, 30)
    on_device = take(place(x, stream))
    assert type(on_device) is Placed
    expected = lr.tree.reduce(take(x).detach().numpy(), axis=axis)
    found = lr.sum(on_device, axis=axis, stream=stream).numpy()
    assert (found.shape, found.tobytes()) == (expected.shape, expected.tobytes())


def test_an_output_is_written_where_the_tensor_lies(stream):
    x, out = random(20, 30), torch.zeros(2, 30)
    on_device, result = place(x, stream), place(out, stream)[1]
    for _ in range(2):
        assert lr.sum(on_device, axis=0, out=result, stream=stream) is result
    stream.synchronize()
    written = content_of(out).view(np.float32).reshape(2, 30)
    assert written[1].tobytes() == lr.tree.reduce(x.numpy(), axis=0).tobytes()
    assert not written[0].any()
    for wrong, error, words in (
        (place(torch.zeros(30, dtype=torch.float64), stream), TypeError, "out is of float64"),
        (place(torch.zeros(60), stream)[::2], ValueError, "not contiguous"),
        (place(torch.zeros(31), stream), ValueError, "out has shape"),
    ):
        with pytest.raises(error, match=words):
            lr.sum(on_device, axis=0, out=wrong, stream=stream)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: torch.ones(4, dtype=torch.complex64).conj(), ValueError, r"call resolve_conj\(\)"),
        (lambda: torch.ones(4, dtype=torch.complex64).conj().imag, ValueError, r"call resolve_neg\(\)"),
        (lambda: torch.ones(4).to(torch.float8_e5m2fnuz), lr.UnsupportedError, r"float8_e5m2fnuz cannot be reduced"),
    ],
)
def test_memory_that_holds_something_else_is_refused(context, stream, make, error, words):
    tensor = place(make(), stream)
    for options in ({}, {"stream": stream}):
        with pytest.raises(error, match=words):
            lr.sum(tensor, **options)
    assert lr.Context.current() == context


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (lambda x: x.to_sparse(), "layout other than torch.strided"),
        (lambda x: x.requires_grad_(), "require gradient, use tensor.detach"),
    ],
)
def test_what_pytorch_does_not_export_it_refuses_itself(context, kind, words):
    """As of subclasses and of sparse tensors, which are not read by attributes."""
    export = kind(torch.ones(4)).__dlpack__
    tensor = type("Tensor", (), {"__dlpack__": staticmethod(export), "__dlpack_device__": lambda self: (2, 0)})()
    with pytest.raises(BufferError, match=words):
        lr.sum(tensor)
    assert lr.Context.current() == context


def test_the_stream_that_pytorch_works_in_is_waited_for(working, context, stream):
    x = place(random(3000), stream)
    with Stream.create(context) as theirs:
        for handle, waits in ((stream.handle, 0), (theirs.handle, 1), (0, 1), (stream.handle, 0)):
            working.handle = handle
            before = Counter(simulator.selected().calls)
            lr.sum(x, stream=stream)
            assert (simulator.selected().calls - before)["cuStreamWaitEvent"] == waits


def test_without_a_stream_it_is_the_one_that_pytorch_works_in_at_each_call(working, context, stream):
    x = random(3000)
    on_device, expected = place(x, stream), lr.tree.reduce(x.numpy()).tobytes()
    stream.synchronize()  # PyTorch's own work would be in its streams
    with Stream.create(context) as theirs:
        for round_ in range(2):
            for handle, found in ((theirs.handle, theirs.handle), (0, 1), (stream.handle, stream.handle)):
                working.handle = handle
                before = Counter(simulator.selected().calls)
                results = [lr.sum(on_device)]
                asked = simulator.selected().calls - before
                assert not [name for name in asked if name.startswith("cuPointer")], "PyTorch's memory is trusted"
                results.append(lr.softmax(on_device))
                asked = simulator.selected().calls - before
                assert [result.stream.handle or 1 for result in results] == [found, found]
                assert results[0].numpy().tobytes() == expected
                assert asked["cuStreamWaitEvent"] == 0
                assert not round_ or asked["cuModuleLoadData"] + asked["cuLibraryLoadData"] == 0
        del results


@pytest.fixture
def placed_sum(stream, monkeypatch):
    """Return what sums a tensor as the operator does on a GPU, into one that is placed, and that one's content."""
    out = torch.zeros(30)
    result = place(out, stream)
    monkeypatch.setattr(reductions, "_fake", lambda *given: result)

    def placed_sum(x):
        monkeypatch.setattr(type(x), "device", SimpleNamespace(type="cuda"), raising=False)
        reductions._reduced(x, "sum", [0], False, None)
        return content_of(out).view(np.float32)

    return placed_sum


def test_a_sum_of_the_operator_is_known_when_it_comes_again(working, stream, placed_sum):
    """By the stream that PyTorch works in, of which an object is kept."""
    working.handle = stream.handle
    x = random(20, 30)
    on_device, expected = place(x, stream), lr.tree.reduce(x.numpy(), axis=0)
    for _ in range(2):
        assert placed_sum(on_device).tobytes() == expected.tobytes()
    kept, before = dict(threads.here()._streams), Counter(simulator.selected().calls)
    placed_sum(on_device)
    asked = simulator.selected().calls - before
    assert asked["cuLaunchKernelEx"] == 1
    assert not [name for name in asked if name.startswith("cuPointer")]
    assert threads.here()._streams == kept


def test_a_parameter_is_summed_by_its_attributes(placed_sum, monkeypatch):
    """Its class has none that are trusted, and its protocols refuse what requires a gradient."""
    taken = []
    monkeypatch.setattr(lr, "reduce", lambda x, *given, **options: taken.append((type(x), x.requires_grad)))
    placed_sum(torch.nn.Parameter(random(20, 30)))
    assert taken == [(torch.Tensor, False)]


def test_pytorchs_stream_protocol_names_a_stream(context, stream):
    """The method of its class, on what stands for a stream, since a build for the CPU makes none."""
    theirs = type("Stream", (), {"cuda_stream": stream.handle, "__cuda_stream__": torch.cuda.Stream.__cuda_stream__})
    x = random(3000).numpy()
    result = lr.sum(x, stream=theirs())
    assert result.stream.handle == stream.handle
    assert result.numpy().tobytes() == lr.tree.reduce(x).tobytes()


@pytest.mark.parametrize("options", [{}, {"copy": False}, {"device": "cuda:0"}])
def test_pytorch_asks_for_a_result_in_words_that_are_understood(context, stream, monkeypatch, options):
    """And its stream waits; a simulated device's memory is not for it to have, which is said as such."""
    result, asked = lr.sum(random(3000).numpy(), stream=stream), []

    class Asked:
        __dlpack_device__ = result.__dlpack_device__

        def __dlpack__(self, **words):
            asked.append(words)
            return result.__dlpack__(**words)

    with Stream.create(context) as theirs:
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=theirs.handle))
        before = Counter(simulator.selected().calls)
        with pytest.raises(lr.UnsupportedError, match="memory of NVIDIA's driver"):
            torch.from_dlpack(Asked(), **options)
        assert (simulator.selected().calls - before)["cuStreamWaitEvent"] == 1
        assert [words["stream"] for words in asked] == [theirs.handle], "asked once: no word of it was a TypeError"
        with pytest.raises(BufferError, match="without a copy"):
            torch.from_dlpack(Asked(), copy=True)


def test_the_example_says_what_is_missing(capsys):
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out == "PyTorch finds no GPU here, and a simulated one is not for it to see\n"


def test_the_example_s_allocator_passes_its_calls_to_pytorch(context, monkeypatch):
    """To its functions in Python, below which memory of the simulated device stands for its cache."""
    calls, buffers = [], {}

    def raw_alloc(size, stream):
        buffer = lr.Buffer.allocate(size, context)
        buffers[buffer.pointer] = buffer
        calls.append(("alloc", stream))
        return buffer.pointer

    def raw_delete(pointer):
        calls.append(("delete", pointer in buffers))
        buffers.pop(pointer).close()

    monkeypatch.setattr(torch._C, "_cuda_cudaCachingAllocator_raw_alloc", raw_alloc, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_cudaCachingAllocator_raw_delete", raw_delete, raising=False)
    for name, answer in (("current_device", 0), ("_exchange_device", 0), ("_maybe_exchange_device", 0)):
        monkeypatch.setattr(torch.cuda, name, lambda *given, answer=answer: answer)
    allocator = runpy.run_path(str(EXAMPLE))["allocator_of"](torch)
    x = random(3000).numpy()
    with Stream.create(context) as stream:
        for of_call, handle in ((Stream.legacy(context), 0), (stream, stream.handle)):
            calls.clear()
            result = lr.sum(x, allocator=allocator, stream=of_call)
            assert result.numpy().tobytes() == lr.tree.reduce(x).tobytes()
            del result
            assert {each for each in calls if each[0] == "alloc"} == {("alloc", handle)}
            assert Counter(name for name, _ in calls)["delete"] == Counter(name for name, _ in calls)["alloc"]
    assert not buffers


def test_an_allocator_that_fails_is_heard_and_leaves_nothing(context):
    allocator = runpy.run_path(str(EXAMPLE))["allocator_of"](torch)
    x = random(3000).numpy()
    with pytest.raises(AssertionError, match="not compiled with CUDA"):
        lr.sum(x, allocator=allocator)
    assert lr.Context.current() == context
    assert lr.sum(x).numpy().tobytes() == lr.tree.reduce(x).tobytes()
