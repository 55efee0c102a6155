"""Row operations on the device: the tree's bits by every strategy, at any address and stride, in place, in graphs."""

import ml_dtypes
import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import tree
from lowlevel_reduce.driver import Graph
from lowlevel_reduce.operators import NumpyMeaning
from lowlevel_reduce.rowops import strategy
from lowlevel_reduce.rowops.norms import normalize_of, rms_norm_of

TYPES = ["bfloat16", "float16", "float32", "float64"]
WAYS = [
    {},
    {"strategy": "warp_rows"},
    {"strategy": "block_rows"},
    {"strategy": "block_rows", "cluster": 4},
    {"strategy": "split_rows", "cluster": 1},
    {"strategy": "split_rows", "cluster": 2},
    {"strategy": "turn_rows"},
    {"strategy": "turn_rows", "cluster": 2},
]
LENGTHS = [1, 31, 64, 257, 1000, 2048, 5003, 9000]


def values(name, shape, seed=0):
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    rng = np.random.default_rng((seed, *shape))
    return (rng.standard_normal(shape) * 3).astype(dtype)


def suits(way, dtype, length):
    """Whether a strategy takes rows of so many elements."""
    most = {"warp_rows": 1, "block_rows": 16, "split_rows": 8}.get(way.get("strategy"), 1 << 20)
    return length * values(dtype, (1,)).itemsize <= 4096 * most * way.get("cluster", 1)


def assert_bits(got, expected):
    """Every result has the bits that NumPy gives."""
    got, expected = (each if isinstance(each, tuple) else (each,) for each in (got, expected))
    assert len(got) == len(expected)
    for array, other in zip(got, expected, strict=True):
        one = array.numpy()
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.tobytes() == other.tobytes()


def ulps(got, expected):
    """Return by how many units in the last place results differ at most; NaN and infinities must be the same."""
    got, expected = np.asarray(got), np.asarray(expected)
    one, other = got.astype(np.float64), expected.astype(np.float64)
    usual = np.isfinite(other)
    np.testing.assert_array_equal(one[~usual], other[~usual])
    info = ml_dtypes.finfo(expected.dtype)
    unit = np.exp2(np.floor(np.log2(np.maximum(np.abs(other), float(info.tiny)))) - info.nmant)
    return np.max(np.abs(one - other)[usual] / unit[usual], initial=0.0)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_rms_norm_and_its_residual(stream, cut, dtype, way):
    for length in cut(LENGTHS, [64, 1000, 5003]):
        if not suits(way, dtype, length):
            continue
        x, residual, weight = (values(dtype, shape, k) for k, shape in enumerate([(5, length), (5, length), (length,)]))
        got = lr.rms_norm(x, weight, 1e-6, residual=residual, return_rstd=True, stream=stream, **way)
        assert_bits(got, tree.rms_norm(x, weight, 1e-6, residual=residual, return_rstd=True))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_layer_norm(stream, cut, dtype, way):
    for length in cut(LENGTHS, [31, 2048]):
        if not suits(way, dtype, length):
            continue
        x, weight, bias = (values(dtype, shape, k) for k, shape in enumerate([(3, length), (length,), (length,)]))
        got = lr.layer_norm(x, weight, bias, return_stats=True, stream=stream, **way)
        assert_bits(got, tree.layer_norm(x, weight, bias, return_stats=True))


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("log", [False, True])
def test_softmax_of_every_type(stream, cut, few, log, way):
    """Where exp and log are, the device's own: one number by all strategies, within a few ulp of NumPy's."""
    ours, meant = (lr.log_softmax, tree.log_softmax) if log else (lr.softmax, tree.softmax)
    lengths = cut(LENGTHS, [257, 2048])
    # Neighbours differ in both, since each pair has kernels of its own, and a sample takes two.
    pairs = [(dtype, lengths[(i + k) % len(lengths)]) for k in range(len(lengths)) for i, dtype in enumerate(TYPES)]
    for dtype, length in few(pairs, 2):
        if not suits(way, dtype, length):
            continue
        x = values(dtype, (3, length))
        got = ours(x, scale=0.5, stream=stream, **way).numpy()
        assert got.tobytes() == ours(x, scale=0.5, stream=stream).numpy().tobytes()
        assert ulps(got, meant(x, scale=0.5)) <= (8 if dtype.endswith(("32", "64")) else 1)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_row_of_nothing_but_infinities_has_as_many_as_it_has(stream, few, dtype):
    """Elements that stand for absent ones are -inf themselves."""
    count = lr.RowOperation("count", reduce={"largest, total": "softmax_stats"}, keep={"total": "total"})
    for length in few((7, 300, 1, 33, 2305), 2):
        x = values(dtype, (3, length)) * 0 - np.inf
        got = lr.row_operation(count, x.astype(dtype), stream=stream).numpy()
        assert np.all(got == length)
        assert np.all(np.isnan(lr.softmax(x.astype(dtype), stream=stream).numpy().astype(np.float32)))


