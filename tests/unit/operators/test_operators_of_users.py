"""A user's own operators and maps, looked at when they are made, and their texts read as C++ reads them."""

import math

import ml_dtypes
import numpy as np
import pytest

from lowlevel_reduce import CompileError, UnsupportedError, tree
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators import ElementMap, NumpyMeaning, Operator
from lowlevel_reduce.operators.quoting import body_of, quoted, uses

SUM = {"combine": "a + b", "identity": "0.f"}
MEANING = NumpyMeaning((np.float32(0),), lambda x, y, i: (x.astype(np.float32),), lambda a, b: (a[0] + b[0],))


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("x", False),
        ("return x;", True),
        ("x; // return", False),
        ("x /* return */", False),
        ('sizeof("return") * x', False),
        ("[&] { return x; }()", False),
        ("[=](float y) mutable -> float { if (y > 0) { return y; } return 0; }(x)", False),
        ("[&](float (*g)(float)) { return g([&] { return x; }()); }(f)", False),
        ("auto f = [](float q) { return q; }; return f(x);", True),
        ("if (x > 0) { return x; } return 0;", True),
        ("if (a[i]) { return x; } return 0;", True),
        ("if (x > 0) [[likely]] { return x; } else { return 0; }", True),
        ("float t[2]{x, x}; return t[0];", True),
    ],
)
def test_statements_are_what_returns_something_itself(text, statements):
    assert body_of(text, "f").startswith("return") != statements


@pytest.mark.parametrize("sign", ["\0", "\ud800"])
@pytest.mark.parametrize("where", ["map", "combine", "identity", "finish", "preamble", "accumulator"])
def test_text_that_no_compiler_can_be_given_is_refused(where, sign):
    texts = {"accumulator": f"struct {{ float v; {sign}}}", "finish": ("a", f"a{sign}")}
    with pytest.raises(ValueError, match=f"an Operator's {where}.* holds .*: leave") as caught:
        Operator("f", **{**SUM, where: texts.get(where, f"x + {sign}")}, accumulator_bytes=4)
    assert repr(sign) in str(caught.value)


@pytest.mark.parametrize("sign", ["\0", "\ud800"])
def test_a_map_and_a_name_that_no_compiler_can_be_given_are_refused(sign):
    with pytest.raises(ValueError, match="a map holds"):
        ElementMap(f"x{sign}")
    with pytest.raises(ValueError, match="an Operator's name"):
        Operator(f"f{sign}", **SUM)
    with pytest.raises(TypeError):
        Operator("f", **SUM, result=f"float32{sign}")
    assert ElementMap("x /* \U0001f600 */").source


@pytest.mark.parametrize(
    ("text", "used"),
    [
        ("x * y", True),
        ("x / 1'000 + y", True),
        ("x /* y */", False),
        ("x // y", False),
        ('f(x, "y", \'y\', R"(y)")', False),
        ("make_float2(x, 0).y", False),
        ("p->y", False),
        ("n::y", False),
        ("x ? x : y", True),
        ("[](float y) { return y; }(x)", False),
        ("[](float y) { return y; }(x) + y", True),
        ("[&](float z) { return y * z; }(x)", True),
    ],
)
def test_a_name_is_used_where_code_says_it_and_means_the_argument(text, used):
    assert uses(text, "y") is used
    assert ElementMap(text).second is used


@pytest.mark.parametrize(
    "text", ["x * 1'000", "x + 0xFF'FFu'l", "x * 1'0.5e1'0f + '('", "u8'(' + x", 'R"a(")")a"[0] + x']
)
def test_quotes_between_digits_begin_no_character(text):
    assert text in quoted(text, "f")
    with pytest.raises(CompileError, match=r'"\(" is not closed'):
        quoted(f"{text} + (x", "f")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "class"}, ValueError, "identifier, not 'class'"),
        ({"name": "lambda", "finish": ("a", "a")}, ValueError, "identifier, not 'lambda'"),
        ({"result": "float33"}, TypeError, "float33"),
        ({"result": "datetime64[s]"}, UnsupportedError, "cannot be reduced"),
        ({"elements": "float32"}, TypeError, "elements are a tuple of types, not 'float32'"),
        ({"elements": 3}, TypeError, "elements are a tuple"),
        ({"elements": ()}, ValueError, "names none"),
        ({"elements": ("float33",)}, TypeError, "float33"),
        ({"preamble": None}, TypeError, "preamble is CUDA"),
        ({"accumulator": 3}, TypeError, "an accumulator is the name"),
        ({"accumulator": np.float32}, TypeError, "an accumulator is the name"),
        (
            {"accumulator": "struct { float v; }", "accumulator_bytes": 4.0},
            TypeError,
            "accumulator_bytes is an integer",
        ),
        (
            {"accumulator": "struct { float v; }", "accumulator_bytes": True},
            TypeError,
            "accumulator_bytes is an integer",
        ),
        ({"accumulator": "struct { char v[6]; }", "accumulator_bytes": 6}, ValueError, "whole 4-byte words"),
        ({"second": 1}, TypeError, "second is True or False"),
        ({"empty": "nan"}, TypeError, "empty is a number, not 'nan'"),
        ({"empty": [0.0]}, TypeError, "empty is a number"),
        ({"numpy": 3}, TypeError, "numpy is a NumpyMeaning"),
    ],
    ids=str,
)
def test_what_an_operator_cannot_be(arguments, error, message):
    with pytest.raises(error, match=message):
        Operator(**{"name": "f", **SUM, **arguments})


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([0.0], abs, abs), TypeError, "identity is a tuple"),
        (((0.0,), 3, abs), TypeError, "map is a function"),
        (((0.0,), abs, None), TypeError, "combine is a function"),
        (((0.0,), abs, abs, 1), TypeError, "finish is a function"),
        ((("zero",), abs, abs), ValueError, "identity holds is a number"),
    ],
)
def test_what_a_numpy_meaning_cannot_be(arguments, error, message):
    with pytest.raises(error, match=message):
        NumpyMeaning(*arguments)


