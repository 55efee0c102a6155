"""Arrays of other libraries in and out, in stream order; each library's tests are skipped where it is missing."""

import copy
import importlib.util
import os
import pickle
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.arrays import exchange, exports

pytestmark = pytest.mark.bindings

N = 100_003


def values(dtype="float32", n=N):
    return (np.random.default_rng(1).standard_normal(n) * 100).astype(dtype)


def same(result, x):
    return result.numpy().tobytes() == lr.tree.reduce(x).tobytes()


@pytest.mark.usefixtures("context")
class TestOwn:
    def test_numpy(self):
        x = values()
        result = lr.sum(x)
        assert isinstance(result, lr.DeviceArray)
        assert result.shape == ()
        assert same(result, x)
        assert float(result) == float(lr.tree.reduce(x))
        assert np.asarray(result).dtype == np.float32

    def test_numpy_of_any_shape(self):
        x = values(n=60_000).reshape(3, 200, 100)
        assert same(lr.sum(x), x)
        assert same(lr.sum(x[1]), x[1])
        assert same(lr.sum(np.float32(3.5)[...]), np.float32(3.5)[...])

    def test_empty(self):
        assert lr.sum(np.zeros((0, 3), np.float32)).numpy().tobytes() == np.float32(0).tobytes()

    def test_device_array_across_streams(self, context):
        x = values()
        with lr.Stream.create(context) as producer, lr.Stream.create(context) as consumer:
            source = lr.DeviceArray.from_numpy(x, producer)
            assert same(lr.sum(source, stream=consumer), x)
            consumer.synchronize()

    def test_out_and_result_type(self, stream):
        x = values()
        out = lr.DeviceArray.empty((), "float64", stream)
        assert lr.sum(x, dtype="float64", out=out, stream=stream) is out
        assert out.numpy().tobytes() == lr.tree.reduce(x, dtype="float64").tobytes()

    def test_every_strategy_and_the_plan_cache(self, stream):
        x = values()
        source = lr.DeviceArray.from_numpy(x, stream)
        for _ in range(3):
            for strategy in (None, "block", "cluster", "tiles", "two_pass", "cooperative"):
                assert same(lr.sum(source, strategy=strategy, stream=stream), x)

    @pytest.mark.parametrize("make_another", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_what_lies_on_the_device_is_neither_copied_nor_pickled(self, context, stream, make_another):
        """A copy of a buffer would free it under the other one, that of an array be no copy, or another process's."""
        x = values()
        owned = lr.DeviceArray.from_numpy(x, stream)
        borrowed = lr.DeviceArray(lr.Buffer.from_pointer(owned.pointer, owned.nbytes), "float32", x.shape, stream)
        for _ in range(2):  # of which the second lies in a slot
            result = lr.sum(owned, stream=stream)
        plan = lr.plan("sum", shape=x.shape, dtype="float32", context=context)
        handles = (context, lr.Context.current(), stream, lr.Stream.legacy(), lr.Event.create(context), owned._buffer)
        for each in (owned, borrowed, result, plan, *handles):
            with pytest.raises(TypeError, match=f"{type(each).__name__} objects are neither copied nor pickled"):
                make_another(each)
        assert same(result, x)
        plan.close()

    def test_no_objects_of_pythons_on_the_device(self, stream):
        """Their addresses would come back as objects that may have gone by then."""
        for dtype in (object, [("name", object), ("value", "f4")]):
            with pytest.raises(TypeError, match="Python's objects"):
                lr.DeviceArray.from_numpy(np.zeros(3, dtype), stream)
            with pytest.raises(TypeError, match="Python's objects"):
                lr.DeviceArray.empty((3,), dtype, stream)
            with pytest.raises(TypeError, match="Python's objects"):
                lr.DeviceArray(lr.Buffer.allocate(64, stream.context), dtype, (3,), stream)
        with pytest.raises(TypeError, match="a NumPy array, not list"):
            lr.DeviceArray.from_numpy([1.0, 2.0], stream)
        for wrong in (stream.handle, None):
            with pytest.raises(TypeError, match="stream"):
                lr.DeviceArray.from_numpy(values(), wrong)
            with pytest.raises(TypeError, match="stream"):
                lr.DeviceArray.empty((3,), "float32", wrong)

    def test_own_protocols_round_trip(self, stream):
        x = values()
        source = lr.DeviceArray.from_numpy(x, stream)

        class OnlyInterface:
            __cuda_array_interface__ = source.__cuda_array_interface__

        class OnlyDLPack:
            __dlpack__ = source.__dlpack__
            __dlpack_device__ = source.__dlpack_device__

        assert same(lr.sum(OnlyInterface(), stream=stream), x)
        assert same(lr.sum(OnlyDLPack(), stream=stream), x)
        assert source.__dlpack_device__() == (2, 0)
        with pytest.raises(BufferError, match="without a copy"):
            source.__dlpack__(copy=True)
        with pytest.raises(BufferError, match="not on"):
            source.__dlpack__(dl_device=(1, 0))

    @pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3", "float8_e5m2"])
    def test_the_interface_of_a_type_without_a_code_is_refused(self, stream, dtype):
        array = lr.DeviceArray.empty((3,), dtype, stream)
        with pytest.raises(AttributeError, match="__dlpack__"):
            _ = array.__cuda_array_interface__

    def test_host_object_with_dlpack_is_refused(self):
        class OnHost:
            def __init__(self, array):
                self.__array = array

            def __dlpack__(self, **options):
                return self.__array.__dlpack__()

            def __dlpack_device__(self):
                return self.__array.__dlpack_device__()

        with pytest.raises(ValueError, match="OnHost is in host memory"):
            lr.sum(OnHost(values()))

    @pytest.mark.parametrize("way", ["neg", "conj"])
    def test_what_is_computed_lazily_is_refused(self, stream, way):
        """As by ``tensor.conj()``, of which cuda.core 1.2 gives the memory as it is, for PyTorch up to 2.12."""

        class Lazy:
            __cuda_array_interface__ = lr.DeviceArray.from_numpy(values(n=4), stream).__cuda_array_interface__

        setattr(Lazy, f"is_{way}", lambda self: True)
        with pytest.raises(ValueError, match=rf"call resolve_{way}\(\)"):
            lr.sum(Lazy(), stream=stream)


ASKED = {"cuCtxGetId": 1}  # whether a context that others may end still lives


class TestDriverCallsOfAnExport:
    """What a consumer in the array's own stream costs: at most the question whether the memory's context lives."""

    @pytest.fixture(autouse=True)
    def counted(self, machine, monkeypatch):
        if machine != "simulated":
            pytest.skip("calls are counted by the simulated driver")
        monkeypatch.setattr(exports, "only_nvidias_memory", lambda: None)  # the capsules are for nobody to read

    @staticmethod
    def calls(function):
        """Return the driver calls of the second time that something is done."""
        function()
        before = Counter(simulator.selected().calls)
        function()
        return simulator.selected().calls - before

    @pytest.mark.parametrize("made_by", ["a call", "a repeated call", "from_numpy", "slice", "reshape"])
    @pytest.mark.parametrize("way", ["legacy", "created", "none"])
    def test_in_the_own_stream(self, context, made_by, way):
        stream = {"legacy": lr.Stream.legacy, "created": lr.Stream.create, "none": lambda context: None}[way](context)
        x = lr.DeviceArray.from_numpy(values(n=600).reshape(30, 20), stream or lr.Stream.legacy(context))
        for _ in range(1 + (made_by == "a repeated call")):
            result = lr.sum(x, axis=1, stream=stream)
        array = {"from_numpy": lambda: x, "slice": lambda: x[1:3], "reshape": x.ravel}
        array = array.get(made_by, lambda: result)()
        handle = array.stream.handle or 1
        for options in ({"stream": handle}, {"stream": handle, "max_version": (1, 1), "dl_device": (2, 0)}):
            assert self.calls(lambda options=options: array.__dlpack__(**options)) in ({}, ASKED)
        assert self.calls(array.__dlpack_device__) == {}
        interface = []
        assert self.calls(lambda: interface.append(array.__cuda_array_interface__)) in ({}, ASKED)
        assert interface[-1]["stream"] == handle
        x = result = array = None
        if way == "created":
            stream.close()

    def test_in_a_created_stream_of_another_context_than_the_primary_one(self, device):
        with lr.Context.create(device) as mine, mine.pushed(), lr.Stream.create(mine) as stream:
            x = lr.DeviceArray.from_numpy(values(n=20), stream)
            assert self.calls(lambda: x.__dlpack__(stream=stream.handle)) in ({}, ASKED)
            x = None

    def test_where_a_context_is_is_asked_once(self, context):
        assert self.calls(lambda: exchange.home_of(context)) in ({}, ASKED)

    def test_where_nobody_else_ends_the_context_nothing_is_asked(self, context):
        with lr.Context.primary(0) as mine, mine.pushed():
            x = lr.DeviceArray.from_numpy(values(n=20), lr.Stream.legacy(mine))
            assert self.calls(lambda: x.__dlpack__(stream=1)) == {}
            assert self.calls(lambda: x.__cuda_array_interface__) == {}
            x = None

    def test_another_stream_waits_by_an_event(self, context):
        x = lr.DeviceArray.from_numpy(values(n=20), lr.Stream.legacy(context))
        with lr.Stream.create(context) as theirs:
            for handle in (theirs.handle, 2):
                made = self.calls(lambda handle=handle: x.__dlpack__(stream=handle)) - Counter(ASKED)
                assert (made.pop("cuEventRecord"), made.pop("cuStreamWaitEvent")) == (1, 1)
                assert set(made) <= {"cuCtxGetCurrent"}, "the event is kept"
            assert self.calls(lambda: x.__dlpack__(stream=-1)) in ({}, ASKED)

    def test_a_default_stream_of_another_context_is_another_stream(self, context, device):
        with lr.Context.create(device) as created, created.pushed():
            x = lr.DeviceArray.from_numpy(values(n=20), lr.Stream.legacy(created))
            for stream in (None, 1):
                assert self.calls(lambda stream=stream: x.__dlpack__(stream=stream))["cuStreamWaitEvent"] == 1
            assert self.calls(lambda: x.__cuda_array_interface__)["cuStreamWaitEvent"] == 1
            x = None


class TestTorch:
    @pytest.fixture(autouse=True)
    def torch(self):
        self.torch = pytest.importorskip("torch", reason="torch is not installed")

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int64", "bool"])
    def test_types(self, dtype):
        x = self.torch.randn(N, device="cuda").mul(3).to(getattr(self.torch, dtype))
        result = lr.sum(x)
        host = x.cpu()
        array = (
            host.view(self.torch.int16).numpy().view(lr.dtypes.numpy_dtype(dtype))
            if dtype == "bfloat16"
            else host.numpy()
        )
        assert same(result, array)

    def test_result_back_as_a_tensor(self):
        x = self.torch.arange(1000, device="cuda", dtype=self.torch.float32)
        y = self.torch.from_dlpack(lr.sum(x))
        assert y.shape == ()
        assert y.item() == 499500.0

    @pytest.mark.parametrize(
        "dtype", ["bool", "int8", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]
    )
    def test_a_result_of_each_type_as_a_tensor(self, dtype):
        x = self.torch.randn(64, 32, device="cuda").mul(3).to(getattr(self.torch, dtype))
        rows = lr.sum(x, 1) if dtype == "complex64" else lr.max(x, 1)
        tensor = self.torch.from_dlpack(rows)
        assert (str(tensor.dtype), tensor.shape, tensor.data_ptr()) == (f"torch.{rows.dtype}", (64,), rows.pointer)
        assert tensor.tolist() == rows.tolist()

    def test_a_tensor_keeps_the_memory_of_a_result(self):
        x = self.torch.arange(1000, device="cuda", dtype=self.torch.float32)
        lr.sum(x)
        tensors = [self.torch.from_dlpack(lr.sum(x * k)) for k in range(100)]
        assert [tensor.item() for tensor in tensors] == [499500.0 * k for k in range(100)]
        address = tensors[0].data_ptr()
        del tensors
        assert any(lr.sum(x).pointer == address for _ in range(2000)), "it comes back when the tensor has gone"

    def test_a_result_is_never_silently_unequal_to_a_tensor(self):
        x = self.torch.ones(1000, device="cuda")
        for compare in (lambda: lr.sum(x) == x[0], lambda: x[0] == lr.sum(x), lambda: lr.sum(x) != x[0]):
            with pytest.raises(TypeError, match="a DeviceArray and a Tensor are not computed with"):
                compare()

    def test_a_launch_takes_tensors(self):
        x = self.torch.arange(1000, device="cuda", dtype=self.torch.float32)
        with lr.Context.primary(0) as context, lr.plan("argmax", shape=1000, dtype="float32", context=context) as plan:
            launch = plan.bind(lr.Stream.legacy(context))
            out = self.torch.zeros((), device="cuda", dtype=self.torch.int64)
            launch(x, out)
            assert out.item() == 999
            with pytest.raises(
                ValueError, match="the input of the launch is the bytes 0 to 3999; the array has 0 to 3995"
            ):
                launch(x[1:], out)
            launch.close()

    def test_tensors_may_outlive_the_interpreter(self):
        script = (
            "import torch, lowlevel_reduce as lr; x = torch.ones(1000, device='cuda'); "
            "torch.kept = [torch.from_dlpack(lr.sum(x)) for _ in range(3)]; capsule = lr.sum(x).__dlpack__(); "
            "print(torch.kept[0].item())"
        )
        done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "1000.0\n"), done.stderr

    def test_out_is_a_tensor(self):
        x = self.torch.arange(1000, device="cuda", dtype=self.torch.float32)
        y = self.torch.empty((), device="cuda")
        assert lr.sum(x, out=y) is y
        assert y.item() == 499500.0

    def test_offset_views(self):
        x = self.torch.randn(N + 16, device="cuda", dtype=self.torch.float32)
        for offset in range(4):
            part = x[offset : offset + N]
            assert same(lr.sum(part), part.cpu().numpy())

    def test_not_contiguous(self):
        x = self.torch.randn(10, 14, device="cuda").t()[:, ::2]
        assert same(lr.sum(x), x.cpu().numpy())

    def test_a_lazily_conjugated_tensor_is_refused(self):
        x = self.torch.ones(5, device="cuda", dtype=self.torch.complex64) * 1j
        for lazy in (x.conj(), x.conj().imag):
            with pytest.raises(ValueError, match="call resolve_"):
                lr.sum(lazy)
            assert lr.sum(lazy.resolve_conj().resolve_neg()).item() in (-5j, -5)

    def test_tensor_on_the_host(self):
        for x in (self.torch.zeros(10), self.torch.zeros(10).pin_memory()):
            with pytest.raises(ValueError, match="Tensor is in host memory"):
                lr.sum(x)

    def test_producer_stream_is_waited_for(self):
        side = self.torch.cuda.Stream()
        consumer = lr.Stream.create()
        with self.torch.cuda.stream(side):
            x = self.torch.zeros(1 << 24, device="cuda")
            self.torch.cuda._sleep(200_000_000)  # 0.1 s or so in which x is still zero
            x += 1
            result = lr.sum(x, stream=consumer)
        assert float(result) == float(1 << 24)

    def test_torch_stream_as_the_stream(self):
        side = self.torch.cuda.Stream()
        with self.torch.cuda.stream(side):
            x = self.torch.ones(N, device="cuda")
            result = lr.sum(x, stream=lr.Stream.from_handle(side.cuda_stream))
        assert float(result) == N


