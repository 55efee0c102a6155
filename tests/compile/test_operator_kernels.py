"""Every operator over every type: it compiles for each architecture, and a warp folds a short row to tree.py's bits."""

import struct
from functools import cache

import ml_dtypes
import numpy as np
import pytest

from lowlevel_reduce import tree
from lowlevel_reduce.compiler import Program, compile_program, supported_architectures
from lowlevel_reduce.dtypes import COMPENSATED, ELEMENT_TYPES, element_type
from lowlevel_reduce.errors import CompileError, NoCompilerError, UnsupportedError
from lowlevel_reduce.operators import OPERATORS, ElementMap, Operator, resolve
from lowlevel_reduce.operators.user import NumpyMeaning
from lowlevel_reduce.simulator import machine, ptx

try:
    ARCHITECTURES = supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

OPTIONS = ("-fmad=false",)
SQUARE = ElementMap("x * x", numpy=lambda x: x * x)
VARIANTS = {
    **{name: {"op": name} for name in OPERATORS},
    **{f"{name} nan": {"op": name, "nan": "ignore"} for name in ("sum", "mean", "min", "max")},
    **{f"{name} where": {"op": name, "where": True} for name in ("sum", "prod", "any", "all", "count_nonzero", "mean")},
    **{f"{name} where": {"op": name, "where": True} for name in ("norm1", "norm2", "norm_inf", "sum_squares")},
    **{f"{name} where": {"op": name, "where": True} for name in ("logsumexp", "softmax_stats", "var", "std")},
    "mean_var where": {"op": "mean_var", "where": True, "ddof": 1.5},
    "mean_var map where": {"op": "mean_var", "where": True, "map": SQUARE},
    **{f"{name} initial": {"op": name, "initial": 3} for name in ("sum", "prod", "min", "max")},
    **{f"{name} all": {"op": name, "initial": 2, "where": True, "nan": "ignore"} for name in ("sum", "min", "max")},
    "mean all": {"op": "mean", "where": True, "nan": "ignore"},
    **{f"{name} last": {"op": name, "last": True} for name in ("argmin", "argmax")},
    **{f"{name} ddof": {"op": name, "ddof": 1} for name in ("std", "mean_var")},
    "var ddof": {"op": "var", "ddof": 3},  # more than some rows have elements
    **{f"{name} map": {"op": name, "map": SQUARE} for name in OPERATORS if name != "dot"},
    "last argmin map": {"op": "argmin", "map": SQUARE, "last": True},
    "var map ddof": {"op": "var", "map": SQUARE, "ddof": 1},
    "norm2 map where": {"op": "norm2", "map": SQUARE, "where": True},
    "sum map where": {"op": "sum", "map": SQUARE, "where": True},
    "max two": {
        "op": "max",
        "map": ElementMap("x < y ? y - x : x - y", numpy=lambda x, y: np.where(x < y, y - x, x - y)),
    },
}

HEAD = """\
#include "operators.cuh"
#include "tree/warp.cuh"
// Row b, of lengths[b] elements from 32 b on, by block b, a warp.
template <class Op>
__device__ void fold_warp(const void* x, const void* y, void* out, const uint64* lengths, uint64 low, uint64 high)
{
    const uint64 n = lengths[blockIdx.x];
    RowOf<Op> row;
    row.length = n, row.initial[0] = low, row.initial[1] = high;
    auto* elements = static_cast<const typename Op::Input*>(x) + 32 * blockIdx.x;
    if constexpr (!is_same<typename Op::Pivot, Unused>) if (n > 0) row.pivot = Op::pivot(elements[0]);
    const uint32 lane = threadIdx.x;
    auto value = Op::identity();
    if (lane < n) {
        typename Op::Second second{};
        if constexpr (!is_same<typename Op::Second, Unused>)
            second = static_cast<const typename Op::Second*>(y)[32 * blockIdx.x + lane];
        value = Op::map(ItemOf<Op>{elements[lane], second, lane}, row);
    }
    for (int mask = 1; mask < 32; mask *= 2) {
        const auto other = shuffle_xor(value, mask);
        value = lane & mask ? combine_neighbours<Op>(other, value) : combine_neighbours<Op>(value, other);
    }
    auto* results = static_cast<typename Op::Result*>(out) + Op::results * blockIdx.x;
    for (int k = 0; k < Op::results; ++k)
        if (lane == 0) results[k] = n ? Op::finish(value, row, k) : Op::empty(row, k);
}
"""


