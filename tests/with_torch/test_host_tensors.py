"""Tensors in host memory are refused in words, wherever they are given, and what the words advise works."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch has an environment with it")

import lowlevel_reduce as lr  # noqa: E402

ON_HOST = r"in host memory; move it to the device, or pass it as a NumPy array$"


class Pinned(torch.Tensor):
    """PyTorch's answers of a tensor in page-locked memory, which takes a GPU to allocate."""

    def is_pinned(self, device=None):
        return True


def ones(*shape, **options):
    return torch.ones(shape, **options)


TENSORS = {
    "plain": (lambda: ones(30), rf"^Tensor is {ON_HOST}"),
    "no elements": (lambda: ones(0), ON_HOST),
    "a view": (lambda: ones(4, 6).t()[:, ::2], ON_HOST),
    "bfloat16": (lambda: ones(4, dtype=torch.bfloat16), ON_HOST),
    "float8": (lambda: ones(4).to(torch.float8_e4m3fn), ON_HOST),
    "not an element type": (lambda: ones(4).to(torch.float8_e5m2fnuz), ON_HOST),
    "with a gradient": (lambda: ones(4, requires_grad=True), ON_HOST),
    "a parameter": (lambda: torch.nn.Parameter(ones(4)), rf"^Parameter is {ON_HOST}"),
    "page-locked": (lambda: ones(4).as_subclass(Pinned), rf"^Pinned is {ON_HOST}"),
    "sparse": (lambda: ones(4).to_sparse(), ON_HOST),
    "conjugated": (lambda: ones(4, dtype=torch.complex64).conj(), r"conjugated lazily.*call resolve_conj\(\)$"),
    "negated": (lambda: ones(4, dtype=torch.complex64).conj().imag, r"negated lazily.*call resolve_neg\(\)$"),
    "without memory": (lambda: torch.empty(4, device="meta"), "meta"),
}


@pytest.mark.parametrize("kind", TENSORS)
def test_a_tensor_without_device_memory_is_refused(context, kind):
    make, words = TENSORS[kind]
    for _ in range(2):
        with pytest.raises(ValueError, match=words):
            lr.sum(make())
    assert lr.Context.current() == context


X = np.arange(30, dtype=np.float32)
PLACES = {
    "out": lambda x: lr.sum(X, out=x),
    "where": lambda x: lr.sum(X, where=x.bool()),
    "second": lambda x: lr.dot(X, x),
    "partials": lambda x: lr.partials(x, chunk=1024),
    "gathered partials": lambda x: lr.combine_partials(x, length=30, chunk=1024, dtype="float32"),
    "shards": lambda x: lr.reduce_shards([x]),
    "segments": lambda x: lr.segmented_reduce(x, np.array([0, 30])),
    "offsets": lambda x: lr.segmented_reduce(X, x.long()),
}


@pytest.mark.parametrize("place", PLACES)
def test_it_is_refused_wherever_it_is_given(context, place):
    with pytest.raises(ValueError, match=rf"^(shard 0: )?Tensor is {ON_HOST}"):
        PLACES[place](ones(30))
    assert lr.Context.current() == context


def test_a_tensor_is_no_numpy_array_and_its_types_are_no_dtypes(stream):
    with pytest.raises(TypeError, match="a NumPy array, not Tensor"):
        lr.DeviceArray.from_numpy(ones(3), stream)
    for option in ({"dtype": torch.float64}, {"accumulate": torch.float64}):
        with pytest.raises(TypeError, match=r"torch\.float64"):
            lr.sum(X, **option)
    with pytest.raises(TypeError, match="has __cuda_stream__"):
        lr.sum(X, stream=torch.Stream(device="cpu"))


def test_what_the_words_advise_gives_the_result(context):
    x = torch.complex(torch.arange(5.0), torch.arange(5.0, 10))
    assert lr.sum(x.conj().resolve_conj().numpy()).item() == 10 - 35j
    assert lr.sum(x.conj().imag.resolve_neg().numpy()).item() == -35
    assert lr.sum(ones(4, requires_grad=True).detach().numpy()).item() == 4


def test_a_start_value_may_be_a_tensor_and_each_has_its_own_result(context):
    for value in (2.0, 3.0, 2.5):
        found = lr.sum(X, initial=torch.tensor(value))
        assert found.numpy().tobytes() == lr.tree.reduce(X, initial=value).tobytes()


def test_a_result_becomes_a_tensor_that_may_be_written(context):
    for axis, expected in ((None, 435), (0, list(range(30)))):
        tensor = torch.from_numpy(lr.sum(X.reshape(1, 30), axis=axis).numpy())
        assert tensor.tolist() == expected
        tensor.add_(1)  # which PyTorch warns of where the array is read-only