@pytest.mark.parametrize("ahead", [0, 3, 9, 15])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithms_of_what_is_nearly_one(stream, dtype, ahead):
    """Where one element is far ahead, its logarithm and its loss are small, and no differences of large numbers.

    The others' exponentials are off by half a unit of their distance in binary digits, of which 22 are below 32.
    """
    x = values(dtype, (4, 300))
    target = np.argmax(x, axis=-1)
    target[3] = 5
    x[np.arange(4), target] += np.dtype(dtype).type(ahead)
    x[1] += 1000
    wide = np.longdouble if np.finfo(np.longdouble).nmant > 60 else np.float64
    others = x.astype(wide) - x.max(axis=-1, keepdims=True)
    rest = np.exp(others).sum(axis=-1, keepdims=True, where=others < 0)
    exact = (others - np.log1p(rest)).astype(np.float64)
    most = {"float32": 16, "float64": 3}[dtype]
    for ours in (lr.log_softmax(x, stream=stream).numpy(), tree.log_softmax(x)):
        assert ulps(ours, exact.astype(dtype)) <= most
    losses = [each.cross_entropy(x, target, reduction="none").loss for each in (lr, tree)]
    probabilities = [each.log_prob(x, target).log_prob for each in (lr, tree)]
    for found in (*losses, *(-np.asarray(each) for each in probabilities)):
        assert ulps(np.asarray(found), -exact[np.arange(4), target].astype(dtype)) <= most
    assert ulps(lr.log_softmax(x, stream=stream).numpy(), tree.log_softmax(x)) <= 4


@pytest.mark.parametrize("spread", [1, 12, 40])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_softmax_is_the_quotient_of_its_statistics(stream, dtype, spread):
    """Within the bound of cuda_src/rowops/quotient.cuh; in float64, of an exp within 1 ulp, 2.5; NumPy rounds once."""
    x = values(dtype, (4, 900)) * np.dtype(dtype).type(spread / 3)
    wide = np.longdouble if np.finfo(np.longdouble).nmant > 60 else np.float64
    stats = [each.numpy() for each in lr.softmax_stats(x, axis=-1, stream=stream)]
    for got, (largest, total), most in (
        (lr.softmax(x, stream=stream).numpy(), stats, 1.6),
        (tree.softmax(x), tree.reduce(x, "softmax_stats", axis=-1), 0.51),
    ):
        exact = np.exp(x.astype(wide) - largest[:, None].astype(wide)) / total[:, None].astype(wide)
        usual = exact > np.finfo(dtype).tiny
        off = np.abs(got.astype(wide) - exact)
        unit = np.spacing(exact.astype(dtype)).astype(wide)
        assert np.max((off / unit)[usual]) <= (most if dtype == "float32" else 2.5)
        assert np.all(off[~usual] <= 2 * np.finfo(dtype).smallest_subnormal)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("way", [{}, *({"strategy": f"{each}_rows"} for each in ("warp", "block", "turn"))], ids=str)