def reduction(variant):
    options = {**VARIANTS[variant]}
    return resolve(options.pop("op"), **{**options, "initial": "initial" in options})


def types_of(variant):
    """Return the types that a variant takes, each with each accumulator."""
    operation = reduction(variant)
    found = []
    for element in ELEMENT_TYPES:
        try:
            rule = operation.rule(element)
            operation.types(element)
            operation.c_type(element, rule.accumulators[0], rule.result)
        except UnsupportedError:
            continue
        found += [operation.types(element, accumulate) for accumulate in rule.accumulators]
    return found


def entry(types):
    return f"fold_{types.element.name}_{types.accumulator}"


def kernel(operation, types):
    spelled = (types.element, types.accumulator, types.result)
    size = operation.accumulator_bytes(*spelled)
    return f"""\
{operation.source(*spelled)}
static_assert(sizeof({operation.c_type(*spelled)}::Accumulator) == {size}, "accumulator_bytes");
extern "C" __global__ void
{entry(types)}(const void* x, const void* y, void* out, const uint64* lengths, uint64 low, uint64 high)
{{
    fold_warp<{operation.c_type(*spelled)}>(x, y, out, lengths, low, high);
}}
"""


def program(variant, kinds):
    """Return one program for all these types, each in a namespace, since a user's map is a struct of one name for all.

    Headers are read once for all of them: maps, each of whose types was a program, compile in a third of the time.
    """
    operation = reduction(variant)
    texts = [f"namespace {entry(types)}_space {{\n{kernel(operation, types)}}}\n" for types in kinds]
    return Program(variant.replace(" ", "_"), HEAD + "".join(texts), options=OPTIONS)


@pytest.mark.drawn("architecture", 1)
@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_compiles(variant, architecture, few):
    if architecture not in ARCHITECTURES:
        pytest.skip(f"this NVRTC does not know {architecture}")
    kinds = few(types_of(variant), 3)
    cubin = compile_program(program(variant, kinds), architecture)
    assert set(cubin.kernels) == set(map(entry, kinds))
    assert "warning" not in cubin.log.lower(), cubin.log
    for name, use in cubin.kernels.items():
        assert use.stack_bytes == use.spill_store_bytes == use.spill_load_bytes == 0, name


@cache
def kernels(variant):
    image = compile_program(program(variant, types_of(variant)), "sm_90", output="ptx")
    return ptx.parse(image.data.decode()).kernels


def run(parsed, operation, types, batch, words=(0, 0)):
    """Run a kernel on the simulated machine, a warp a row; return each row's results."""
    memory = machine.GlobalMemory()

    def place(data):
        address = memory.allocate(max(len(data), 1))
        memory.write(address, data)
        return address

    def planes(arrays):
        return place(b"".join(np.resize(x, 32).tobytes() if x.size else bytes(32 * x.itemsize) for x in arrays))

    x = planes([x for x, _ in batch])
    y = 0 if operation.second is None else planes([y for _, y in batch])
    lengths = place(np.array([x.size for x, _ in batch], np.uint64).tobytes())
    size = len(batch) * operation.results * types.result_dtype.itemsize
    out = memory.allocate(size)
    launch = machine.Launch(
        kernel=parsed,
        grid=(len(batch), 1, 1),
        block=(32, 1, 1),
        cluster=None,
        dynamic_shared_bytes=0,
        arguments=struct.pack("QQQQQQ", x, y, out, lengths, *words),
        cooperative=False,
        resident_blocks=64,
        seed=None,
    )
    machine.run(launch, memory)
    return np.frombuffer(memory.read(out, size), types.result_dtype).reshape(len(batch), operation.results)


