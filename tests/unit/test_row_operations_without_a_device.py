"""Row operations without a device: their descriptions, types, layouts and mappings, and what they mean in NumPy."""

import ml_dtypes
import numpy as np
import pytest

import lowlevel_reduce as lr
from lowlevel_reduce import tree
from lowlevel_reduce.rowops import norms
from lowlevel_reduce.rowops.layout import MOST_ELEMENTS, row_layout, spread_of
from lowlevel_reduce.rowops.quantisation import quantize_of
from lowlevel_reduce.rowops.sources import row_kernels
from lowlevel_reduce.rowops.strategy import choose_mapping
from lowlevel_reduce.rowops.types import types_of
from lowlevel_reduce.strategy.whole import DeviceFacts, power_of_two

H100 = DeviceFacts((9, 0), 132, clusters=True, cooperative=True)
A100 = DeviceFacts((8, 0), 108, clusters=False, cooperative=True)


def mapping(length, rows, facts=H100, itemsize=2, held=1, writes=True, **ways):
    shared = 227 << 10 if facts is H100 else 163 << 10
    return choose_mapping(
        length, rows, facts, itemsize=itemsize, held_arrays=held, writes=writes, shared_bytes=shared, **ways
    )


class TestDescription:
    @pytest.mark.parametrize(
        ("error", "words", "arguments"),
        [
            (ValueError, "writes nothing", {}),
            (ValueError, "uses 'x' for two things", {"write": {"out": "x"}, "columns": ("x",)}),
            (ValueError, "uses 's' for two things", {"write": {"out": "x"}, "reduce": {"s": "sum"}, "rows": ("s",)}),
            (
                ValueError,
                "row_operation's own argument block",
                {"write": {"out": "x"}, "parameters": ("block: int64",)},
            ),
            (ValueError, "row_operation's own argument out", {"write": {"o": "x"}, "columns": ("out",)}),
            (ValueError, "does not end with _", {"write": {"out_": "x"}}),
            (ValueError, "does not end with _", {"write": {"class": "x"}}),
            (ValueError, "gives 2 results", {"write": {"out": "x"}, "reduce": {"s": "mean_var"}}),
            (ValueError, "needs second=True", {"write": {"out": "x + y"}}),
            (ValueError, "goes with second=True", {"write": {"out": "x"}, "merge": "x + y"}),
            (ValueError, "goes with second=True", {"write": {"out": "x"}, "reduce": {"s": "dot"}}),
            (ValueError, "takes no terms", {"write": {"out": "x"}, "reduce": {"s": ("var", "x * 2")}}),
            (ValueError, "does not write", {"write": {"out": "x"}, "fill": {"other": "0"}}),
            (ValueError, "is empty", {"write": {"out": " "}}),
            (ValueError, "at most three", {"write": {"out": "x"}, "reduce": dict.fromkeys("abcd", "sum")}),
            (ValueError, "number or int64", {"write": {"out": "x"}, "parameters": ("k: bool",)}),
            (TypeError, "CUDA C[+][+] text", {"write": {"out": 3}}),
            (TypeError, "is a mapping", {"write": "x"}),
            (TypeError, "a tuple of up to 8 names", {"write": {"out": "x"}, "columns": "w"}),
            (TypeError, "RowMeaning", {"write": {"out": "x"}, "numpy": "x"}),
            (lr.UnsupportedError, "no operator", {"write": {"out": "x"}, "reduce": {"s": "sums"}}),
        ],
    )
    def test_refusals(self, error, words, arguments):
        with pytest.raises(error, match=words):
            lr.RowOperation("wrong", **arguments)

    def test_types(self):
        own = lr.RowOperation("own", write={"a": "x", "b: int8": "x"}, keep={"k": "n", "j: int64": "n"}, columns=("w",))
        types = types_of(own, "bfloat16", columns={"w": "float32"}, rows={}, outputs={"a": "float32"})
        assert (types.number, types.outputs, types.kept) == ("float32", ("float32", "int8"), ("float32", "int64"))
        assert types_of(own, "float64", columns={"w": "float64"}, rows={}, outputs={}).number == "float64"
        with pytest.raises(lr.UnsupportedError, match="rows of float16"):
            types_of(own, "int32", columns={"w": "float32"}, rows={}, outputs={})
        with pytest.raises(lr.UnsupportedError, match="w of own is of float16"):
            types_of(own, "float32", columns={"w": "int32"}, rows={}, outputs={})
        for given in ("columns", "rows", "outputs", "tables"):
            with pytest.raises(TypeError, match="own has no 'other'"):
                types_of(own, "float32", **{"columns": {}, "rows": {}, "outputs": {}, given: {"other": "float32"}})
        with pytest.raises(lr.UnsupportedError, match="own writes"):
            types_of(own, "float32", columns={"w": "float32"}, rows={}, outputs={"a": "complex64"})

    def test_six_kernels(self):
        operation = norms.rms_norm_of(weight=True, residual=False, keeps=False)
        types = types_of(operation, "bfloat16", columns={"weight": "bfloat16"}, rows={}, outputs={})
        sources = row_kernels(operation, types)
        assert len({each.entry for each in sources} | {each.twin.entry for each in sources}) == 6