def test_masked_rows_are_shorter_rows(stream, dtype, way):
    x = values(dtype, (2, 7, 600))
    lengths = np.arange(14, dtype=np.int32).reshape(2, 7) * 45
    hidden = lr.softmax(x, lengths=lengths, stream=stream, **way).numpy()
    causal = lr.log_softmax(x, causal=True, stream=stream, **way).numpy()
    for row in np.ndindex(2, 7):
        short = int(lengths[row])
        alone = lr.softmax(x[row][:short][None], stream=stream).numpy()[0] if short else x[row][:0]
        assert hidden[row][:short].tobytes() == alone.tobytes()
        assert not hidden[row][short:].astype(np.float32).any()
        seen = row[1] + 1 + 600 - 7
        assert causal[row][:seen].tobytes() == lr.log_softmax(x[row][None, :seen], stream=stream).numpy()[0].tobytes()
        assert np.all(causal[row][seen:].astype(np.float32) == -np.inf)


def test_masked_rows_that_share_a_warp(stream, monkeypatch):
    monkeypatch.setattr(strategy, "_WARPS_TO_FILL", 0)
    monkeypatch.setattr(strategy, "_WARPS_OF_A_STEP", 0)
    monkeypatch.setattr(strategy, "_LANE_BITS_OF_TWO_STEPS", -1)
    x, lengths = values("bfloat16", (6, 64)), np.array([3, 0, 64, 17, 31, 8], np.int32)
    hidden = lr.softmax(x, lengths=lengths, stream=stream).numpy()
    for row, short in enumerate(lengths):
        alone = lr.softmax(x[row][:short][None], stream=stream).numpy()[0] if short else x[row][:0]
        assert hidden[row][:short].tobytes() == alone.tobytes()
        assert not hidden[row][short:].astype(np.float32).any()


def test_rows_that_are_not_finite(stream):
    x = np.zeros((4, 40), np.float32)
    x[0] = -np.inf
    x[1, 3] = np.inf
    x[2, 5] = np.nan
    x[3, 7] = -np.inf
    got = lr.softmax(x, stream=stream).numpy()
    assert np.isnan(got[:3]).all()
    assert got[3, 7] == 0
    assert ulps(got, tree.softmax(x)) <= 1


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "int8"])
def test_quantize(stream, cut, dtype, kind):
    x = values(dtype, (6, 256))
    x[1] = 0
    x[2, 3] = np.inf
    x[3, 4] = np.nan
    x[4] = x[4] * np.float32(1e-3)
    for block in cut([None, 32, 64, 128], [None, 32, 128]):
        assert_bits(lr.quantize(x, kind, block=block, stream=stream), tree.quantize(x, kind, block=block))
    weight = values(dtype, (256,), 7)
    got = lr.quantize(x[4:], kind, rms_eps=1e-5, weight=weight, stream=stream)
    assert_bits(got, tree.quantize(x[4:], kind, rms_eps=1e-5, weight=weight))


@pytest.mark.parametrize("p", [1, 2, np.inf])
def test_normalize(stream, p):
    x = values("float32", (5, 300))
    x[2] = 0
    assert_bits(lr.normalize(x, p, stream=stream), tree.normalize(x, p))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_cross_entropy_and_log_prob(stream, dtype):
    x = values(dtype, (6, 700))
    target = np.array([0, 699, -100, 700, -1, 5])
    got, meant = (each.cross_entropy(x, target, reduction="none") for each in (lr, tree))
    assert ulps(got.loss.numpy(), meant.loss) <= 8
    assert ulps(got.lse.numpy(), meant.lse) <= 2
    assert got.loss.numpy()[2] == 0
    assert np.isnan(got.loss.numpy()[3:5]).all()
    there = [0, 1, 2, 5]
    for reduction in ("mean", "sum"):
        got = lr.cross_entropy(x[there], target[there], reduction=reduction, stream=stream)
        assert ulps(got.numpy(), tree.cross_entropy(x[there], target[there], reduction=reduction)) <= 4
    got, meant = lr.log_prob(x, target, scale=0.5, stream=stream), tree.log_prob(x, target, scale=0.5)
    assert ulps(got.log_prob.numpy(), meant.log_prob) <= 4