def rows(dtype):
    """Yield short rows: ordinary values, ties and zeros of both signs, and what is not finite."""
    rng = np.random.default_rng(1)
    if dtype.kind == "b":
        yield np.array([0, 1, 2, 255, 0, 0], np.uint8).view(bool)
        yield np.zeros(5, bool)
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        yield rng.integers(limits.min, limits.max, 29, dtype, endpoint=True)
        yield np.array([limits.min, limits.max, 0, limits.max, limits.min], dtype)
    elif dtype.kind == "c":
        yield (rng.standard_normal(29) + 1j * rng.standard_normal(29)).astype(dtype)
        yield np.array([0, -0.0, 3 - 4j, complex(-0.0, -0.0)], dtype)
        yield np.array([complex(np.inf, 1), 2, complex(0, -np.inf)], dtype)
        yield np.array([complex(np.nan, 1), 2, 3], dtype)
    else:
        for length in (29, 32, 31, 7):
            yield (rng.standard_normal(length) * 2.0 ** rng.integers(-4, 4, length)).astype(dtype)
        yield np.array([-0.0, 0.0, -0.0, 2, 2, -3, -3, 0], dtype)
        yield np.array([np.nan, 1, -np.nan, 5], dtype)
        yield np.array([1, np.nan, 2], dtype)
        yield np.array([np.nan, np.nan], dtype)
        if dtype.name != "float8_e4m3fn":
            yield np.array([np.inf, 1, 2, np.inf], dtype)
            yield np.array([-np.inf, -np.inf], dtype)
            yield np.array([-np.inf, 3, np.inf], dtype)
        yield np.array([-0.0], dtype)
        tiny = ml_dtypes.finfo(dtype).smallest_subnormal
        yield np.array([tiny, -tiny, ml_dtypes.finfo(dtype).max, tiny], dtype)
    yield np.zeros(0, dtype)


def second(operation, x):
    if operation.second == "mask":
        return np.resize(np.array([1, 0, 0, 2, 1], np.uint8), x.shape).view(bool)
    return np.roll(x, 1) if operation.second == "operand" else None


def initial_of(variant, types):
    """Return a variant's initial value, one that the type has."""
    return min(VARIANTS[variant]["initial"], 1) if types.element.name == "bool" else VARIANTS[variant]["initial"]


def expect(variant, x, y, types):
    options = {**VARIANTS[variant]}
    if options.pop("where", False):
        options["where"] = y
    elif y is not None:
        options["second"] = y
    if "initial" in options:
        options["initial"] = initial_of(variant, types)
    got = tree.reduce(x, accumulate=types.accumulator, **options)
    return np.array(got if isinstance(got, tuple) else (got,))


def check(got, expected, length, operation, types):
    """Compare a row's results: bit for bit, or within the bound that the table states."""
    if operation.exact:
        assert got.tobytes() == expected.tobytes(), f"{got}, not {expected}"
        return
    got, wide = got.astype("f8"), expected.astype("f8")
    with np.errstate(invalid="ignore"):
        near = np.abs(got - wide) <= operation.tolerance(expected, length, types)
    assert np.all(near | (got == wide) | (np.isnan(got) & np.isnan(wide))), f"{got}, not {expected}"


def check_nothing(got, operation, types):
    """What a kernel says of a row of no elements where NumPy raises: the value that any other would beat, index -1."""
    element = types.element
    if operation.indexed:
        assert got == -1
    elif "_of_" not in operation.label and element.dtype.kind != "b":
        limits = np.iinfo(element.dtype) if element.dtype.kind in "iu" else ml_dtypes.finfo(element.dtype)
        ends = {"min": limits.max, "max": limits.min}
        if element.is_float and element.name != "float8_e4m3fn":
            ends = {"min": np.inf, "max": -np.inf}
        names = operation.result_names if operation.results > 1 else (operation.name,)
        assert [float(each) for each in got] == [float(ends[name]) for name in names]


@pytest.mark.parametrize("variant", VARIANTS)
def test_same_bits_as_the_tree(variant):
    operation = reduction(variant)
    for types in types_of(variant):
        words = operation.constants
        if operation.has_initial:
            words = operation.initial_words(initial_of(variant, types), types)
        batch = [(x, second(operation, x)) for x in rows(types.element.dtype)]
        results = run(kernels(variant)[entry(types)], operation, types, batch, words)
        for (x, y), got in zip(batch, results, strict=True):
            if x.size == 0 and operation.empty is None and not operation.has_initial:
                with pytest.raises(ValueError, match="no identity"):
                    expect(variant, x, y, types)
                check_nothing(got, operation, types)
                continue
            check(got, expect(variant, x, y, types), x.size, operation, types)


