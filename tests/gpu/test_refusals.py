"""Bad input on a real device: a clear, typed error before any launch, and everything left as it was."""

import numpy as np
import pytest

import lowlevel_reduce as lr


class ReadOnly:
    """A device array as its interface shows it, and that it must not be written."""

    def __init__(self, array):
        interface = array.__cuda_array_interface__
        self.array = array
        self.__cuda_array_interface__ = {**interface, "data": (interface["data"][0], True)}


@pytest.fixture
def unchanged(context):
    """Check that the current context and a plan's result are the same after whatever the test did."""
    x = np.arange(1000, dtype=np.float32)
    yield
    assert lr.Context.current() == context
    assert float(lr.sum(x)) == x.sum()


@pytest.fixture
def bound(stream):
    with lr.plan("sum", shape=1000, dtype="float32", context=stream.context) as plan:
        yield plan.bind(stream)


@pytest.fixture
def memory(context):
    with lr.Buffer.allocate(8192, context) as buffer:
        yield buffer


@pytest.mark.usefixtures("unchanged")
class TestRefusals:
    def test_host_pointer(self, bound, memory):
        host = np.zeros(1000, np.float32)
        with pytest.raises(ValueError, match="the input .* not memory that the driver knows; a device pointer"):
            bound.check(host.ctypes.data, memory.pointer)
        with pytest.raises(ValueError, match="the result at .* device pointer is due"):
            bound.check(memory.pointer, host.ctypes.data)
        with lr.Buffer.pinned(4000, bound.context) as pinned:
            with pytest.raises(ValueError, match="the input .* is page-locked host memory; a device pointer is due"):
                bound.check(pinned.pointer, memory.pointer)

    def test_pointer_of_another_context(self, bound, memory, device):
        with lr.Context.create(device) as other, lr.Buffer.allocate(8192, other) as theirs:
            with pytest.raises(ValueError, match="is of context"):
                bound.check(theirs.pointer, memory.pointer)
            with pytest.raises(ValueError, match="is of context"):
                bound.check(memory.pointer, theirs.pointer)

    def test_allocation_too_small(self, bound, memory):
        with pytest.raises(ValueError, match="needs 4000 bytes; its allocation ends after"):
            bound.check(memory.pointer + memory.size_bytes - 16, memory.pointer)

    def test_misaligned_result(self, bound, memory):
        with pytest.raises(ValueError, match="not aligned to 4 bytes"):
            bound.check(memory.pointer, memory.pointer + 4097)

    def test_overlapping_result(self, bound, memory):
        with pytest.raises(ValueError, match="overlaps"):
            bound.check(memory.pointer, memory.pointer + 400)
        for result in (400, 4396):  # the first element's bytes, the last one's
            with pytest.raises(ValueError, match="overlaps the input"):
                bound.check(memory.pointer + 400, memory.pointer + result)

    @pytest.mark.parametrize("result", [396, 4400], ids=["before", "behind"])
    def test_a_result_beside_the_elements(self, bound, memory, result):
        bound.check(memory.pointer + 400, memory.pointer + result)

    def test_results_that_reach_into_the_elements(self, stream, memory):
        """From before the first one, or from the last one on."""
        with lr.plan("sum", shape=(3, 100), axis=1, dtype="float32", context=stream.context) as plan:
            bound = plan.bind(stream)
            for result in (392, 396, 400, 1596):
                with pytest.raises(ValueError, match="overlaps the input"):
                    bound.check(memory.pointer + 400, memory.pointer + result)
            for result in (388, 1600):
                bound.check(memory.pointer + 400, memory.pointer + result)
            bound.close()

    def test_results_in_the_second_array(self, stream, memory):
        first, second = memory.pointer, memory.pointer + 400
        with lr.plan("dot", shape=100, dtype="float32", context=stream.context) as plan:
            bound = plan.bind(stream)
            for result in (400, 796):  # the first element's bytes, the last one's
                with pytest.raises(ValueError, match="overlaps the second input"):
                    bound.check(first, memory.pointer + result, second)
            bound.check(first, memory.pointer + 800, second)
            bound.close()

    def test_what_has_no_elements_overlaps_nothing(self, stream, memory):
        out = lr.DeviceArray(memory, np.float32, (4,), stream)
        empty = lr.Buffer.from_pointer(memory.pointer + 4, 0, context=stream.context, owner=memory)
        x = lr.DeviceArray(empty, np.float32, (0, 4), stream)
        assert lr.sum(x, axis=0, out=out, stream=stream).numpy().tolist() == [0] * 4

    def test_closed_stream(self, context, memory):
        stream = lr.Stream.create(context)
        with lr.plan("sum", shape=10, dtype="float32", context=context) as plan:
            bound = plan.bind(stream)
            stream.close()
            with pytest.raises(ValueError, match="stream is closed"):
                bound(memory.pointer, memory.pointer + 4096)
            with pytest.raises(ValueError, match="stream is closed"):
                plan.bind(stream)
        with pytest.raises(ValueError, match="stream is closed"):
            lr.sum(np.zeros(3), stream=stream)

    def test_closed_plan(self, stream):
        plan = lr.plan("sum", shape=10, dtype="float32", context=stream.context)
        plan.close()
        plan.close()
        with pytest.raises(ValueError, match="plan is closed"):
            plan.bind(stream)

    def test_stream_of_another_context(self, device, context):
        with lr.Context.create(device) as other, lr.Stream.create(other) as stream:
            with lr.plan("sum", shape=10, dtype="float32", context=context) as plan:
                with pytest.raises(ValueError, match="the stream is of context"):
                    plan.bind(stream)

    @pytest.mark.parametrize(
        ("options", "error", "message"),
        [
            ({"shape": -5}, ValueError, "negative length"),
            ({"shape": (2**40, 2**40)}, ValueError, "can be reduced"),
            ({"shape": 2.5}, TypeError, "not iterable|integers"),
            ({"dtype": "datetime64[s]"}, lr.UnsupportedError, "cannot be reduced"),
            ({"op": "min", "dtype": "complex64"}, lr.UnsupportedError, "min of complex64 is not defined"),
            ({"axis": 1}, ValueError, "axis 1 is out of bounds"),
            ({"op": "min", "shape": 0}, ValueError, "no identity"),
            ({"op": "argmax", "shape": (5, 0), "axis": 1}, ValueError, "no identity"),
            ({"op": "argmax", "nan": "ignore"}, ValueError, "does not take nan="),
            ({"op": "sum", "ddof": 1}, ValueError, "does not take ddof="),
            ({"shape": (4, 4), "axis": 1, "strategy": "columns"}, ValueError, "does not go with 4 rows of 4"),
            ({"shape": (4, 4), "axis": 0, "strategy": "rows"}, ValueError, "does not go with 4 rows of 4"),
            ({"shape": (4, 9000), "axis": 1, "strategy": "short_rows"}, ValueError, "does not go with"),
            ({"shape": (4, 4), "axis": 1, "strategy": "tiles"}, ValueError, "no strategy 'tiles' for rows"),
            ({"shape": (4, 4), "axis": 1, "cluster": 2}, ValueError, "cluster=2 goes with 'batch'"),
            ({"shape": (4, 4), "axis": 1, "block_threads": 256}, ValueError, "whole contiguous array"),
            ({"result_dtype": "int8"}, lr.UnsupportedError, "not int8"),
            ({"op": "median"}, lr.UnsupportedError, "no operator 'median'"),
            ({"strategy": "magic"}, ValueError, "no strategy 'magic'"),
            ({"strategy": "cooperative", "cluster": 2}, ValueError, "does not use clusters"),
        ],
        ids=str,
    )
    def test_plan(self, context, options, error, message):
        with pytest.raises(error, match=message):
            lr.plan(**{"op": "sum", "shape": 1000, "dtype": "float32", "context": context, **options})

    def test_strategy_from_the_environment(self, context, monkeypatch):
        monkeypatch.setenv("LOWLEVEL_REDUCE_STRATEGY", "two_pass")
        assert lr.plan("sum", shape=1000, dtype="float32", context=context).strategy.name == "two_pass"
        rows = lr.plan("sum", shape=(3, 1000), axis=1, dtype="float32", context=context)
        assert rows.strategy.name == "rows", "which the variable is not about"
        monkeypatch.setenv("LOWLEVEL_REDUCE_STRATEGY", "fast")
        with pytest.raises(ValueError, match="no strategy 'fast' for whole arrays"):
            lr.plan("sum", shape=1000, dtype="float32", context=context)
        monkeypatch.delenv("LOWLEVEL_REDUCE_STRATEGY")

    def test_out(self, stream):
        x = np.arange(1000, dtype=np.float32)
        with pytest.raises(TypeError, match="out is of float64; the result is float32"):
            lr.sum(x, out=lr.DeviceArray.empty((), "float64", stream), stream=stream)
        with pytest.raises(ValueError, match=r"out has shape \(2,\)"):
            lr.sum(x, out=lr.DeviceArray.empty((2,), "float32", stream), stream=stream)
        with pytest.raises(TypeError, match="out is a NumPy array"):
            lr.sum(x, out=np.empty((), np.float32), stream=stream)
        with pytest.raises(TypeError, match="out is a NumPy scalar"):
            lr.sum(x, out=np.float32(0), stream=stream)
        source = lr.DeviceArray.from_numpy(x, stream)
        inside = lr.DeviceArray(lr.Buffer.from_pointer(source.pointer + 8, 4), "float32", (), stream)
        with pytest.raises(ValueError, match="overlaps"):
            lr.sum(source, out=inside, stream=stream)

    def test_read_only_out(self, stream):
        out = lr.DeviceArray.empty((), "float32", stream)
        with pytest.raises(ValueError, match="out is read-only"):
            lr.sum(np.arange(1000, dtype=np.float32), out=ReadOnly(out), stream=stream)

    def test_second_arrays(self):
        x = np.zeros((4, 6), np.float32)
        with pytest.raises(TypeError, match="dot takes a second array"):
            lr.reduce(x, "dot")
        with pytest.raises(TypeError, match="sum takes one array"):
            lr.reduce(x, "sum", second=x)
        with pytest.raises(TypeError, match="the second array of dot is of float32, not of float64"):
            lr.dot(x, x.astype(np.float64))
        with pytest.raises(TypeError, match="the second array of dot is of bool, not of float32"):
            lr.dot(x > 0, x)
        with pytest.raises(TypeError, match="a mask of sum is of bool, not of uint8"):
            lr.sum(x, where=np.ones((4, 6), np.uint8))
        for shape in ((4,), (2, 6), (1, 4, 6)):
            with pytest.raises(ValueError, match="cannot be broadcast to"):
                lr.sum(x, where=np.ones(shape, bool))
        with pytest.raises(ValueError, match="not both"):
            lr.reduce(x, "dot", second=x, where=x > 0)

    def test_a_second_array_of_another_type_after_a_call_that_was_good(self):
        x = np.arange(1, 7, dtype=np.float32)
        for _ in range(2):
            assert float(lr.dot(x, x)) == 91
            assert float(lr.sum(x, where=x > 3)) == 15
            for other in (x.view(np.int32), x.astype(np.float64)):
                with pytest.raises(TypeError, match="the second array of dot is of float32, not of "):
                    lr.dot(x, other)
            with pytest.raises(TypeError, match="a mask of sum is of bool, not of uint8"):
                lr.sum(x, where=np.ones(6, np.uint8))

    def test_initial(self, stream):
        with pytest.raises(ValueError, match="does not take initial="):
            lr.reduce(np.ones(3), "mean", initial=1)
        with pytest.raises(ValueError, match="the initial value is a number"):
            lr.sum(np.ones(3), initial=[1, 2])
        with lr.plan("sum", shape=10, dtype="float32", initial=True, context=stream.context) as plan:
            with pytest.raises(ValueError, match="with an initial value"):
                plan.bind(stream)
        with lr.plan("sum", shape=10, dtype="float32", context=stream.context) as plan:
            with pytest.raises(ValueError, match="without an initial value"):
                plan.bind(stream, initial=1)

    def test_device_resident_length(self, stream, memory):
        with lr.plan("sum", shape=10, dtype="float32", context=stream.context) as plan:
            with pytest.raises(ValueError, match="the length at .* is not aligned to 8 bytes"):
                plan.bind(stream, length=memory.pointer + 4)
            host = np.zeros(1, np.uint64)
            with pytest.raises(ValueError, match="the length at .* a device pointer is due"):
                plan.bind(stream, length=host.ctypes.data)

    def test_norm_of_another_order(self):
        with pytest.raises(ValueError, match="1, 2 or inf, not 3"):
            lr.norm(np.ones(3), ord=3)

    @pytest.mark.parametrize("x", [[1.0, 2.0], 3.0, "abc", None], ids=repr)
    def test_no_array(self, x):
        with pytest.raises(TypeError, match="is no array"):
            lr.sum(x)

    def test_bare_integer_stream(self):
        with pytest.raises(TypeError, match="from_handle"):
            lr.sum(np.zeros(3), stream=0)

    def test_workspace(self, stream, memory):
        with lr.plan("sum", shape=10**7, dtype="float32", context=stream.context) as plan:
            with pytest.raises(ValueError, match="the workspace has 8192 bytes; this plan needs"):
                plan.bind(stream, memory)
        with lr.plan("sum", shape=10, dtype="float32", context=stream.context) as plan:
            with pytest.raises(ValueError, match="not aligned to 16 bytes"):
                plan.bind(stream, lr.Buffer.from_pointer(memory.pointer + 4, 4096))
            host = np.zeros(4096, np.uint8)
            with pytest.raises(ValueError, match="the workspace at .* a device pointer is due"):
                plan.bind(stream, lr.Buffer.from_pointer(host.ctypes.data, 4096))

    def test_unwritable_cache(self, context, monkeypatch, tmp_path):
        blocker = tmp_path / "file"
        blocker.write_text("in the way")
        monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(blocker / "cache"))
        with pytest.warns(lr.CacheWarning, match="LOWLEVEL_REDUCE_CACHE_DIR"):
            # A combination that no other test compiles, so that it must be compiled and stored here.
            lr.plan(
                "sum",
                shape=9,
                dtype="int8",
                result_dtype="uint16",
                strategy="cluster",
                cluster=2,
                block_threads=64,
                context=context,
            ).close()