class TestMapping:
    @pytest.mark.parametrize(
        ("length", "name", "warps", "cluster"),
        [
            (1, "warp_rows", 4, 1),
            (2048, "warp_rows", 4, 1),
            (2049, "block_rows", 2, 1),
            (32768, "block_rows", 16, 1),
            (32769, "block_rows", 8, 4),
            (65537, "block_rows", 8, 8),
            (131073, "block_rows", 16, 8),
            (262144, "block_rows", 16, 8),
            (262145, "turn_rows", 16, 8),
        ],
    )
    def test_many_rows_of_16_bits(self, length, name, warps, cluster):
        found = mapping(length, 10_000)
        assert (found.name, found.warps, found.cluster, found.reads) == (name, warps, cluster, 1)

    @pytest.mark.parametrize(
        ("length", "rows", "name", "warps", "cluster"),
        [
            (256, 1, "warp_rows", 1, 1),  # a step
            (257, 1, "split_rows", 2, 1),  # a warp for each of a leaf's steps
            (2048, 132, "split_rows", 8, 1),
            (2048, 1056, "split_rows", 8, 1),
            (2048, 1057, "warp_rows", 4, 1),
            (512, 528, "split_rows", 2, 1),
            (512, 529, "warp_rows", 4, 1),
            (16_384, 132, "split_rows", 16, 1),
            (16_384, 133, "block_rows", 8, 1),
            (4096, 8, "split_rows", 16, 1),
            (8192, 64, "split_rows", 16, 1),  # two steps a warp
            (8193, 66, "split_rows", 16, 2),
            (8193, 132, "split_rows", 16, 1),  # four
            (8192, 528, "split_rows", 16, 1),
            (8192, 529, "block_rows", 4, 1),
            (8193, 133, "block_rows", 8, 1),
            (65_536, 8, "split_rows", 16, 8),
            (131_072, 8, "split_rows", 16, 16),  # as few rows as a device has groups
            (131_072, 9, "split_rows", 16, 8),
            (262_144, 1, "split_rows", 16, 16),
            (262_145, 1, "turn_rows", 16, 8),
            (131_072, 64, "block_rows", 8, 8),
        ],
    )
    def test_few_rows_are_split(self, length, rows, name, warps, cluster):
        found = mapping(length, rows)
        assert (found.name, found.warps, found.cluster, found.reads) == (name, warps, cluster, 1)
        if name == "split_rows":
            leaves, each = found.cut >> 8 & 31, found.cut >> 16
            assert leaves * cluster * 2048 >= length
            assert found.warps * each == leaves * (8 if leaves > 1 else min(8, power_of_two(-(-length // 256))))
            least = 9 * (227 << 10) // 16 if rows * cluster <= 66 else 0  # no other block has room beside it
            assert bool(found.cut & 1 << 13) == (cluster == 1 and rows > 66)  # the next launch is let in late
            assert found.dynamic_shared_bytes == max(least, found.block_threads * 8)

    @pytest.mark.parametrize("facts", [H100, A100], ids=["H100", "A100"])
    @pytest.mark.parametrize("held", [1, 2])
    def test_all_leaves_have_a_place(self, facts, held):
        for length in (1, 100, 2048, 5000, 60_000, 300_000, 1_000_000, 5_000_000, 40_000_000):
            for rows in (1, 7, 100_000):
                found = mapping(length, rows, facts, held=held)
                leaves = -(-length * 2 // 4096)
                if found.name == "warp_rows":
                    is_single = found.kernel == "block_rows"
                    assert is_single == (length > 512)
                    bits = (found.cut & 7) + (found.cut >> 4 & 15) + (found.cut >> 8)
                    of_warp = 1 if is_single else 256 >> bits
                    assert found.blocks * found.warps * of_warp >= rows
                    assert of_warp >= 1
                    assert leaves == 1
                    continue
                if found.name == "split_rows":
                    assert found.cluster * (found.cut >> 8 & 31) >= leaves
                    assert found.blocks == rows * found.cluster
                    continue
                turns = 1 if found.name == "block_rows" else 1 << (found.cut >> 5 & 31)
                assert found.cluster * found.warps * turns >= leaves
                assert found.blocks == rows * found.cluster
                assert found.dynamic_shared_bytes <= (227 << 10 if facts is H100 else 163 << 10) - 2048
                kept = found.cut >> 10 if found.name == "turn_rows" else turns
                assert (found.reads == 1) == (kept >= turns)

    def test_a_warp_has_fewer_short_rows_where_others_have_none(self):
        """61 elements are eight vectors: a warp has four rows, or 32 where there are many warps anyway."""
        most = 132 * 64 * 4  # of one step
        for rows, fewer, in_twos in ((1, 3, 3), (most, 3, 3), (most + 1, 0, 2), (10_000_000, 0, 2)):
            found = mapping(61, rows)
            assert (found.name, found.cut >> 4 & 15) == ("warp_rows", fewer), rows
            assert mapping(64, rows, aligned=True).cut >> 4 & 15 == in_twos
            assert mapping(64, rows, aligned=True, accumulator_bytes=16).cut >> 4 & 15 == fewer
        for length, warps in ((64, 64), (128, 48), (256, 32)):
            most = 132 * warps * 256 // length
            assert [mapping(length, rows).cut >> 4 & 15 for rows in (most, most + 1)] == [3, length > 64], length
        assert [mapping(n, 10**6, itemsize=4, aligned=True).cut >> 4 & 15 for n in (64, 52, 48)] == [2, 2, 0]
        assert mapping(2048, 1, strategy="warp_rows").cut == 1 | 128  # a warp for each row
        # Rows of two steps, of which a warp has four, or fewer down to one.
        for rows, fewer in ((1, 2), (132 * 16, 2), (132 * 16 + 2, 1), (132 * 32 + 4, 0)):
            found = mapping(300, rows, strategy="warp_rows")
            assert (found.cut >> 8, found.cut >> 4 & 15) == (1, fewer), rows

    @pytest.mark.parametrize("beside", [False, True])
    @pytest.mark.parametrize("held", [1, 2])
    def test_all_units_of_a_column_have_a_place(self, beside, held):
        for length in (1, 7, 100, 300, 2048, 5000, 60_000, 1_000_000):
            for rows in (1, 7, 33, 100_000):
                found = mapping(length, rows, held=held, strided=True, beside=beside)
                columns, turns, keeps = 1 << (found.cut >> 6 & 7), 1 << (found.cut >> 9 & 31), found.cut >> 14 & 0x3FFFF
                tiles, blocks = found.blocks // found.cluster, found.cut >> 32
                assert found.name == "column_rows"
                assert found.cut & 32  # what tells the kernel
                assert found.block_threads in (32, 64, 128, 256, 512)
                assert found.cluster == blocks
                assert tiles * columns >= rows > (tiles - 1) * columns
                vectors = -(-length // 8)
                units = min(vectors, 32) if length <= 2048 else -(-vectors // 256) * 32
                assert blocks * (found.block_threads // columns) * turns >= units
                assert found.dynamic_shared_bytes <= (227 << 10) - 16384
                assert (found.reads == 1) == (keeps >= turns)
        with pytest.raises(ValueError, match="take strategy 'column_rows'"):
            mapping(100, 4, strided=True, strategy="warp_rows")
        with pytest.raises(ValueError, match="clusters of up to 8 blocks"):
            mapping(100, 4, strided=True, cluster=16)
        with pytest.raises(ValueError, match="clusters of up to 4 blocks"):  # of 25 elements four vectors
            mapping(25, 4, strided=True, cluster=8)

    def test_a_cluster_for_columns_that_a_block_has_no_room_for(self):
        """Two blocks shall be on a multiprocessor; few tiles are spread over more of them."""
        cases = ((1024, 32_768, 1), (2048, 32_768, 2), (8192, 16_384, 8), (4096, 64, 4), (1000, 7, 1))
        for length, rows, cluster in cases:
            assert mapping(length, rows, strided=True, beside=True).cluster == cluster
            assert mapping(length, rows, A100, strided=True, beside=True).cluster == 1
        assert mapping(8192, 16_384, strided=True, beside=True).reads == 1

    def test_what_is_not_written_is_not_kept(self):
        found = mapping(40_000_000, 4, writes=False)
        assert (found.dynamic_shared_bytes, found.reads) == (0, 1)

    def test_refusals(self):
        with pytest.raises(ValueError, match="no strategy"):
            mapping(100, 4, strategy="rows")
        with pytest.raises(ValueError, match="at most 4 KiB"):
            mapping(10_000, 4, strategy="warp_rows")
        with pytest.raises(ValueError, match="a cluster has"):
            mapping(10_000, 4, cluster=3)
        with pytest.raises(ValueError, match="'split_rows' holds 16 leaves"):
            mapping(40_000, 4, strategy="split_rows", cluster=2)
        with pytest.raises(ValueError, match="holds 16 leaves"):
            mapping(100_000, 4, strategy="block_rows", cluster=1)
        with pytest.raises(lr.UnsupportedError, match=r"9\.0"):
            mapping(10_000, 4, A100, cluster=2)
        with pytest.raises(lr.UnsupportedError, match="a grid has at most"):
            mapping(10_000, 1 << 31)


class TestLayout:
    def test_axes_join_where_all_arrays_allow_it(self):
        shape = (2, 3, 4, 8)
        contiguous = spread_of(shape, 4)
        assert row_layout(shape, [contiguous, contiguous], 1).sizes == (24,)
        apart = spread_of(shape, 4, (1000, 4 * 32, 32, 4))
        found = row_layout(shape, [contiguous, apart], 1)
        assert (found.sizes, found.rows, found.length) == ((12, 2), 24, 8)
        assert found.strides == ((32, 12 * 32), (32, 1000))
        assert not found.aligned
        assert found.extents[1] == (0, 1000 + 2 * 128 + 3 * 32 + 32)

    def test_aligned(self):
        for length, dtypes, aligned in ((64, (2, 1), True), (60, (2, 2), False), (8, (2, 1), True), (8, (8, 4), True)):
            arrays = [spread_of((4, length), size) for size in dtypes]
            assert row_layout((4, length), arrays, 1).aligned is aligned

    def test_refusals(self):
        with pytest.raises(ValueError, match="one axis at least"):
            row_layout((), [spread_of((), 4)], 1)
        with pytest.raises(ValueError, match="at most"):
            row_layout((2, MOST_ELEMENTS + 1), [spread_of((2, MOST_ELEMENTS + 1), 4)], 1)
        with pytest.raises(ValueError, match="share memory"):
            row_layout((2, 3), [spread_of((2, 3), 4), spread_of((2, 3), 4, (0, 4))], 1)
        for strides, error, words in (
            ((13, 4), lr.UnsupportedError, r"multiples of their size, 4 bytes, apart, not by strides_bytes \(13, 4\)"),
            ((12, 6), lr.UnsupportedError, "apart, not by"),
            ((4,), ValueError, "strides_bytes has 1 strides; the shape has 2 axes"),
            ((12, 4.0), TypeError, "strides_bytes holds integers"),
            ((1 << 70, 4), ValueError, "does not fit into 64 bits"),
        ):
            with pytest.raises(error, match=words):
                spread_of((2, 3), 4, strides)
        assert spread_of((1, 3), 4, (13, 4)).strides == (13, 4), "an axis of one element is never stepped along"
        assert spread_of((0, 3), 4, (13, 5)).strides == (13, 5)
        shape = (2,) * 10 + (4,)
        apart = (*(100 * 3**k for k in range(10)), 4)
        with pytest.raises(lr.UnsupportedError, match="at most 8"):
            row_layout(shape, [spread_of(shape, 4, apart)], 1)

    def test_strided(self):
        found = row_layout((5, 3), [spread_of((5, 3), 4, (4, 20)), spread_of((5, 3), 4)], 1)
        assert (found.steps, found.strided, found.aligned, found.beside(4)) == ((20, 4), True, False, True)
        one = row_layout((5, 1), [spread_of((5, 1), 4, (4, 20))], 1)  # of one element there is no step
        assert (one.steps, one.strided) == ((4,), False)
        assert found.words(1)[-2:] == (20, 4)


class TestMeaning:
    """Against NumPy in float64, which the tree's law does not bind."""

    x = np.random.default_rng(0).standard_normal((3, 5, 400)) * 3

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
    def test_formulas(self, dtype):
        own = np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        x = self.x.astype(own)
        wide = x.astype(np.float64)
        eps = {"float16": 1e-3, "bfloat16": 1e-2, "float32": 1e-6, "float64": 1e-13}[dtype]
        e = np.exp(wide - wide.max(-1, keepdims=True))
        softmax = e / e.sum(-1, keepdims=True)
        rms = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6)
        normal = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
        pairs = {
            "softmax": (tree.softmax(x), softmax),
            "log_softmax": (tree.log_softmax(x), np.log(softmax)),
            "rms_norm": (tree.rms_norm(x, eps=1e-6), rms),
            "layer_norm": (tree.layer_norm(x), normal),
            "normalize": (tree.normalize(x), wide / np.linalg.norm(wide, axis=-1, keepdims=True)),
        }
        for name, (got, expected) in pairs.items():
            assert got.dtype == own
            np.testing.assert_allclose(got.astype(np.float64), expected, rtol=2 * eps, atol=2 * eps, err_msg=name)

    @pytest.mark.parametrize(("kind", "most", "step"), [("float8_e4m3fn", 448, 2**-9), ("int8", 127, 1)])
    def test_quantize(self, kind, most, step):
        x = self.x.astype(np.float32)
        for block in (None, 32):
            if block and x.shape[-1] % block:
                x = x[..., :384]
            values, scale = tree.quantize(x, kind, block=block)
            rows = x.reshape(*x.shape[:-1], -1, block or x.shape[-1])
            largest = np.abs(rows).max(-1)
            np.testing.assert_array_equal(scale.reshape(largest.shape), largest / np.float32(most))
            back = values.astype(np.float32).reshape(rows.shape) * scale.reshape(*largest.shape, 1)
            half = (
                scale.reshape(*largest.shape, 1) * (step / 2) * 1.001
            )  # of the smallest step; floats have larger ones
            assert np.all(np.abs(back - rows) <= half + (np.abs(rows) / 16 if kind != "int8" else 0))

    def test_masks(self):
        x = self.x.astype(np.float32)
        hidden = tree.softmax(x, lengths=np.full((3, 5), 7))
        np.testing.assert_array_equal(hidden[..., :7], tree.softmax(np.ascontiguousarray(x[..., :7])))
        assert not hidden[..., 7:].any()
        causal = tree.log_softmax(x, causal=True, offset=0)
        assert [int(np.isfinite(row).sum()) for row in causal[1]] == [1, 2, 3, 4, 5]

    def test_values_before_the_reductions(self):
        """They belong to their rows, also where rows of other lengths are reduced apart."""
        own = lr.RowOperation(
            "own",
            before={"middle": "table[row]"},
            reduce={"total": ("sum", "x - middle")},
            keep={"total": "total"},
            tables=("table",),
            rows=("lengths: int64",),
            length="lengths",
            numpy=lr.RowMeaning(
                before=lambda v: {"middle": v.table[v.row]},
                length=lambda v: v.lengths,
                terms={"total": lambda v: v.x - v.middle},
                write=lambda v: {"total": v.total},
            ),
        )
        table = np.array([1, 2, 3, 4], np.float32)
        found = tree.row_operation(own, np.ones((4, 6), np.float32), table=table, lengths=np.array([2, 4, 2, 6]))
        assert found.tolist() == [0, -4, -4, -18]

    def test_losses(self):
        x = self.x[0].astype(np.float32)
        target = np.array([3, 0, -100, 399, 400])
        lse = np.log(np.exp(x.astype(np.float64)).sum(-1))
        found = tree.cross_entropy(x, target, reduction="none")
        expected = np.where(target == -100, 0, lse - np.append(x, np.full((5, 1), np.nan), 1)[np.arange(5), target])
        np.testing.assert_allclose(found.loss, expected, rtol=1e-5)
        np.testing.assert_allclose(tree.cross_entropy(x[:4], target[:4]), expected[:4].sum() / 3, rtol=1e-5)
        assert np.isnan(tree.cross_entropy(x, target, reduction="sum"))

    def test_refusals(self):
        x = self.x.astype(np.float32)
        without = lr.RowOperation("without", write={"out": "x"})
        quantised, plain = quantize_of("int8"), {"shape": 3, "dtype": "float32"}
        given = lr.RowOperation(
            "given", write={"out": "x * a + k"}, parameters=("a", "k: int64"),
            numpy=lr.RowMeaning(write=lambda v: {"out": v.x * v.a + v.k}),
        )  # fmt: skip
        for error, words, call in (
            (lr.UnsupportedError, "no NumPy meaning", lambda: tree.row_operation(without, x)),
            (TypeError, "a row operation is a RowOperation, not str", lambda: tree.row_operation("softmax", x)),
            (
                TypeError,
                "quantize has no 'scales'",
                lambda: tree.row_operation(quantised, x, dtype={"scales": "float64"}),
            ),
            (
                TypeError,
                "without has no 'in'",
                lambda: lr.row_plan(without, output_strides_bytes={"in": (4,)}, **plain),
            ),
            (TypeError, "k of given is an integer, not 2.7", lambda: tree.row_operation(given, x, a=1, k=2.7)),
            (TypeError, "a of given is a real number, not '3'", lambda: tree.row_operation(given, x, a="3", k=2)),
            (ValueError, "k of given has at most 53 bits", lambda: tree.row_operation(given, x, a=1, k=1 << 60)),
            (TypeError, "without takes one array", lambda: lr.row_plan(without, second_strides_bytes=(4,), **plain)),
            (TypeError, "causal is True or False, not 'yes'", lambda: tree.softmax(x, causal="yes")),
            (TypeError, "return_rstd is True or False, not 1", lambda: tree.rms_norm(x, return_rstd=1)),
            (TypeError, "lengths of softmax is of integers", lambda: tree.softmax(x, lengths=np.ones((3, 5)))),
            (TypeError, "target of log_prob is of integers", lambda: tree.log_prob(x, np.ones((3, 5)))),
            (TypeError, "softmax has no keyword 'dim': it is axis= here", lambda: lr.softmax(x, dim=0)),
            (TypeError, "layer_norm has no keyword 'input': it is x= here", lambda: lr.layer_norm(input=x)),
            (TypeError, "cross_entropy has no keyword 'weights'", lambda: lr.cross_entropy(x, x, weights=1)),
            (ValueError, "5 channels do not divide into 2 groups", lambda: tree.group_norm(x, 2)),
            (ValueError, r"weight has shape \(4,\), not \(5,\)", lambda: tree.group_norm(x, 5, np.ones(4))),
            (ValueError, "out of bounds", lambda: tree.softmax(x, 3)),
            (ValueError, "scale is above 0", lambda: tree.softmax(x, scale=0)),
            (ValueError, "offset goes with", lambda: tree.softmax(x, offset=1)),
            (ValueError, "weight of rms_norm has shape", lambda: tree.rms_norm(x, np.ones(3, np.float32))),
            (ValueError, "do not divide into blocks", lambda: tree.quantize(x, block=64)),
            (ValueError, "blocks of 32, 64 or 128", lambda: tree.quantize(x, block=16)),
            (lr.UnsupportedError, "quantised to", lambda: tree.quantize(x, "int16")),
            (lr.UnsupportedError, "order 1, 2 or infinity", lambda: tree.normalize(x, 3)),
            (ValueError, "reduction is", lambda: tree.cross_entropy(x, np.zeros((3, 5), int), reduction="all")),
            (TypeError, "mask of a masked array would be lost", lambda: tree.softmax(np.ma.masked_array(x))),
            (TypeError, "needs an array|no array", lambda: lr.softmax(3)),
            (AttributeError, "no attribute", lambda: tree.soft_max),
        ):
            with pytest.raises(error, match=words):
                call()

    def test_lists_are_arrays_wherever_arrays_are(self):
        x, weight, rstd = np.ones((3, 8), np.float32), np.full(8, 2, np.float32), np.ones(3, np.float32)
        for function, arrays in (
            (lambda x, w, r: (tree.group_norm(x, 2, w, w),), (x, weight, rstd)),
            (lambda x, w, r: tree.rms_norm_backward(x, x, r, w), (x, weight, rstd)),
            (lambda x, w, r: tree.layer_norm_backward(x, x, r, r, w, bias=True), (x, weight, rstd)),
            (lambda x, w, r: tree.layer_norm_backward(x, x, r, r, bias=True)[::2], (x, weight, rstd)),
        ):
            wide = [each.astype(np.float64) for each in arrays]
            for found, expected in zip(function(*(each.tolist() for each in wide)), function(*wide), strict=True):
                assert (found.dtype, found.tobytes()) == (expected.dtype, expected.tobytes())