MOMENTS = Operator(
    "moments",
    map="""\
const float64 d = float64(x) - shift;
return {d, d * d, 1u, 0u};
""",
    combine="{a.sum + b.sum, a.squares + b.squares, a.count + b.count, 0u}",
    identity="{-0.0, -0.0, 0u, 0u}",
    finish=("a.sum / a.count + shift", "a.squares / n"),
    accumulator="struct { float64 sum, squares; uint32 count, unused; }",
    accumulator_bytes=24,
    preamble="constexpr float64 shift = 0.5;",
    result="float64",
    numpy=NumpyMeaning(
        identity=(-0.0, -0.0, 0),
        map=lambda x, y, i: (x.astype("f8") - 0.5, (x.astype("f8") - 0.5) ** 2, np.ones(x.shape, np.uint32)),
        combine=lambda a, b: tuple(p + q for p, q in zip(a, b, strict=True)),
        finish=lambda a, n: (a[0] / a[2] + 0.5, a[1] / n),
    ),
)
ABSMAX = Operator(
    "absmax",
    map="fabsf(x)",
    combine="fmaxf(a, b)",
    identity='nanf("")',
    empty=0,
    numpy=NumpyMeaning((np.float32(np.nan),), lambda x, y, i: (np.abs(x),), lambda a, b: (np.fmax(a[0], b[0]),)),
)
WEIGHTED = Operator(
    "weighted",
    map="float64(x) * float64(y) * float64(i)",
    combine="a + b",
    identity="-0.0",
    accumulator="float64",
    second=True,
    result="float64",
    numpy=NumpyMeaning(
        (-0.0,), lambda x, y, i: (x.astype("f8") * y.astype("f8") * i.astype("f8"),), lambda a, b: (a[0] + b[0],)
    ),
)


def program_of(own, name, **options):
    operation = resolve(own, **options)
    types = operation.types(element_type(name))
    return operation, types, Program(own.name, HEAD + kernel(operation, types), options=OPTIONS)


@pytest.mark.parametrize("name", ["float16", "float32", "int32", "bool"])
@pytest.mark.parametrize("own", [MOMENTS, ABSMAX, WEIGHTED], ids=lambda own: own.name)
def test_user_operators_have_the_bits_of_their_numpy_meaning(own, name):
    if own is ABSMAX and name in ("int32", "bool"):
        pytest.skip("fabsf is of floats")
    operation, types, program = program_of(own, name)
    image = compile_program(program, "sm_90", output="ptx")
    parsed = ptx.parse(image.data.decode()).kernels[entry(types)]
    batch = [(x, second(operation, x)) for x in rows(types.element.dtype) if x.size]
    for (x, y), got in zip(batch, run(parsed, operation, types, batch), strict=True):
        expected = tree.reduce(x, own, second=y)
        assert got.tobytes() == np.array(expected if isinstance(expected, tuple) else (expected,)).tobytes()