class TestCuPy:
    def test_in_and_out(self):
        cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
        x = cupy.asarray(values())
        result = lr.sum(x)
        assert same(result, values())
        assert float(cupy.from_dlpack(result)) == float(result)
        assert float(cupy.asarray(result)) == float(result)


# In processes of their own: each has threads, memory and warnings of its own making, as it is imported.
PROLOGUE = """
import numpy as np
import lowlevel_reduce as lr
x = np.random.default_rng(1).standard_normal(100_003).astype(np.float32)
def same(result, x):
    return result.numpy().tobytes() == lr.tree.reduce(x).tobytes()
"""
LIBRARIES = {
    "jax": """
import os
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
import jax
try:
    device = jax.devices("gpu")[0]
except RuntimeError:
    raise SystemExit("no GPU")
array = jax.device_put(x, device)
assert same(lr.sum(array), x)
with lr.Context.primary() as context, lr.Stream.create(context) as stream:
    doubled = array * 2  # JAX has only begun with it when this returns
    result = lr.sum(doubled, stream=stream)
    assert same(result, x * 2)
    back = jax.dlpack.from_dlpack(result)
    assert np.asarray(back).tobytes() == lr.tree.reduce(x * 2).tobytes()
""",
    "numba.cuda": """
from numba import cuda
if not cuda.is_available():
    raise SystemExit("no GPU")
array = cuda.to_device(x)
assert same(lr.sum(array), x)
assert same(lr.sum(array[::2]), x[::2])
theirs = cuda.stream()
handle = getattr(theirs.handle, "value", theirs.handle)
result = lr.sum(cuda.to_device(x, stream=theirs), stream=lr.Stream.from_handle(int(handle), owner=theirs))
assert same(result, x)
assert cuda.as_cuda_array(result).copy_to_host().tobytes() == lr.tree.reduce(x).tobytes()
out = cuda.to_device(np.zeros((), np.float32))
assert lr.sum(array, out=out) is out
cuda.synchronize()
assert out.copy_to_host().tobytes() == lr.tree.reduce(x).tobytes()
""",
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_arrays_and_streams_of_another_library(library, machine):
    if machine == "simulated":
        pytest.skip(f"not simulated: {library} speaks to NVIDIA's driver")
    if importlib.util.find_spec(library.split(".")[0]) is None:
        pytest.skip(f"{library} is not installed")
    command = [sys.executable, "-c", PROLOGUE + LIBRARIES[library]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300, env=environment)
    if done.stderr.strip().endswith("no GPU"):
        pytest.skip(f"{library} finds no GPU")
    assert done.returncode == 0, done.stderr


def test_second_process_does_not_load_the_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(tmp_path / "cache"))
    script = (
        "import numpy as np, lowlevel_reduce as lr; print(float(lr.sum(np.ones(100000, np.float32))));"
        "print('libnvrtc' in open('/proc/self/maps').read())"
    )
    outputs = [
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    ]
    assert outputs == [["100000.0", "True"], ["100000.0", "False"]]
