"""Every kernel against the law, bit for bit: types, strategies, cluster sizes, lengths, alignments, accumulators."""

import contextlib
import functools
import itertools

import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.dtypes import ELEMENT_TYPES, element_type

TYPES = [entry.name for entry in ELEMENT_TYPES]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
CONFIGURATIONS = [
    {"strategy": "block"},
    {"strategy": "block", "block_threads": 32},
    *({"strategy": "cluster", "cluster": cluster} for cluster in (1, 2, 4, 8, 16)),
    *({"strategy": "tiles", "cluster": cluster} for cluster in (1, 2, 4, 8, 16)),
    {"strategy": "tiles", "cluster": 2, "block_threads": 1024},
    {"strategy": "two_pass"},
    {"strategy": "cooperative"},
    {},
]
POWERS = sorted({2**i + d for i in range(1, 21, 2) for d in (-1, 0, 1)})
LENGTHS = [0, 1, 2, 3, *POWERS[3:], 1_000_003]


def name_of(configuration):
    return "-".join(map(str, configuration.values())) or "chosen"


@functools.cache
def data(dtype, n):
    """Return values whose sum depends on the order of the additions, infinities and NaN left out."""
    rng = np.random.default_rng(n)
    dtype = element_type(dtype).dtype
    if dtype.kind in "iu":
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, n, dtype, endpoint=True)
    if dtype.kind == "b":
        return rng.integers(0, 3, n, np.uint8).view(bool)  # any nonzero byte is true
    return (rng.standard_normal(n) * 2.0 ** rng.integers(-8, 6, n)).astype(dtype)


@functools.cache
def expected(dtype, n, accumulate=None, result=None):
    return lr.tree.reduce(data(dtype, n), accumulate=accumulate, dtype=result)


class Runner:
    """Device memory for one input at any byte offset, guarded by poison around it, and one result.

    With `exact`, each input has memory of its own that ends with it: for a driver that sees a byte too far.
    """

    def __init__(self, stream, largest_bytes, *, exact=False):
        self.stream = stream
        self.exact = exact
        self.source = lr.Buffer.allocate(largest_bytes + 64, stream.context)
        self.result = lr.Buffer.allocate(16, stream.context)

    @contextlib.contextmanager
    def memory(self, size_bytes):
        if self.exact:
            with lr.Buffer.allocate(max(1, size_bytes), self.stream.context) as memory:
                yield memory
        else:
            yield self.source

    def sum(self, x, offset=0, repeat=1, **options):
        context = self.stream.context
        with (
            lr.plan("sum", shape=x.shape, dtype=x.dtype, context=context, **options) as plan,
            self.memory(offset + x.nbytes) as memory,
        ):
            memory.fill(0xA5, stream=self.stream)  # whatever is read outside the input shows
            place = lr.Buffer.from_pointer(memory.pointer + offset, x.nbytes, context=context)
            place.copy_from(x, stream=self.stream)
            launch = plan.bind(self.stream)
            value = np.empty((), plan.result_dtype)
            for _ in range(repeat):  # a second launch meets the workspace as the first one left it
                self.result.fill(0xA5, stream=self.stream)
                launch(place.pointer, self.result.pointer)
            self.result.copy_to(value, stream=self.stream, size_bytes=value.nbytes)
            self.stream.synchronize()
            launch.close()
            return value


@pytest.fixture
def runner(stream, machine):
    runner = Runner(stream, 40 << 20, exact=machine == "simulated")
    yield runner
    runner.source.close()
    runner.result.close()


def assert_bits(actual, expected, what):
    assert actual.dtype == expected.dtype
    assert actual.tobytes() == expected.tobytes(), f"{what}: {actual!r} is not {expected!r}"


@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=name_of)
@pytest.mark.parametrize("dtype", TYPES)
def test_bits_of_the_tree(runner, cut, dtype, configuration):
    for n in cut(LENGTHS, [0, 1, 1023, 4097, 20_001]):
        x = data(dtype, n)
        assert_bits(runner.sum(x, repeat=2, **configuration), expected(dtype, n), f"{n} elements")


@pytest.mark.parametrize("configuration", [{"strategy": "block"}, {"strategy": "tiles"}], ids=name_of)
@pytest.mark.parametrize("dtype", TYPES)
def test_any_alignment(runner, cut, dtype, configuration):
    for n in cut([1, 5, 1023, 4096 + 7, 50_001], [5, 4096 + 7]):
        for offset in cut(range(16), [1, 2, 4, 7, 8, 15]):
            x = data(dtype, n)
            actual = runner.sum(x, offset=offset, **configuration)
            assert_bits(actual, expected(dtype, n), f"{n} elements at offset {offset}")