@pytest.mark.parametrize(
    ("changes", "file", "line", "source_line"),
    [
        ({"map": "fabsf(z)"}, "map of Operator 'broken'", 1, "fabsf(z)"),
        ({"map": "const float w = x;\nreturn w +* 2;"}, "map of Operator 'broken'", 2, "return w +* 2;"),
        ({"combine": "a +"}, "combine of Operator 'broken'", 1, "a +"),
        ({"combine": "return a +\n  b"}, "combine of Operator 'broken'", 2, "  b"),
        ({"map": "fabsf(x"}, "map of Operator 'broken'", 1, "fabsf(x"),
        ({"combine": "if (a < b) {\n  return a; // }\nreturn b;"}, "combine of Operator 'broken'", 1, "if (a < b) {"),
        ({"finish": "float32 s = a;\nreturn s]; "}, "finish of Operator 'broken'", 2, "return s]; "),
        ({"identity": "nothing"}, "identity of Operator 'broken'", 1, "nothing"),
        ({"finish": "\n\na.x"}, "finish of Operator 'broken'", 3, "a.x"),
        ({"preamble": "__device__ int f() {\n  return g();\n}"}, "preamble of Operator 'broken'", 2, "  return g();"),
        ({"map": "if (x > 0) return x;"}, "map of Operator 'broken'", 1, "if (x > 0) return x;"),
        ({"combine": "while (a < b) {\n  return a;\n}"}, "combine of Operator 'broken'", 3, "}"),
        ({"identity": "if (0) return 0;"}, "identity of Operator 'broken'", 1, "if (0) return 0;"),
        ({"finish": "if (n) return a;"}, "finish of Operator 'broken'", 1, "if (n) return a;"),
        ({"preamble": "__device__ int f(int k) {\n  if (k) return 1;\n}"}, "preamble of Operator 'broken'", 3, "}"),
    ],
)
def test_a_mistake_is_shown_in_the_users_own_line(changes, file, line, source_line):
    right = {"map": "x", "combine": "a + b", "identity": "0.0f"}
    own = Operator("broken", **{**right, **changes})
    with pytest.raises(CompileError) as caught:
        compile_program(program_of(own, "float32")[2], "sm_90")
    assert (caught.value.file, caught.value.line, caught.value.source_line) == (file, line, source_line)
    assert source_line.strip() in str(caught.value)


def test_brackets_that_are_no_code_are_none():
    own = Operator(
        "right",
        map='const char sign = \')\', *text = "[(\\""; // {{\nreturn sign == text[1] /* ( */ ? 0.0f : x;',
        combine="a + b",
        identity="0.0f",
        preamble="#if 0\nint f() {\n#endif",
    )
    assert compile_program(program_of(own, "float32")[2], "sm_90").kernels


def test_a_mistake_in_a_map_is_shown_in_the_users_own_line():
    operation = resolve("sum", map="x * q")
    types = operation.types(element_type("float32"))
    with pytest.raises(CompileError) as caught:
        compile_program(Program("mapped", HEAD + kernel(operation, types), options=OPTIONS), "sm_90")
    assert caught.value.source_line == "x * q"
    assert caught.value.file == "map 'x * q'"


def test_a_wrong_size_of_a_users_struct_is_told_at_compile_time():
    own = Operator(
        "wide",
        map="{x, x}",
        combine="a",
        identity="{0.0f, 0.0f}",
        finish="a.p",
        accumulator="struct { float32 p, q; }",
        accumulator_bytes=12,
    )
    with pytest.raises(CompileError, match="not the size of its accumulator"):
        compile_program(program_of(own, "float32")[2], "sm_90")


def test_compensated_results_of_every_type_are_there():
    assert {types.element.name for types in types_of("dot") if types.accumulator == COMPENSATED} >= {
        "float64",
        "float16",
    }


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_every_float8_is_the_number_that_ml_dtypes_makes_of_it(name):
    element = element_type(name)
    text = f"""\
#include "operators.cuh"
extern "C" __global__ void every(const {element.c_name}* x, float32* y) {{ y[threadIdx.x] = number(x[threadIdx.x]); }}
"""
    image = compile_program(Program("every", text, options=OPTIONS), "sm_90", output="ptx")
    memory = machine.GlobalMemory()
    x, y = memory.allocate(256), memory.allocate(1024)
    memory.write(x, bytes(range(256)))
    launch = machine.Launch(
        kernel=ptx.parse(image.data.decode()).kernels["every"],
        grid=(1, 1, 1),
        block=(256, 1, 1),
        cluster=None,
        dynamic_shared_bytes=0,
        arguments=struct.pack("QQ", x, y),
        cooperative=False,
        resident_blocks=1,
        seed=None,
    )
    machine.run(launch, memory)
    got = np.frombuffer(memory.read(y, 1024), np.float32)
    expected = np.arange(256, dtype=np.uint8).view(element.dtype).astype(np.float32)
    numbers = ~np.isnan(expected)
    assert got[numbers].tobytes() == expected[numbers].tobytes()
    assert np.isnan(got[~numbers]).all()
