"""PyTorch is what the package takes it for: its types, its attributes, its private names, and the tests' fake of it."""

from pathlib import Path
from types import SimpleNamespace

import fake_torch
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed: make test-torch has an environment with it")

import lowlevel_reduce as lr  # noqa: E402
from benchmarks.peers.torch_peer import host_array  # noqa: E402
from lowlevel_reduce.arrays import libraries  # noqa: E402
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type  # noqa: E402

ALL = sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str)
BY_NAME = {entry.name: getattr(torch, entry.name) for entry in ELEMENT_TYPES}
ELEMENTS = 1 << 16  # every pattern of 16 bits


def taken(dtype):
    """Return the element type that a tensor's dtype is read as; raise `UnsupportedError` if it is none."""
    tensor = SimpleNamespace(dtype=dtype, shape=(3,), stride=lambda: (1,))
    _, _, read = libraries.producer_of(torch.Tensor).facts(tensor)
    return element_type(read)


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_element_type_is_one_of_pytorchs_and_no_other_is_taken(dtype):
    names = {each: name for name, each in BY_NAME.items()}
    if dtype in names:
        assert taken(dtype).name == names[dtype]
    else:
        with pytest.raises(lr.UnsupportedError, match="cannot be reduced"):
            taken(dtype)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_bits_of_a_type_mean_the_same_numbers(name):
    dtype, entry = BY_NAME[name], element_type(name)
    assert taken(dtype).itemsize == dtype.itemsize
    rng = np.random.default_rng(0)
    bits = np.arange(ELEMENTS, dtype=np.uint16) if entry.itemsize <= 2 else rng.integers(0, 256, 8000).astype(np.uint8)
    bits = bits.view(np.uint8) % 2 if name == "bool" else bits.view(np.uint8)
    tensor = torch.from_numpy(bits).view(dtype)
    wide = torch.complex128 if entry.is_complex else torch.float64
    with np.errstate(invalid="ignore"):  # NaNs that signal
        ours = bits.view(entry.dtype).astype("complex128" if entry.is_complex else "float64")
    theirs = tensor.to(wide).numpy()
    np.testing.assert_array_equal(theirs, ours)
    if not entry.is_complex:
        assert (np.signbit(theirs) == np.signbit(ours))[~np.isnan(ours)].all(), "-0.0 is not 0.0"
    assert host_array(torch, tensor).tobytes() == bits.tobytes()
    assert host_array(torch, tensor).dtype == entry.dtype