@pytest.mark.parametrize("dtype", FLOATS)
def test_every_accumulator(runner, cut, few, dtype):
    n = cut(70_001, 20_011)
    every = list(itertools.product(element_type(dtype).accumulators, CONFIGURATIONS[::3]))
    for accumulate, configuration in few(every, 5):
        actual = runner.sum(data(dtype, n), accumulate=accumulate, **configuration)
        assert_bits(actual, expected(dtype, n, accumulate), f"{accumulate} {configuration}")


@pytest.mark.parametrize("dtype", TYPES)
def test_every_result_type(runner, dtype):
    for result in element_type(dtype).results:
        actual = runner.sum(data(dtype, 5003), result_dtype=result, strategy="block")
        assert_bits(actual, expected(dtype, 5003, None, result), result)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("special", [[np.nan], [np.inf], [-np.inf], [np.inf, -np.inf], [-0.0]], ids=str)
def test_special_values(runner, dtype, special):
    filler = data(dtype, 3000) * (0 if special == [-0.0] else 1)
    for position in (0, 1500, 2999 - len(special)):
        x = -np.abs(filler) if special == [-0.0] else filler.copy()
        x[position : position + len(special)] = special
        for accumulate in (None, "compensated"):
            actual = runner.sum(x, accumulate=accumulate)
            assert_bits(actual, lr.tree.reduce(x, accumulate=accumulate), f"{special} at {position}")


def test_lengths_past_31_bits(stream):
    n = 2**31 + 5
    x = np.random.default_rng(0).integers(0, 256, n, np.uint8)
    wanted = np.uint64(x.sum(dtype=np.uint64))
    runner = Runner(stream, n)
    for configuration in CONFIGURATIONS:
        assert runner.sum(x, **configuration) == wanted, configuration
    assert runner.sum(x, offset=3) == wanted


def test_one_workspace_serves_every_shorter_problem(runner, stream, cut):
    context = stream.context
    with lr.plan("sum", shape=10**7, dtype="float32", context=context) as large:
        workspace = lr.Buffer.allocate(large.workspace_bytes, context)
    for n in cut((10**6, 3, 70_000), (100_000, 3, 70_000)):
        x = data("float32", n)
        runner.source.copy_from(x, stream=stream, size_bytes=x.nbytes)
        with lr.plan("sum", shape=n, dtype="float32", context=context, strategy="tiles") as plan:
            plan.bind(stream, workspace)(runner.source.pointer, runner.result.pointer)
        value = np.empty((), np.float32)
        runner.result.copy_to(value, stream=stream, size_bytes=4)
        stream.synchronize()
        assert_bits(value, expected("float32", n), f"{n} elements")


def test_replays_of_a_graph_see_new_input(runner, stream, cut):
    n = cut(300_000, 30_000)
    with lr.plan("sum", shape=n, dtype="float32", context=stream.context) as plan:
        launch = plan.bind(stream)
        with lr.Graph.capture(stream) as graph:
            launch(runner.source.pointer, runner.result.pointer)
        with graph.instantiate() as executable:
            for seed in range(3):
                x = np.random.default_rng(seed).standard_normal(n).astype(np.float32)
                runner.source.copy_from(x, stream=stream, size_bytes=x.nbytes)
                executable.launch(stream)
                value = np.empty((), np.float32)
                runner.result.copy_to(value, stream=stream, size_bytes=4)
                stream.synchronize()
                assert_bits(value, lr.tree.reduce(x), f"seed {seed}")


def test_created_context_and_default_streams(device):
    x = data("float64", 30_000)
    before = lr.Context.current()
    with lr.Context.create(device) as context:
        with context.pushed():
            for stream in (lr.Stream.legacy(context), lr.Stream.per_thread(context), lr.Stream.create(context)):
                result = lr.sum(x, stream=stream)
                assert_bits(result.numpy(), expected("float64", 30_000), repr(stream))
                del result
        with lr.plan("sum", shape=x.shape, dtype=x.dtype, context=context) as plan:  # while another is current
            stream = lr.Stream.create(context)
            source = lr.DeviceArray.from_numpy(x, stream)
            result = lr.DeviceArray.empty((), plan.result_dtype, stream)
            plan.bind(stream)(source.pointer, result.pointer)
            assert_bits(result.numpy(), expected("float64", 30_000), "from outside")
    assert lr.Context.current() == before


def test_description_says_what_will_run(context, cut):
    text = lr.plan("sum", shape=10**8, dtype="float32", context=context).describe()
    parts = ["float32", "float64", "tiles", "blocks", "workspace", "registers"]
    for part in cut(parts, parts[:-1]):  # of PTX, which nothing has assembled, no registers are known
        assert part in text
