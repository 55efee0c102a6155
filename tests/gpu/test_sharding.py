"""One array in parts, on one device and on several: the partials fold to the bits of the whole."""

import contextlib
import gc

import ml_dtypes
import numpy as np
import pytest
from stream_order import Order

import lowlevel_reduce as lr
from lowlevel_reduce import simulator
from lowlevel_reduce.arrays.device_array import view_array
from lowlevel_reduce.driver import Buffer, Context, Device, Graph, Stream
from tests.golden.cases import USERS

ABSMAX = USERS["absmax"]
INDEXED = lr.Operator("indexed", map="float(i)", combine="a + b", identity="0.0f")


def values(length, dtype, seed=0):
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(length) < 0.5
    if np.dtype(dtype).kind in "iu":
        return rng.integers(-100 if np.dtype(dtype).kind == "i" else 0, 100, length).astype(dtype)
    if np.dtype(dtype).kind == "c":
        return (rng.standard_normal(length) + 1j * rng.standard_normal(length)).astype(dtype)
    return rng.standard_normal(length).astype(dtype)


def split(x, lengths):
    ends = np.cumsum(lengths)
    assert ends[-1] == len(x)
    return [x[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def same(found, expected):
    found, expected = (each if isinstance(each, tuple) else (each,) for each in (found, expected))
    return [each.numpy().tobytes() for each in found] == [each.numpy().tobytes() for each in expected]


@pytest.mark.parametrize(
    ("op", "dtype", "options"),
    [
        ("sum", "float32", {}),
        ("sum", "float32", {"accumulate": "float32"}),
        ("sum", "float64", {"accumulate": "compensated"}),
        ("sum", "float16", {}),
        ("sum", ml_dtypes.bfloat16, {}),
        ("sum", ml_dtypes.float8_e4m3fn, {}),
        ("sum", "int8", {"dtype": "int32"}),
        ("sum", "complex64", {}),
        ("sum", "float32", {"map": "x * x", "initial": 0.5}),
        ("prod", "float64", {}),
        ("min", "float32", {"nan": "ignore"}),
        ("max", "uint16", {}),
        ("minmax", "float64", {}),
        ("argmin", "float32", {}),
        ("argmax", "int16", {}),
        ("argmax", "int16", {"last": True}),
        ("argmax", "float64", {"map": "fabs(x)"}),
        ("any", "bool", {}),
        ("count_nonzero", "int32", {}),
        ("mean", "float32", {"nan": "ignore"}),
        ("norm2", "complex128", {}),
        ("mean_var", "float32", {}),
        ("mean_var", "float32", {"dtype": "float64"}),
        ("mean_var", "float32", {"map": "x * x"}),
        ("std", "int8", {"ddof": 1}),
        ("var", "complex64", {}),
        ("var", "float32", {"map": "x * 2.0f"}),
        ("logsumexp", "float32", {}),
        ("softmax_stats", "float32", {}),
        (ABSMAX, "float32", {}),
    ],
)
def test_shards_of_one_device_have_the_bits_of_the_whole(op, dtype, options, stream, context, cut):
    leaf = 4096 // np.dtype(dtype).itemsize
    x = values(leaf * cut(900, 5) + 77, dtype)
    if options.get("nan") == "ignore":
        x[::7] = np.nan
    whole = lr.reduce(x, op, stream=stream, **options)
    for shards in cut((1, 2, 5, 8), (1, 3)):
        parts = split(x, lr.shard_lengths(len(x), dtype, shards))
        arrays = [lr.DeviceArray.from_numpy(part, Stream.create(context)) for part in parts]
        assert same(lr.reduce_shards(arrays, op, **options), whole)


@pytest.mark.parametrize("leaves", [1, 2, 4, 16])
def test_every_chunk_gives_the_same(leaves, stream, cut):
    x = values(1024 * cut(777, 11) + 5, "float32")
    chunk = 1024 * leaves
    made = lr.partials(x, "sum", chunk=chunk, stream=stream)
    assert (made.shape, made.dtype) == ((-(-len(x) // chunk), 2), np.dtype(np.uint32))
    roots = made.numpy().view(np.float64).ravel()
    expected = [lr.tree.reduce(x[i : i + chunk], dtype="float64") for i in range(0, len(x), chunk)]
    assert roots.tobytes() == np.array(expected).tobytes()
    total = lr.combine_partials(made, "sum", length=len(x), chunk=chunk, dtype="float32", stream=stream)
    assert total.numpy().tobytes() == lr.tree.reduce(x).tobytes()


@pytest.mark.parametrize("chunk", [1 << 20, 1 << 63, 1 << 80])
def test_a_chunk_may_be_longer_than_any_array(chunk, stream):
    x = values(5000, "float32")
    made = lr.partials(x, "sum", chunk=chunk, stream=stream)
    total = lr.combine_partials(made, "sum", length=len(x), chunk=chunk, dtype="float32", stream=stream)
    assert total.numpy().tobytes() == lr.tree.reduce(x).tobytes()


@pytest.mark.parametrize("count", [1, 31, 33, 65, 512, 513, 1024, 1025, 2048, 2049, 5000, 20_000])
def test_any_number_of_partials_folds_in_the_order_of_the_tree(count, stream):
    # Not of an array that is there: 5,000 chunks of it would have 20 MB and more.
    rng = np.random.default_rng(count)
    x = rng.standard_normal(count) * 10.0 ** rng.integers(0, 12, count)
    expected, level = x, x
    while len(level) > 1:
        odd = level[len(level) // 2 * 2 :]
        level = np.concatenate([level[0 : len(level) // 2 * 2 : 2] + level[1::2], odd])
    words = np.ascontiguousarray(expected).view(np.uint32).reshape(count, 2)
    total = lr.combine_partials(words, "sum", length=512 * count, chunk=512, dtype="float64", stream=stream)
    assert total.numpy().tobytes() == level.tobytes()


def test_shares_of_more_ranks_than_32_bits_divide(stream):
    """The chunks times the ranks are past 32 bits: one rank in some two hundred has a chunk."""
    count, ranks = 5000, 1 << 20
    x = np.random.default_rng(3).standard_normal(count) * 10.0 ** (np.arange(count) % 12)
    rows = np.full((ranks, 1), np.nan)
    rows[np.arange(count) * ranks // count, 0] = x
    options = {"length": 512 * count, "chunk": 512, "dtype": "float64", "stream": stream}
    expected = lr.combine_partials(x.view(np.uint32).reshape(count, 2), "sum", **options)
    found = lr.combine_partials(rows.view(np.uint32), "sum", shards=ranks, **options)
    assert found.numpy().tobytes() == expected.numpy().tobytes()


def test_places_count_from_the_array_s_beginning(stream):
    leaf, chunks = 1024, 40
    x = np.zeros(leaf * chunks, np.float32)
    x[[leaf * 7 + 3, leaf * 21 + 900, leaf * 39]] = 5.0
    made = lr.partials(x, "argmax", chunk=leaf, stream=stream)
    options = {"length": len(x), "chunk": leaf, "dtype": "float32", "stream": stream}
    assert int(lr.combine_partials(made, "argmax", **options)) == leaf * 7 + 3
    made = lr.partials(x, "argmax", chunk=leaf, stream=stream, last=True)
    assert int(lr.combine_partials(made, "argmax", last=True, **options)) == leaf * 39
    made = lr.partials(x, "argmin", chunk=leaf, stream=stream)
    assert int(lr.combine_partials(made, "argmin", **options)) == 0


def test_what_is_about_the_first_element_is_told_it(stream, cut):
    x = values(1024 * cut(300, 6) + 9, "float32") + np.float32(1e4)
    options = {"chunk": 2048, "stream": stream}
    half = 2048 * cut(80, 2)
    made = [lr.partials(part, "mean_var", first=x, **options).numpy() for part in (x[:half], x[half:])]
    found = lr.combine_partials(
        np.concatenate(made), "mean_var", length=len(x), dtype="float32", first=x[:1], ddof=1, **options
    )
    assert same(found, lr.mean_var(x, ddof=1, stream=stream))
    with pytest.raises(TypeError, match="pass first="):
        lr.combine_partials(np.concatenate(made), "mean_var", length=len(x), dtype="float32", **options)
    options["accumulate"] = "compensated"  # of four words
    words = np.ascontiguousarray(np.concatenate(made)[:, :4])
    with pytest.raises(TypeError, match="takes one array"):
        lr.combine_partials(words, "sum", length=len(x), dtype="float32", first=x[:1], **options)


def test_masks_and_second_arrays_are_in_parts_too(stream, context, cut):
    x, y = values(1024 * cut(300, 6) + 9, "float32"), values(1024 * cut(300, 6) + 9, "float32", 1)
    mask = values(len(x), "bool", 2)
    lengths = lr.shard_lengths(len(x), "float32", 3)

    def on_device(array):
        return [lr.DeviceArray.from_numpy(part, Stream.create(context)) for part in split(array, lengths)]

    assert same(lr.reduce_shards(on_device(x), "dot", second=on_device(y)), lr.dot(x, y, stream=stream))
    found = lr.reduce_shards(on_device(x), "mean", where=on_device(mask))
    assert same(found, lr.mean(x, where=mask, stream=stream))
    found = lr.reduce_shards(on_device(x), "max", where=on_device(mask), initial=-9)
    assert same(found, lr.max(x, where=mask, initial=-9, stream=stream))


def test_parts_at_any_address_and_of_any_shape(stream, cut):
    length = 2048 * cut(64, 3)
    x = values(length + 3, "int16")
    buffer = lr.DeviceArray.from_numpy(np.concatenate([[np.int16(1)], x]), stream)
    lengths = [2048 * cut(32, 2), 2048 * cut(32, 1), 3]
    parts, start = [], 1
    for count in lengths:
        memory = Buffer.from_pointer(buffer.pointer + 2 * start, 2 * count, context=stream.context, owner=buffer)
        shape = (2, count // 2) if count % 2 == 0 else (count,)
        parts.append(lr.DeviceArray(memory, "int16", shape, stream))
        start += count
    assert int(lr.reduce_shards(parts)) == int(x.sum(dtype=np.int64))


def test_empty_parts_and_empty_arrays(stream):
    x = values(3000, "float32")
    empty, front, back = (lr.DeviceArray.from_numpy(part, stream) for part in (x[:0], x[:1024], x[1024:]))
    parts = [empty, front, empty, back, empty]
    assert lr.reduce_shards(parts).numpy().tobytes() == lr.tree.reduce(x).tobytes()
    assert lr.reduce_shards([empty, empty]).numpy().tobytes() == lr.sum(x[:0]).numpy().tobytes()
    assert float(lr.reduce_shards([empty], "max", initial=3)) == 3
    assert same(lr.reduce_shards(parts, "var"), lr.var(x, stream=stream))
    assert np.isnan(float(lr.reduce_shards([empty, empty], "var")))
    with pytest.raises(ValueError, match="zero-size array to reduction operation max"):
        lr.reduce_shards([empty], "max")


def test_results_where_they_are_asked_for(stream):
    x = values(5000, "float32")
    made = lr.partials(x, "minmax", chunk=1024, stream=stream)
    out = lr.DeviceArray.empty((2,), "float32", stream)
    options = {"length": len(x), "chunk": 1024, "dtype": "float32", "stream": stream}
    assert lr.combine_partials(made, "minmax", out=out, **options) is out
    assert out.numpy().tolist() == [x.min(), x.max()]
    made = lr.partials(x, "sum", chunk=1024, stream=stream)
    total = lr.combine_partials(made, "sum", result_dtype="float64", **options)
    assert total.numpy().tobytes() == lr.sum(x, dtype="float64", stream=stream).numpy().tobytes()


def test_a_plan_of_its_own_in_a_graph(stream, context):
    x = values(9000, "float32")
    made = lr.partials(x, "sum", chunk=1024, stream=stream)
    result = lr.DeviceArray.empty((), "float32", stream)
    with lr.combine_plan("sum", length=len(x), chunk=1024, dtype="float32", context=context) as plan:
        assert (plan.chunks, plan.words, plan.workspace_bytes, plan.result_shape) == (9, 2, 0, ())
        launch = plan.bind(stream)
        launch.check(made.pointer, result.pointer)
        with pytest.raises(ValueError, match="needs 72 bytes; its allocation ends"):
            launch.check(result.pointer, made.pointer)
        with Graph.capture(stream) as graph:
            launch(made.pointer, result.pointer)
        with graph, graph.instantiate() as executable:
            executable.launch(stream)
            assert result.numpy().tobytes() == lr.tree.reduce(x).tobytes()
        launch.close()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"chunk": 1000}, ValueError, "a power of two of leaves of 1024 elements, not 1000"),
        ({"chunk": 3072}, ValueError, "not 3072"),
        ({"chunk": 0}, ValueError, "not 0"),
        ({"chunk": -1024}, ValueError, "not -1024"),
        ({"chunk": 1024.0}, TypeError, "integer"),
        ({"op": "var"}, TypeError, "the whole array's first element, about which it is computed: pass first="),
        ({"op": "std", "first": np.ones(1)}, TypeError, "goes with 1 of float32, not with 1 of float64"),
        ({"op": "std", "first": np.ones(0, np.float32)}, TypeError, "not with 0 of float32"),
        ({"first": np.ones(1, np.float32)}, TypeError, "takes one array"),
        ({"where": np.ones(5000, bool), "first": np.ones(1)}, ValueError, "not several of them"),
        ({"op": INDEXED}, lr.UnsupportedError, "index"),
        ({"map": "x * float(i)"}, lr.UnsupportedError, "index"),
        ({"op": "nothing"}, lr.UnsupportedError, "no operator"),
        ({"op": "dot"}, TypeError, "takes a second array"),
        ({"second": np.ones(5000, np.float32)}, TypeError, "takes one array"),
        ({"op": "dot", "second": np.ones(4999, np.float32)}, TypeError, "goes with 5000 of float32, not with 4999"),
        ({"where": np.ones(5000, np.int8)}, TypeError, "5000 of bool"),
        ({"accumulate": "int8"}, lr.UnsupportedError, "accumulates in"),
    ],
)
def test_partials_that_there_are_not(arguments, error, words, stream):
    x = values(5000, "float32")
    with pytest.raises(error, match=words):
        lr.partials(x, **{"op": "sum", "chunk": 1024, "stream": stream, **arguments})


def test_what_does_not_fit_together_is_refused(stream, context):
    x = values(5000, "float32")
    made = lr.partials(x, "sum", chunk=1024, stream=stream)
    with pytest.raises(ValueError, match=r"partials of shape \(6, 2\) and type uint32; these are 10 of uint32"):
        lr.combine_partials(made, "sum", length=6000, chunk=1024, dtype="float32", stream=stream)
    with pytest.raises(ValueError, match=r"partials of shape \(5, 3\)"):
        lr.combine_partials(made, "argmax", length=5000, chunk=1024, dtype="float32", stream=stream)
    floats = lr.DeviceArray(made._buffer, "float32", (10,), stream)
    with pytest.raises(ValueError, match="10 of float32"):
        lr.combine_partials(floats, "sum", length=5000, chunk=1024, dtype="float32", stream=stream)
    part = lr.DeviceArray.from_numpy(x, stream)
    with pytest.raises(ValueError, match="shard 0 has 5000 elements, which end within a leaf of 1024"):
        lr.reduce_shards([part, part])
    with pytest.raises(ValueError, match="there is none"):
        lr.reduce_shards([])
    with pytest.raises(TypeError, match="shard 1 is on the host"):
        lr.reduce_shards([part, x])
    with pytest.raises(TypeError, match="shard 0 does not tell its device"):
        lr.reduce_shards([[1.0]])
    whole, doubles = (lr.DeviceArray.from_numpy(each, stream) for each in (x[:1024], x.astype(np.float64)))
    with pytest.raises(TypeError, match="shard 1 is of float64, shard 0 of float32"):
        lr.reduce_shards([whole, doubles])
    with pytest.raises(ValueError, match="1 shards and 2 streams"):
        lr.reduce_shards([part], streams=[stream, stream])
    with pytest.raises(TypeError, match="^var takes one array$"):
        lr.reduce_shards([part], "var", second=[part])
    with pytest.raises(ValueError, match="not both"):
        lr.reduce_shards([part], where=[part], second=[part])
    assert Context.current() == context


def test_what_is_not_contiguous_is_refused(stream, monkeypatch):
    x = lr.DeviceArray.from_numpy(values(2048, "float32"), stream)
    view = view_array(x, stream)._replace(shape=(1024,), strides_bytes=(8,))
    for name in ("view_in", "trusted_view"):
        monkeypatch.setattr(f"lowlevel_reduce.calls.execute.{name}", lambda *_: view)
    with pytest.raises(ValueError, match=r"the shard of shape \(1024,\) has strides \(8,\): it is not contiguous"):
        lr.partials(x, "sum", chunk=1024, stream=stream)


# -- several devices --------------------------------------------------------------------------------------------------


@pytest.fixture
def devices(machine):
    """Some devices: the real ones, or a driver of its own that simulates three."""
    with contextlib.ExitStack() as stack:
        if machine == "simulated":
            stack.enter_context(simulator.use("H200", devices=3))
        if Device.count() < 2:
            pytest.skip("needs two devices")
        yield Device.all()


@pytest.mark.parametrize("make", ["primary", "create"])
@pytest.mark.parametrize("op", ["sum", "argmax", "softmax_stats", "mean_var"])
def test_devices_share_an_array(make, op, devices, cut):
    x = values(1024 * cut(5000, 9) + 100, "float32")
    with contextlib.ExitStack() as stack:
        contexts = [stack.enter_context(getattr(Context, make)(device)) for device in devices]
        streams = [stack.enter_context(Stream.create(context)) for context in contexts]
        before = Context.current()
        whole = lr.reduce(x, op, stream=streams[0])
        parts = split(x, lr.shard_lengths(len(x), "float32", len(devices)))
        arrays = [lr.DeviceArray.from_numpy(part, stream) for part, stream in zip(parts, streams, strict=True)]
        for _ in range(2):  # the second call finds what the first has made
            found = lr.reduce_shards(arrays, op)
            assert same(found, whole)
        first = found[0] if isinstance(found, tuple) else found
        assert first.context == contexts[0]
        assert Context.current() == before
        # Two parts on one device, and its streams named: the result lies on the first part's device.
        parts = split(x, lr.shard_lengths(len(x), "float32", 3))
        homes = [streams[1], streams[0], streams[1]]
        arrays = [lr.DeviceArray.from_numpy(part, home) for part, home in zip(parts, homes, strict=True)]
        found = lr.reduce_shards(arrays, op, streams=homes)
        assert same(found, whole)
        assert (found[0] if isinstance(found, tuple) else found).context == contexts[1]


def test_copies_come_behind_what_they_copy_and_before_what_frees_it(machine):
    if machine == "cuda":
        pytest.skip("a simulated driver records its launches")
    with simulator.use("H200", devices=2) as driver, contextlib.ExitStack() as stack:
        contexts = [stack.enter_context(Context.primary(number)) for number in (0, 1)]
        streams = [stack.enter_context(Stream.create(context)) for context in contexts]
        arrays = [lr.DeviceArray.from_numpy(values(2048, "float32"), stream) for stream in streams]
        order = Order(driver)
        lr.reduce_shards(arrays)
        gc.collect()

        def last(name, stream):
            return max(i for i, work in enumerate(order.works) if work == (name, stream.handle))

        copy = last("cuMemcpyPeerAsync", streams[0])
        assert order.before(last("cuLaunchKernelEx", streams[1]), copy)
        assert order.before(copy, last("cuLaunchKernelEx", streams[0]))
        lr.partials(arrays[1], chunk=1024)  # where the partials were that were copied
        assert order.before(copy, last("cuLaunchKernelEx", streams[1]))


def test_the_first_element_is_brought_behind_what_makes_it(machine):
    """Each shard's variance is about the first one's first element, of which another device gets a copy."""
    if machine == "cuda":
        pytest.skip("a simulated driver records its launches")
    with simulator.use("H200", devices=2) as driver, contextlib.ExitStack() as stack:
        contexts = [stack.enter_context(Context.primary(number)) for number in (0, 1)]
        streams = [stack.enter_context(Stream.create(context)) for context in contexts]
        arrays = [lr.DeviceArray.from_numpy(values(2048, "float32"), stream) for stream in streams]
        order = Order(driver)
        lr.reduce_shards(arrays, "var")
        gc.collect()
        copies = [i for i, (name, _) in enumerate(order.works) if name.startswith("cuMemcpy")]
        made, brought = copies[:2]
        assert [order.works[i][1] for i in (made, brought)] == [streams[0].handle, streams[1].handle]
        assert order.before(made, brought)
        gathered = order.last("cuMemcpyPeerAsync")
        freed = [i for i, work in enumerate(order.works) if work == ("cuMemFreeAsync", streams[1].handle)]
        assert order.works[gathered][1] == streams[0].handle
        assert freed
        assert all(order.before(gathered, i) for i in freed), "the partials among them"


@pytest.mark.parametrize("op", ["sum", "argmax"])  # one launch for all chunks, one for each kind
def test_arrays_of_several_lengths_in_one_stream(op, stream):
    """What is kept for one is for so many whole chunks, and for a rest of that length."""
    for length in (5000, 5001, 3000, 3976, 4096, 5000):
        x = values(length, "float32")
        made = lr.partials(x, op, chunk=1024, stream=stream)
        total = lr.combine_partials(made, op, length=length, chunk=1024, dtype="float32", stream=stream)
        assert total.numpy().tobytes() == lr.tree.reduce(x, op).tobytes()
        there = lr.DeviceArray.from_numpy(x, stream)
        assert lr.reduce_shards([there], op).numpy().tobytes() == lr.tree.reduce(x, op).tobytes()


def test_repeated_partials_are_those_of_each_array(stream):
    """Each length and option has launches of its own, which take other arrays, their masks and their offsets."""
    x, y = values(5000, "float32"), values(5000, "float32", seed=7)
    for array, length in ((x, 5000), (y, 5000), (x, 4096), (y, 5000), (x, 5000)):
        there = lr.DeviceArray.from_numpy(array[:length], stream)
        for about in ({}, {"where": array[:length] > 0}):
            taken = {name: lr.DeviceArray.from_numpy(each, stream) for name, each in about.items()}
            made = lr.partials(there, chunk=1024, stream=stream, rows=7 if about else None, **taken)
            assert made.shape == (7 if about else -(-length // 1024), 2)
            options = {"length": length, "chunk": 1024, "dtype": "float32", "where": bool(about)}
            if about:
                assert made.numpy()[-(-length // 1024) :].tobytes().strip(b"\xff") == b""
                made = made[: -(-length // 1024)]
            total = lr.combine_partials(made, stream=stream, **options)
            assert total.numpy().tobytes() == lr.tree.reduce(array[:length], **about).tobytes()
        with pytest.raises(TypeError, match="chunk is an integer"):
            lr.partials(there, chunk=1024.0, stream=stream)


def test_partials_gathered_as_bytes_lie_where_words_do(stream):
    x = values(3000, "float32")
    made = lr.partials(x, chunk=1024, stream=stream)
    room = lr.DeviceArray.from_numpy(np.zeros(made.nbytes + 4, np.uint8), stream)
    room._buffer.copy_from(made.numpy().view(np.uint8).ravel(), stream=stream, size_bytes=made.nbytes)
    options = {"length": len(x), "chunk": 1024, "dtype": "float32", "stream": stream}
    for _ in range(2):
        total = lr.combine_partials(room[: made.nbytes], **options)
        assert total.numpy().tobytes() == lr.tree.reduce(x).tobytes()
        with pytest.raises(ValueError, match="are no partials, which consist of words of 4 bytes"):
            lr.combine_partials(room[1 : made.nbytes + 1], **options)


def test_shards_are_read_when_their_streams_have_written_them(devices):
    with contextlib.ExitStack() as stack:
        contexts = [stack.enter_context(Context.primary(device)) for device in devices[:2]]
        streams = [stack.enter_context(Stream.create(context)) for context in contexts]
        arrays = [lr.DeviceArray.from_numpy(np.ones(2048, np.float32), stream) for stream in streams]
        total = lr.reduce_shards(arrays)
        for array, stream in zip(arrays, streams, strict=True):
            array._buffer.fill(0, stream=stream)  # behind what has read it
        assert float(total) == 4096


@pytest.mark.parametrize("op", ["sum", "var"])
def test_a_stream_of_another_device_is_refused_in_words(op, devices):
    with contextlib.ExitStack() as stack:
        contexts = [stack.enter_context(Context.primary(device)) for device in devices[:2]]
        streams = [stack.enter_context(Stream.create(context)) for context in contexts]
        array = lr.DeviceArray.from_numpy(np.ones(2048, np.float32), streams[0])
        with pytest.raises(ValueError, match="the input at 0x[0-9a-f]+ is on device 0; this runs on device 1"):
            lr.reduce_shards([array], op, streams=[streams[1]])