ABSMAX = lr.Operator(
    "absmax",
    map="fabsf(x)",
    combine="fmaxf(a, b)",
    identity='nanf("")',
    numpy=NumpyMeaning((np.float32(np.nan),), lambda x, y, i: (np.abs(x),), lambda a, b: (np.fmax(a[0], b[0]),)),
)
OWN = lr.RowOperation(
    "own",
    reduce={"middle": "mean", "largest": ABSMAX, "place": "argmax"},
    row={"half": "largest / 2"},
    write={"out": "(x - middle) * weight / half + Number(i - place)", "whole: int32": "x * 10"},
    keep={"largest": "largest", "place: int64": "place", "last: float64": "at(n - 1)"},
    columns=("weight",),
    numpy=lr.RowMeaning(
        row=lambda v: {"half": v.largest / v.number(2)},
        write=lambda v: {
            "out": (v.x - v.middle) * v.weight / v.half + (v.i - v.place).astype(v.number),
            "whole": v.x * v.number(10),
            "largest": v.largest,
            "place": v.place,
            "last": v.at(v.n - 1),
        },
    ),
)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_own_operation_of_several_reductions(stream, cut, few, way):
    for length in few(cut([37, 1024, 7000], [37, 3000]), 1):
        if not suits(way, "float32", length):
            continue
        x, weight = values("float32", (3, length)), values("bfloat16", (length,), 1)
        got = lr.row_operation(OWN, x, weight=weight, stream=stream, **way)
        assert_bits(got, tree.row_operation(OWN, x, weight=weight))


def test_rows_that_share_words_in_place(stream):
    """What lies beside a row in its words is another row's, which another block writes."""
    x = values("bfloat16", (9, 531))
    there = lr.DeviceArray.from_numpy(x, stream)
    lr.softmax(there, out=there, stream=stream)
    assert there.numpy().tobytes() == lr.softmax(x, stream=stream).numpy().tobytes()