LAYOUTS = {
    "contiguous": lambda x: x,
    "every other": lambda x: x[:, ::2],
    "transposed": lambda x: x.t(),
    "expanded": lambda x: x[:, :1].expand(6, 9),
    "a part": lambda x: x[2:, 3:5],
    "one element": lambda x: x[1, 1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_read_of_a_tensor_is_what_numpy_reads(layout):
    producer = libraries.producer_of(torch.Tensor)
    x = LAYOUTS[layout](torch.arange(54.0, dtype=torch.float32).reshape(6, 9))
    array = x.numpy()
    assert producer.name == "PyTorch"
    assert producer.facts(x) == (array.shape, array.strides, array.dtype)
    assert producer.pointer(x) == array.ctypes.data
    # What `known` has of a tensor can be in a key, and it refuses one that is on no device.
    like, other = LAYOUTS[layout](torch.zeros(6, 9)), x.double()
    keys = [(each.dtype, each.shape, each.stride()) for each in (x, like, other)]
    assert hash(keys[0]) == hash(keys[1]), "of equal tensors"
    assert keys[0] == keys[1] != keys[2]
    with pytest.raises(TypeError, match="not on a GPU"):
        producer.known(x)
    assert producer.ordinal(x) == -1, "on no device"
    assert not producer.plain(x)


def test_a_class_of_its_own_is_not_read_by_attributes():
    assert libraries.producer_of(torch.nn.Parameter) is None
    assert libraries.producer_of(type("Mine", (torch.Tensor,), {})) is None


def test_the_stream_of_a_build_without_the_quick_function_is_that_of_the_device(monkeypatch):
    assert not hasattr(torch._C, "_cuda_getCurrentRawStream"), "it is a build for the CPU"
    handles = {0: 0, 3: 77}
    monkeypatch.setattr(torch.cuda, "current_stream", lambda ordinal: SimpleNamespace(cuda_stream=handles[ordinal]))
    stream = libraries._torch(torch).stream
    assert (stream(0), stream(3)) == (1, 77), "PyTorch's 0 is the driver's 1"


def test_the_quick_function_is_still_declared():
    """A build for the CPU has it not, and its declaration, which is that of all builds, tells that others have."""
    declared = (Path(torch.__file__).parent / "_C" / "__init__.pyi").read_text()
    assert "def _cuda_getCurrentRawStream(device: _int) -> _int: ..." in declared


def fake_and_real(shape, strides, dtype, ordinal=0):
    """Return the fake that other tests use, and PyTorch's tensor of the same kind."""
    real = torch.empty(10_000, dtype=getattr(torch, dtype)).as_strided(shape, strides)
    array = SimpleNamespace(shape=shape, dtype=np.dtype(dtype), pointer=real.data_ptr())
    return fake_torch.Tensor(array, shape, strides, device=ordinal), real


@pytest.mark.parametrize(
    ("shape", "strides", "dtype"),
    [((), (), "float32"), ((5,), (2,), "int8"), ((3, 4), (1, 7), "float64"), ((2, 1, 3), (0, 9, 1), "complex64")],
)
def test_the_fake_answers_as_a_tensor_does(shape, strides, dtype):
    fake, real = fake_and_real(shape, strides, dtype)
    assert (fake.shape, fake.stride(), fake.data_ptr()) == (real.shape, real.stride(), real.data_ptr())
    assert (fake.dtype, fake.layout) == (str(real.dtype), str(real.layout).removeprefix("torch."))
    assert (fake.is_neg(), fake.is_conj()) == (real.is_neg(), real.is_conj())
    theirs = libraries._torch(torch)
    ours = libraries._torch(fake_torch.module(lambda ordinal: 0))
    assert ours.facts(fake) == theirs.facts(real)
    assert ours.plain(fake), "it stands for a tensor on a device"


def test_the_fake_has_nothing_that_a_tensor_has_not():
    fake, real = fake_and_real((5,), (1,), "float32")
    own = {"array", "steps", "negated", "ordinal"}  # where the answers come from
    for name in {*vars(fake), *vars(fake_torch.Tensor)} - own - {"__module__", "__dict__", "__weakref__", "__doc__"}:
        assert callable(getattr(real, name)) == callable(getattr(fake, name)), name
    assert type(real.is_cuda) is type(fake.is_cuda) is bool
    assert [type(each) for each in real.__dlpack_device__()][1:] == [int]
    assert {type(fake.get_device()), type(real.get_device())} == {int}
    module = fake_torch.module(lambda ordinal: 0)
    assert {"Tensor", "strided"} <= vars(torch).keys() & vars(module).keys()
    assert {type(each._C._dispatch_keys(x).raw_repr()) for each, x in ((module, fake), (torch, real))} == {int}


def test_dispatch_keys_tell_what_is_computed_lazily():
    """By them `known` takes a tensor for one of those that were asked already."""
    plain = [torch.ones(5), torch.ones(2, 3, dtype=torch.int8)[:, 1:], torch.ones(5, requires_grad=True)]
    lazy = [torch.ones(5, dtype=torch.complex64).conj(), torch.ones(5, dtype=torch.complex64).conj().imag]
    with torch.inference_mode():
        plain.append(torch.ones(5))
        lazy += [torch.ones(5, dtype=torch.complex64).conj(), torch.ones(5, dtype=torch.complex64).conj().imag]
    plain.append(torch.ones(5, dtype=torch.complex64).real)
    others = [torch.empty(5, device="meta"), torch.ones(5).to_sparse()]
    keys = [{torch._C._dispatch_keys(x).raw_repr() for x in each} for each in (plain, lazy, others)]
    assert not keys[0] & (keys[1] | keys[2])
    assert not keys[1] & keys[2]


@pytest.mark.parametrize("way", ["neg", "conj"])
def test_what_is_computed_lazily_says_so_where_it_is_asked(way):
    lazy = torch.ones(5, dtype=torch.complex64).conj()
    lazy = lazy.imag if way == "neg" else lazy
    assert getattr(lazy, f"is_{way}")()
    fake = fake_torch.Tensor(SimpleNamespace(shape=(5,), dtype=np.dtype("f4"), pointer=0), negated=True)
    assert fake.is_neg()
    assert not libraries._torch(fake_torch.module(int)).plain(fake)