def test_what_a_map_means_in_numpy_is_a_function():
    with pytest.raises(TypeError, match="a function, not 3"):
        ElementMap("x", numpy=3)


def test_types_have_many_names():
    assert Operator("f", **SUM, result=np.int8).result == "int8"
    own = Operator("f", **SUM, elements=["f4", float, "bfloat16"])
    assert own.elements == ("float32", "float64", "bfloat16")
    assert hash(own) == hash(Operator("f", **SUM, elements=("float32", "float64", "bfloat16")))
    with_arrays = Operator("f", **SUM, numpy=NumpyMeaning((np.array(0.0),), np.poly1d([1, 0]), abs))
    assert hash(with_arrays) == hash(Operator("f", **SUM)), "what a key holds is hashable, whatever it means in NumPy"
    assert hash(ElementMap("x", numpy=np.poly1d([1, 0]))) == hash(ElementMap("x"))


def test_operators_that_differ_in_the_sign_of_zero_differ():
    none, plus, minus = (Operator("f", **SUM, empty=value) for value in (None, 0.0, -0.0))
    assert len({none, plus, minus}) == 3
    assert plus == Operator("f", **SUM, empty=0.0)
    assert Operator("f", **SUM, empty=float("nan")) == Operator("f", **SUM, empty=float("nan"))
    assert hash(plus) == hash(Operator("f", **SUM, empty=0.0))


@pytest.mark.parametrize("empty", [5.0, -0.0, math.inf, -math.inf, math.nan, 7, True, ml_dtypes.bfloat16(2)])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "float8_e5m2"])
def test_the_result_over_nothing_stands_in_the_kernel_bit_for_bit(empty, dtype):
    own = Operator("f", **SUM, empty=empty, result=dtype, numpy=MEANING)
    result = tree.reduce(np.zeros(0, np.float32), own)
    assert result.dtype == element_type(dtype).dtype
    assert result.tobytes() == np.array(float(empty)).astype(result.dtype).tobytes()
    bits = int(result.view(f"u{result.itemsize}"))
    types = own.reduction.types(element_type("float32"))
    assert f"return element_of_bits<Result>({bits:#x}ull);" in own.reduction.declaration(types)


@pytest.mark.parametrize(("empty", "dtype"), [(math.nan, "int32"), (math.inf, "int64"), (300, "uint8"), (-1, "uint64")])
def test_a_result_over_nothing_that_the_type_does_not_hold(empty, dtype):
    own = Operator("f", **SUM, empty=empty, result=dtype, numpy=MEANING)
    with pytest.raises(ValueError, match=f"f of nothing, {empty} is not a value of {dtype}"):
        tree.reduce(np.zeros(0, np.float32), own)
    with pytest.raises(ValueError, match=f"is not a value of {dtype}"):
        own.reduction.declaration(own.reduction.types(element_type("float32")))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"])
def test_floats_become_the_nearest_integer_that_there_is_towards_zero(dtype):
    own = Operator("f", **SUM, result=dtype, numpy=MEANING)
    dtype = np.dtype(dtype)
    x = np.array([[0], [-0.9], [2.9], [-2.9], [127.5], [-129], [300], [-70000], [3e9], [-1e30], [math.inf], [math.nan]])
    limits = [[sign * 2.0**bits] for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)]  # and one past them
    x = np.concatenate([x, limits])
    got = tree.reduce(x.astype(np.float32), own, axis=1)
    assert got.dtype == dtype
    if dtype.kind == "b":
        assert got.tolist() == [False] + [True] * (len(x) - 1)
        return
    limits = np.iinfo(dtype)
    for value, result in zip(x[:, 0].astype(np.float32).tolist(), got.tolist(), strict=True):
        if math.isnan(value):
            assert result == 0
        else:
            whole = math.trunc(max(min(value, 1e25), -1e25))
            assert result == max(min(whole, limits.max), limits.min)


def test_a_map_that_is_a_constant():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    one = ElementMap("1", numpy=lambda x: 1.0)
    assert tree.reduce(x, map=one, axis=1).tolist() == [3, 3]
    assert tree.reduce(x, "mean_var", map=one).var == 0
    meaning = NumpyMeaning((0,), lambda x, y, i: (1.0,), lambda a, b: (a[0] + b[0],), lambda a, n: 7)
    assert tree.reduce(x, Operator("f", **SUM, numpy=meaning), axis=0).tolist() == [7, 7, 7]