@pytest.mark.parametrize("way", WAYS[1:4], ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_rows_at_odd_addresses_are_written_in_whole_blocks(stream, cut, dtype, way):
    """By blocks that lie in the row, and element by element before and behind them; in place, too."""
    for length in cut([1, 7, 131, 149, 511, 1023, 2055, 4103], [7, 149, 2055]):
        if not suits(way, dtype, length):
            continue
        x = values(dtype, (11, length))
        expected = tree.normalize(x)
        assert_bits(lr.normalize(x, stream=stream, **way), expected)
        there = lr.DeviceArray.from_numpy(x, stream)
        lr.normalize(there, out=there, stream=stream, **way)
        assert_bits(there, expected)
        memory = lr.DeviceArray.from_numpy(np.zeros(x.size + 3, x.dtype), stream)
        beside = memory[3:].reshape(x.shape)
        lr.normalize(x, out=beside, stream=stream, **way)
        assert_bits(beside, expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_short_rows_one_behind_the_other(stream, cut, monkeypatch, dtype):
    """Several of a warp, whose blocks of 16 bytes have elements of two rows; in place, and elsewhere."""
    monkeypatch.setattr(strategy, "_WARPS_TO_FILL", 0)  # else a warp has several only of more rows than a test has
    monkeypatch.setattr(strategy, "_WARPS_OF_A_STEP", 0)
    monkeypatch.setattr(strategy, "_LANE_BITS_OF_TWO_STEPS", -1)
    for rows, length in cut(
        [(70, 9), (67, 15), (66, 31), (43, 61), (37, 62), (19, 149), (5, 257)], [(43, 61), (5, 149)]
    ):
        x = values(dtype, (rows, length))
        expected = lr.softmax(x, stream=stream, strategy="turn_rows").numpy()  # a row for each block
        for offset, other in ((0, 0), (5, 5), (1, 0)):
            flat, there = np.zeros(x.size + 16, x.dtype), np.full(x.size + 16, 7, x.dtype)
            flat[offset : offset + x.size] = x.ravel()
            memory, out = (lr.DeviceArray.from_numpy(each, stream) for each in (flat, there))
            read = memory[offset : offset + x.size].reshape(x.shape)
            lr.softmax(read, out=out[other : other + x.size].reshape(x.shape), stream=stream)
            there[other : other + x.size] = expected.ravel()
            assert_bits(out, there)
            if offset:
                lr.softmax(read, out=read, stream=stream)
                flat[offset : offset + x.size] = expected.ravel()
                assert_bits(memory, flat)
        of_each = {"lengths": np.arange(rows, dtype=np.int64) % (length + 1), "stream": stream}
        assert_bits(lr.softmax(x, **of_each), lr.softmax(x, strategy="turn_rows", **of_each).numpy())


@pytest.mark.parametrize("steps", [(64, -1), (0, 5), (0, -1)], ids=["one", "two", "all"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_short_rows_by_as_many_steps_of_a_warp(stream, cut, monkeypatch, dtype, steps):
    """Rows of one step, of two, or of all eight have the bits of a row for each block; at odd addresses, in place."""
    shapes = [(41, 61), (17, 149), (33, 8), (37, 64), (9, 128), (12, 33), (70, 7), (19, 200), (3, 1)]
    for rows, length in cut(shapes, [(21, 64)]):
        x, weight = values(dtype, (rows, length)), values(dtype, (length,))
        x[0, 0], x[1], x[2] = np.nan, -np.inf, -0.0
        lengths = np.arange(rows) % (length + 1)
        calls = (
            lambda a, **o: lr.softmax(a, stream=stream, **o),
            lambda a, **o: lr.softmax(a, lengths=lengths, stream=stream, **o),  # noqa: B023 - called in this turn
            lambda a, **o: lr.rms_norm(a, weight, stream=stream, **o),  # noqa: B023
            lambda a, **o: lr.layer_norm(a, weight, weight, stream=stream, **o),  # noqa: B023
        )
        for call in cut(calls, calls[1:3]):
            expected = call(x, strategy="turn_rows").numpy()
            monkeypatch.setattr(strategy, "_WARPS_TO_FILL", 0)
            monkeypatch.setattr(strategy, "_WARPS_OF_A_STEP", steps[0])
            monkeypatch.setattr(strategy, "_LANE_BITS_OF_TWO_STEPS", steps[1])
            for offset in (0, 1):
                flat = np.zeros(x.size + 32, x.dtype)
                flat[offset : offset + x.size] = x.ravel()
                memory = lr.DeviceArray.from_numpy(flat, stream)
                rows_there = memory[offset : offset + x.size].reshape(x.shape)
                assert_bits(call(rows_there), expected)
                call(rows_there, out=rows_there)
                flat[offset : offset + x.size] = expected.ravel()
                assert_bits(memory, flat)


def plan_of_strided_rows(operation, flat, shape, strides, eps, stream):
    """Return the plan of rows that lie so, in and out."""
    return lr.row_plan(
        operation,
        shape=shape,
        dtype=flat.dtype,
        strides_bytes=strides,
        output_strides_bytes={"out": strides},
        parameters={"eps": eps},
        context=stream.context,
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_short_rows_with_room_between_them(stream, cut, monkeypatch, dtype):
    """Several of a warp, of which each has its own blocks; nothing between them is written."""
    monkeypatch.setattr(strategy, "_WARPS_TO_FILL", 0)
    monkeypatch.setattr(strategy, "_WARPS_OF_A_STEP", 0)
    monkeypatch.setattr(strategy, "_LANE_BITS_OF_TWO_STEPS", -1)
    for rows, length in cut([(9, 149), (35, 61), (5, 331)], [(9, 149)]):
        flat = values(dtype, (rows * (length + 8) + 1,))
        size = flat.itemsize
        strides = ((length + 8) * size, size)
        view = np.lib.stride_tricks.as_strided(flat[1:], (rows, length), strides)
        plan = plan_of_strided_rows(normalize_of("norm2"), flat, (rows, length), strides, 1e-12, stream)
        expected = flat.copy()
        written = np.lib.stride_tricks.as_strided(expected[1:], (rows, length), strides)
        written[...] = tree.normalize(np.ascontiguousarray(view))
        memory, out = (lr.DeviceArray.from_numpy(flat, stream) for _ in range(2))
        launch = plan.bind(stream)
        launch(memory.pointer + size, out.pointer + size)
        assert_bits(out, expected)
        launch(memory.pointer + size, memory.pointer + size)
        assert_bits(memory, expected)


STATISTICS = lr.RowOperation(
    "statistics",
    reduce={"largest, total": "softmax_stats"},
    write={"out": "x - largest"},
    keep={"largest": "largest", "total": "total"},
    numpy=lr.RowMeaning(
        write=lambda v: {"out": v.x - v.largest, "largest": v.largest, "total": v.total},
    ),
)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_elements_that_stand_for_absent_ones_are_not_counted(stream, cut, monkeypatch, dtype):
    """Of a row that ends with minus infinities, or has nothing else, each counts, and none behind the row's end."""
    monkeypatch.setattr(strategy, "_WARPS_TO_FILL", 0)
    monkeypatch.setattr(strategy, "_WARPS_OF_A_STEP", 0)
    monkeypatch.setattr(strategy, "_LANE_BITS_OF_TWO_STEPS", -1)
    for length in cut([3, 13, 61, 331, 1023, 2051], [61, 331, 1023]):
        x = np.full((9, length), -np.inf, values(dtype, (1,)).dtype)
        x[1, 0], x[2, length // 2], x[3, -1], x[4, 0], x[5, -1], x[6, 1] = 1, -2, 3, np.inf, np.nan, np.inf
        x[7, :2] = 4
        got = lr.row_operation(STATISTICS, x, stream=stream)
        with np.errstate(invalid="ignore"):
            assert_bits(got, tree.row_operation(STATISTICS, x))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_strides_offsets_and_in_place(stream, dtype):
    """Batch strides of any sign, misaligned rows, and outputs that take the input's place."""
    rows, length = 6, 264
    flat = values(dtype, (2 * rows * (length + 8) + 8,))
    size = flat.itemsize
    weight = values(dtype, (length,), 1)
    memory = lr.DeviceArray.from_numpy(flat, stream)
    weights = lr.DeviceArray.from_numpy(weight, stream)
    for offset in (0, 1, 3):
        strides = (2 * (length + 8) * size, size)
        view = np.lib.stride_tricks.as_strided(flat[offset:], (rows, length), strides)
        operation = rms_norm_of(weight=True, residual=False, keeps=False)
        plan = plan_of_strided_rows(operation, flat, (rows, length), strides, 1e-6, stream)
        launch = plan.bind(stream)
        expected = tree.rms_norm(np.ascontiguousarray(view), weight, 1e-6)
        before = memory.numpy()
        address = memory.pointer + offset * size
        launch.check(address, weights.pointer, address)
        launch(address, weights.pointer, address)
        after = memory.numpy()
        written = np.lib.stride_tricks.as_strided(after[offset:], (rows, length), strides)
        assert np.ascontiguousarray(written).tobytes() == expected.tobytes()
        hidden = before.copy()
        np.lib.stride_tricks.as_strided(hidden[offset:], (rows, length), strides)[...] = expected
        assert after.tobytes() == hidden.tobytes(), "something beside the rows was written"
        memory = lr.DeviceArray.from_numpy(flat, stream)


@pytest.mark.parametrize("way", WAYS[:3], ids=str)
def test_rows_at_the_edges_of_memory(stream, cut, way):
    """Rows of 16-bit elements that begin and end inside words which are not all the array's; memory ends with them."""
    operation = rms_norm_of(weight=False, residual=False, keeps=False)
    for length in cut([1, 2, 3, 8, 9, 31, 257, 1000, 1023, 2047, 4097], [1, 9, 257, 1000]):
        if not suits(way, "bfloat16", length):
            continue
        for rows, offset in ((1, 0), (1, 1), (3, 1), (3, 2)):
            flat = values("bfloat16", (offset + rows * length,))
            memory = lr.DeviceArray.from_numpy(flat, stream)
            out = lr.DeviceArray.from_numpy(flat, stream)
            plan = lr.row_plan(
                operation,
                shape=(rows, length),
                dtype=flat.dtype,
                parameters={"eps": 1e-6},
                context=stream.context,
                **way,
            )
            launch = plan.bind(stream)
            launch.check(memory.pointer + 2 * offset, out.pointer + 2 * offset)
            launch(memory.pointer + 2 * offset, out.pointer + 2 * offset)
            expected = flat.copy()
            expected[offset:] = tree.rms_norm(flat[offset:].reshape(rows, length), eps=1e-6).reshape(-1)
            assert out.numpy().tobytes() == expected.tobytes()


@pytest.mark.parametrize("cluster", [1, 2])
def test_rows_of_several_turns(stream, monkeypatch, cluster):
    """Leaves of a warp one after the other, all of them kept, and only the first ones: the others are read twice."""
    x, weight = values("float32", (2, 40_000)), values("float32", (40_000,), 1)
    expected = tree.rms_norm(x, weight, 1e-6)
    way = {"strategy": "turn_rows", "cluster": cluster, "stream": stream}
    assert_bits(lr.rms_norm(x, weight, 1e-6, **way), expected)
    room = 17 * 4096
    monkeypatch.setattr(strategy, "_STATIC_BYTES", stream.context.device.shared_memory_per_block_optin_bytes - room)
    plan = lr.row_plan(
        rms_norm_of(weight=True, residual=False, keeps=False), shape=x.shape, dtype="float32", strategy="turn_rows",
        cluster=cluster, parameters={"eps": 1e-6}, context=stream.context,
    )  # fmt: skip
    assert plan.mapping.reads == 2
    arrays = [lr.DeviceArray.from_numpy(each, stream) for each in (x, weight, x)]
    plan.bind(stream)(*(each.pointer for each in arrays))
    assert_bits(arrays[2], expected)


def test_a_row_alone_and_among_others(stream, cut):
    """The same bits, whatever the batch."""
    x = values("float32", (7, 520))
    one = lr.softmax(x[3:4], stream=stream).numpy()
    assert lr.softmax(x, stream=stream).numpy()[3:4].tobytes() == one.tobytes()
    many = np.ascontiguousarray(np.broadcast_to(x[3], (cut(65_536, 300), 520)))
    assert np.all(lr.softmax(many, stream=stream).numpy() == one)


def test_captured_into_a_graph(stream):
    x = lr.DeviceArray.from_numpy(values("bfloat16", (4, 512)), stream)
    out = lr.softmax(x, stream=stream)
    expected = out.numpy()
    with Graph.capture(stream) as graph:
        lr.softmax(out, out=out, stream=stream)
    with graph, graph.instantiate() as executable:
        executable.launch(stream)
        stream.synchronize()
    assert out.numpy().tobytes() == lr.softmax(expected, stream=stream).numpy().tobytes()


def test_nan_has_numpys_bits(stream):
    """Of whatever bits an element's is, and of 16-bit results, too, which are rounded two at a time."""
    for name, kind in (("bfloat16", np.uint16), ("float16", np.uint16), ("float32", np.uint32)):
        x = values(name, (3, 64))
        x.view(kind)[1, 5] = {"bfloat16": 0xFFC1, "float16": 0xFE01, "float32": 0xFFC00001}[name]
        assert_bits(lr.rms_norm(x, stream=stream), tree.rms_norm(x))


def test_refusals(stream):
    x = lr.DeviceArray.from_numpy(values("float32", (4, 64)), stream)
    weight = lr.DeviceArray.from_numpy(values("float32", (63,)), stream)
    with pytest.raises(ValueError, match=r"weight has shape \(63,\), not \(64,\)"):
        lr.rms_norm(x, weight, stream=stream)
    with pytest.raises(ValueError, match="out of bounds"):
        lr.softmax(x, 2, stream=stream)
    for wrong in (np.zeros(4), np.zeros(4, bool)):
        with pytest.raises(TypeError, match="target of cross_entropy is of integers"):
            lr.cross_entropy(x, wrong, stream=stream)
    with pytest.raises(TypeError, match="block is an integer, not 'a'"):
        lr.row_operation(OWN, x, weight=weight, block="a", stream=stream)
    with pytest.raises(TypeError, match="out is of float64"):
        lr.softmax(x, out=lr.DeviceArray.empty((4, 64), "float64", stream), dtype="float32", stream=stream)
    part = lr.DeviceArray(x._buffer, "float32", (2, 64), stream)
    moved = lr.Buffer.from_pointer(x.pointer + 64, 512, context=stream.context, owner=x)
    with pytest.raises(ValueError, match="overlaps"):
        lr.softmax(part, out=lr.DeviceArray(moved, "float32", (2, 64), stream), stream=stream)
    with pytest.raises(TypeError, match="NumPy array"):
        lr.softmax(x, out=np.empty((4, 64), np.float32), stream=stream)
    with pytest.raises(lr.UnsupportedError, match="rows of float16"):
        lr.softmax(np.zeros((2, 4), np.int32), stream=stream)
    with pytest.raises(ValueError, match="holds 16 leaves"):
        lr.softmax(np.zeros((1, 40_000), np.float32), strategy="block_rows", cluster=1, stream=stream)


def test_no_rows_and_no_elements(stream):
    assert lr.softmax(np.zeros((0, 5), np.float32), stream=stream).numpy().shape == (0, 5)
    assert lr.softmax(np.zeros((3, 0), np.float32), stream=stream).numpy().shape == (3, 0)
    got = lr.log_prob(np.zeros((2, 0), np.float32), np.zeros(2, np.int64), stream=stream)
    assert np.isnan(got.log_prob.numpy()).all()
    assert np.all(got.lse.numpy() == -np.inf)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_gradients(stream, cut, few, dtype, way):
    for length in few(cut([33, 640, 5000], [33, 640]), 1):
        if not suits(way, dtype, length):
            continue
        x, dy, weight = (values(dtype, shape, k) for k, shape in enumerate([(5, length), (5, length), (length,)]))
        y = tree.softmax(x)
        assert_bits(lr.softmax_backward(dy, y, stream=stream, **way), tree.softmax_backward(dy, y))
        rstd = tree.rms_norm(x, weight, 1e-6, return_rstd=True).rstd
        got = lr.rms_norm_backward(dy, x, rstd, weight, stream=stream, **way)
        assert_bits(got, tree.rms_norm_backward(dy, x, rstd, weight))
        _, mean, rstd = tree.layer_norm(x, weight, weight, return_stats=True)
        got = lr.layer_norm_backward(dy, x, mean, rstd, weight, bias=True, stream=stream, **way)
        assert_bits(got, tree.layer_norm_backward(dy, x, mean, rstd, weight, bias=True))
        target, dloss = np.arange(5) * 3 - 3, values("float32", (5,))
        lse = tree.cross_entropy(x, target, reduction="none").lse
        got = lr.cross_entropy_backward(dloss, x, target, lse, ignore_index=0, stream=stream, **way).numpy()
        assert np.abs(got - tree.cross_entropy_backward(dloss, x, target, lse, ignore_index=0)).max() <= 2e-2 * 2 ** -(
            0 if dtype == "bfloat16" else 16
        )


def test_gradients_are_those_of_the_functions():
    """In float64, against differences of the functions themselves."""
    x, dy, weight = (values("float64", shape, k) for k, shape in enumerate([(3, 20), (3, 20), (20,)]))
    target = np.array([1, 19, 4])
    _, mean, rstd = tree.layer_norm(x, weight, weight, return_stats=True)
    lse = tree.cross_entropy(x, target, reduction="none").lse
    dloss = dy[:, 0].copy()
    functions = {
        "softmax": (
            lambda x: tree.softmax(x, scale=0.5), tree.softmax_backward(dy, tree.softmax(x, scale=0.5), scale=0.5)
        ),
        "log_softmax": (tree.log_softmax, tree.log_softmax_backward(dy, tree.log_softmax(x))),
        "rms_norm": (
            lambda x: tree.rms_norm(x, weight, 1e-3),
            tree.rms_norm_backward(dy, x, tree.rms_norm(x, weight, 1e-3, return_rstd=True).rstd, weight)[0],
        ),
        "layer_norm": (
            lambda x: tree.layer_norm(x, weight, weight), tree.layer_norm_backward(dy, x, mean, rstd, weight)[0]
        ),
        "cross_entropy": (
            lambda x: tree.cross_entropy(x, target, reduction="none").loss[:, None] * dloss[:, None] / dy,
            tree.cross_entropy_backward(dloss, x, target, lse) * 20,
        ),
    }  # fmt: skip
    for name, (function, gradient) in functions.items():
        for place in ((0, 0), (1, 7), (2, 19)):
            step = np.zeros_like(x)
            step[place] = 1e-5
            slope = np.sum((function(x + step) - function(x - step)) * dy) / 2e-5
            assert slope == pytest.approx(gradient[place], rel=1e-4, abs=1e-6), name
