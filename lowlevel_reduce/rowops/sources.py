"""The CUDA C++ of a row operation and its types: one struct, and the stubs of its six kernels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from lowlevel_reduce.dtypes import c_name, element_type, numpy_dtype
from lowlevel_reduce.operators import Types
from lowlevel_reduce.operators.quoting import quoted, uses
from lowlevel_reduce.rowops.names import FUNCTION, Names, column_of, function_of, table_of, table_value
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.rowops.types import RowTypes, accumulator_bytes
from lowlevel_reduce.strategy.stubs import KernelSource

__all__ = ["KERNELS", "RowKernel", "row_kernels"]

_NO_RETURN = 940  # NVRTC's number of the warning that a function's end is reached without a return


class RowKernel(NamedTuple):
    """A kernel of the family: its entry, its header, threads of a block at most, and blocks that are to be resident."""

    name: str
    header: str
    threads: int
    resident: int


KERNELS = (
    RowKernel("warp_rows", "rowops/warp_rows.cuh", 128, 8),
    RowKernel("block_rows", "rowops/block_rows.cuh", 512, 2),
    RowKernel("turn_rows", "rowops/turn_rows.cuh", 512, 2),
)
"""The kernels of every row operation; each is compiled for aligned arrays and for arrays at any address.

That of `block_rows` for arrays at any address has the code of `column_rows` besides, for rows whose elements lie apart.
"""


def row_kernels(operation: RowOperation, types: RowTypes) -> tuple[KernelSource, ...]:
    """Return the kernels of an operation for aligned arrays, in the order of `KERNELS`, each with its twin."""
    text = _struct(operation, types)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    label = f"{operation.name}_{types.element.name}_{digest}"
    halves = 2 if operation.arrays > 1 and operation.merge is None else 1
    return tuple(_source(each._replace(resident=-(-each.resident // halves)), label, text) for each in KERNELS)


def _source(kernel: RowKernel, label: str, struct: str) -> KernelSource:
    def source(name: str, begin: str) -> KernelSource:
        entry = f"{label}_{name}"
        call = f"{kernel.name}<RowOf_, Begin::{begin}>(problem);"
        if kernel.name == "block_rows":
            call = f"if (problem.cut & of_split_rows) split_rows<RowOf_, Begin::{begin}>(problem);\n    else {call}"
        if begin == "anywhere" and kernel.name == "block_rows":
            call = f"if (problem.cut & of_columns) column_rows<RowOf_>(problem);\n    else {call}"
        texts = [
            f'#include "rowops/numbers.cuh"\n#include "{kernel.header}"\n{struct}'
            f'extern "C" __global__ void __launch_bounds__({kernel.threads}, {blocks})\n'
            f"{entry}(const __grid_constant__ RowProblem<RowOf_> problem)\n"
            f"{{\n    {call}\n}}\n"
            for blocks in range(kernel.resident, 0, -1)
        ]
        return KernelSource(entry, texts[0], tuple(texts[1:]))

    aligned = source(kernel.name, "aligned")
    return aligned._replace(twin=source(f"{kernel.name}_anywhere", "anywhere"))


def _struct(operation: RowOperation, types: RowTypes) -> str:
    names = Names(operation, types)
    where = f"of RowOperation '{operation.name}'"
    terms = _terms(operation, types, names, where)
    parts = [
        f"#pragma nv_diag_error {_NO_RETURN}\n{quoted(operation.preamble, f'preamble {where}')}",
        *dict.fromkeys(
            each.operator.declaration(own if each.terms is None else _within(own, types))
            for each, own in zip(operation.reductions, types.reductions, strict=True)
        ),
        _given(names),
        terms,
        "struct RowOf_ {\n",
        _constants(operation, types),
        *_given_function(operation, types, names, where),
        _length(operation, names, where),
        _merge(operation, types, names, where),
        _beside(operation, types),
        *_values(operation, types, names, where),
        f"}};\n#pragma nv_diag_default {_NO_RETURN}\n",
    ]
    return "".join(parts)


def _given(names: Names) -> str:
    every = {**names.given, **{name: names.tables[name] for name in names.tables_of_terms}}
    members = "".join(f"{type_} {name}; " for name, type_ in every.items())
    return f"struct Given_ {{ {members}}};\n"


def _constants(operation: RowOperation, types: RowTypes) -> str:
    first_output = operation.inputs
    addresses = first_output + len(operation.write) + len(operation.keep)
    firsts = any(each.operator.pivot is not None for each in operation.reductions)
    return (
        f"using Input = {types.element.c_name}; using Number = {types.number}; using Given = Given_;\n"
        f"using Op = {_operator(operation, types)};\n"
        f'static_assert(sizeof(typename Op::Accumulator) == {accumulator_bytes(operation, types)}, "its size");\n'
        f"static constexpr uint32 arrays = {operation.arrays}, outputs = {len(operation.write)}, "
        f"first_output = {first_output}, addresses = {addresses}, parameters = {len(operation.scalars)}, "
        f"tables = {len(operation.tables)};\n"
        f"static constexpr bool merges = {str(operation.merge is not None).lower()}, "
        f"looks = {str(_looks(operation)).lower()}, "
        f"masks = {str(operation.length is not None).lower()}, "
        f"in_blocks = {str(_in_blocks(operation, types)).lower()}, "
        f"needs_first = {str(firsts).lower()};\n"
    )


def _in_blocks(operation: RowOperation, types: RowTypes) -> bool:
    """Tell whether all that elements are written from are elements at the same place and what the row comes to."""
    beside = any(uses(text, name) for text in operation.write.values() for name in operation.columns)
    sizes = {types.element.itemsize, *(numpy_dtype(each).itemsize for each in types.outputs)}
    return operation.arrays == 1 and not beside and len(sizes) == 1 and sizes <= {2, 4}


def _looks(operation: RowOperation) -> bool:
    """Tell whether what a row comes to, or what is kept of it, is made from elements of the row, by `at`."""
    return any(uses(text, "at") for text in (*operation.row.values(), *operation.keep.values()))


def _within(own: Types, types: RowTypes) -> Types:
    """Return the types of a reduction of terms, which are numbers and accumulate as elements would."""
    return own._replace(element=element_type(types.number))


def _operators(operation: RowOperation, types: RowTypes) -> list[str]:
    found = []
    for k, (each, own) in enumerate(zip(operation.reductions, types.reductions, strict=True)):
        if each.terms is None:
            found.append(f"InRows<{each.operator.struct(own)}>")
        else:
            found.append(f"OfTerms<{each.operator.struct(_within(own, types))}, Terms{k}_>")
    return found


def _operator(operation: RowOperation, types: RowTypes) -> str:
    operators = _operators(operation, types) or [f"NoReduction<{types.element.c_name}>"]
    text = operators[-1]
    for each in reversed(operators[:-1]):
        text = f"Both<{each}, {text}>"
    return text


def _terms(operation: RowOperation, types: RowTypes, names: Names, where: str) -> str:
    """Return what lies beside an element, and the terms of each reduction that has some."""
    texts = {k: each.terms for k, each in enumerate(operation.reductions) if each.terms is not None}
    if not texts:
        return ""
    held = _held_beside(operation)
    # Never empty: several operators of terms share it.
    members = "".join(f"{c_name(_column_type(operation, types, name))} {name}; " for name in held)
    found = f"struct Beside_ {{ {members}}};\n" if held else "using Beside_ = Unused;\n"
    for k, text in texts.items():
        sources = {"x": "number(item.x)", "i": "int64(item.index)"}
        sources.update({name: f"Number(number(item.y.{name}))" for name in held})
        sources.update({name: f"given.{name}" for name in (*names.given, *names.tables_of_terms)})
        known = {**names.elements, **names.columns, **names.given, **names.tables}
        function, used = function_of("term_", text, f"terms of {operation.reductions[k].results[0]} {where}", known)
        arguments = ", ".join(sources[name] for name in used)
        found += (
            f"struct Terms{k}_ {{ using Input = {types.element.c_name}; using Second = Beside_; using Given = Given_; "
            f"using Number = {types.number};\n{function}"
            f"template <class I> {FUNCTION} Number term(const I& item, const Given& given) "
            f"{{ return Number(term_({arguments})); }}\n}};\n"
        )
    return found


def _held_beside(operation: RowOperation) -> list[str]:
    """Return what terms use besides the element: columns, and the second array unless it is merged."""
    texts = [each.terms for each in operation.reductions if each.terms is not None]
    candidates = [*(["y"] if operation.second and operation.merge is None else []), *operation.columns]
    return [name for name in candidates if any(uses(text, name) for text in texts)]


def _column_type(operation: RowOperation, types: RowTypes, name: str) -> str:
    return types.element.name if name == "y" else types.columns[operation.columns.index(name)]


def _given_function(operation: RowOperation, types: RowTypes, names: Names, where: str) -> list[str]:
    """Return the functions of what a row is given; last, the one that fills it."""
    first = operation.arrays + len(operation.columns)
    lines = [
        f"given.{name} = {names.given[name]}(number(reinterpret_cast<const {c_name(dtype)}*>"
        f"(problem.addresses[{first + k}])[number_]));"
        for k, (name, dtype) in enumerate(zip(operation.rows, types.rows, strict=True))
    ]
    lines += [
        f"given.{each.name} = {names.given[each.name]}(problem.parameters[{k}]);"
        for k, each in enumerate(operation.scalars)
    ]
    lines += ["given.n = int64(problem.length);", "given.row = int64(number_);"]
    lines += [
        f"given.{name} = {names.tables[name]}{table_value(operation, names, name, 'problem')};"
        for name in names.tables_of_terms
    ]
    functions = []
    for name, text in operation.before.items():
        function, used = function_of(f"before_{name}_", text, f"before {name} {where}", {**names.given, **names.tables})
        functions.append(function)
        made = {each: f"{names.tables[each]}{table_value(operation, names, each, 'problem')}" for each in names.tables}
        arguments = ", ".join(made.get(each, f"given.{each}") for each in used)
        lines.append(f"given.{name} = Number(before_{name}_({arguments}));")
    lines.append("return given;")
    head = f"template <class P> {FUNCTION} Given given(const P& problem, uint64 number_)"
    return [*functions, f"{head}\n{{\nGiven given; " + "\n".join(lines) + "\n}\n"]


def _length(operation: RowOperation, names: Names, where: str) -> str:
    head = f"template <class P> {FUNCTION} uint32 length(const P& problem, const Given& given, uint64)"
    if operation.length is None:
        return f"{head} {{ return uint32(problem.length); }}\n"
    function, used = function_of("length_", operation.length, f"length {where}", names.given)
    arguments = ", ".join(f"given.{name}" for name in used)
    bounded = "found < 0 ? 0u : found > given.n ? uint32(given.n) : uint32(found)"
    return f"{function}{head}\n{{ const int64 found = int64(length_({arguments})); return {bounded}; }}\n"


def _merge(operation: RowOperation, types: RowTypes, names: Names, where: str) -> str:
    if operation.merge is None:
        return ""
    known = {name: type_ for name, type_ in names.elements.items() if name != "i"}
    function, used = function_of("merge_", operation.merge, f"merge {where}", known)
    arguments = ", ".join(f"Number(number({name}_[k]))" for name in used)
    head = f"template <uint32 V> {FUNCTION} void merge(Input* x_, const Input* y_)"
    values = f"const auto value_ = [&](uint32 k) {{ return merge_({arguments}); }};\ndecltype(value_(0)) values_[V];"
    loop = "#pragma unroll\nfor (uint32 k = 0; k < V; ++k) values_[k] = value_(k);"
    return f"{function}{head}\n{{\n{values}\n{loop}\nput_outputs<Input, V>(x_, values_);\n}}\n"


def _beside(operation: RowOperation, types: RowTypes) -> str:
    """Return the function that brings what lies beside a vector's elements."""
    of_terms = any(each.terms is not None for each in operation.reductions)
    held = _held_beside(operation)
    if not held and not any(each.operator.two_arrays for each in operation.reductions):
        return ""
    lines = [column_of(operation, types, name) for name in held if name != "y"]
    if not of_terms or "y" in held:
        lines.append("Elements<Input, V> y_; y_.words[0] = second;")
    moved = (
        [f"beside[k].{name} = {name}_.elements[k];" for name in held] if of_terms else ["beside[k] = y_.elements[k];"]
    )
    head = (
        f"template <Begin Where, class B, class P> {FUNCTION} void\n"
        "beside(B* beside, const P& problem, uint32 index, int32 count, uint4 second)"
    )
    loop = f"#pragma unroll\nfor (uint32 k = 0; k < V; ++k) {{ {' '.join(moved)} }}"
    return f"{head}\n{{\nconstexpr uint32 V = vector_elements<Input>;\n" + "\n".join([*lines, loop]) + "\n}\n"


def _values(operation: RowOperation, types: RowTypes, names: Names, where: str) -> list[str]:
    """Return what a row comes to: its values, what is kept of it, and how its elements are written."""
    known = {**names.given, **names.results, **names.row}
    of_row = {**known, **names.tables, "length": "int64"}
    functions, lines = (
        [],
        [f"{table_of(operation, names, name, 'problem_')} (void){name};" for name in operation.tables],
    )
    for name, text in operation.row.items():
        function, used = function_of(f"row_{name}_", text, f"row {name} {where}", of_row, at=True)
        functions.append(function)
        lines.append(f"const Number {name} = Number(row_{name}_({', '.join(used)}));")
    first_kept = operation.inputs + len(operation.write)
    for k, (name, text) in enumerate(operation.keep.items()):
        function, used = function_of(f"keep_{name}_", text, f"keep {name} {where}", of_row, at=True)
        functions.append(function)
        dtype = c_name(types.kept[k])
        lines.append(
            f"if (keeps_) reinterpret_cast<{dtype}*>(problem_.addresses[{first_kept + k}])[number_] = "
            f"output_of<{dtype}>(keep_{name}_({', '.join(used)}));"
        )
    writes, held = _write(operation, types, names, known, where)
    functions += writes[:-1]
    members = "".join(f"{known[name]} {name}; " for name in held) or "uint32 nothing; "
    given = [f"const {type_} {name} = given_.{name}; (void){name};" for name, type_ in names.given.items()]
    returned = ", ".join(held) or "0u"
    head = (
        f"template <class P, class Place, class Shared, class Root> {FUNCTION} Values\n"
        "values(const P& problem_, const Given& given_, uint64 number_, const Place& place_, const Shared& shared_, "
        "const Root& root_, bool keeps_)"
    )
    body = [*given, *_results(operation, types, names), *lines, f"return Values{{{returned}}};"]
    return [*functions, f"struct Values {{ {members}}};\n", f"{head}\n{{\n", "\n".join(body), "\n}\n", writes[-1]]


def _results(operation: RowOperation, types: RowTypes, names: Names) -> list[str]:
    """Return the lines that take the results from the fold of all reductions, and the function `at`."""
    operators = _operators(operation, types)
    lines = ["const int64 length = int64(shared_.length); (void)length;"]
    source, row, place = "root_", "shared_", "Op"
    for k, each in enumerate(operation.reductions):
        last = k == len(operators) - 1
        own_row = row if last else f"{place}::template row_of<true>({row})"
        own_root = source if last else f"{source}.a()"
        low, high = each.operator.constants
        for index, name in enumerate(each.results):
            lines.append(
                f"const {names.results[name]} {name} = {names.results[name]}(result_of_row<{operators[k]}>"
                f"({own_root}, {own_row}, {index}, {low}ull, {high}ull)); (void){name};"
            )
        if not last:
            row = f"{place}::template row_of<false>({row})"
            source, place = f"{source}.b()", _rest(operators, k + 1)
    element = "load_row_element<Input>(place_.x + k_ * problem_.element_step[0])"
    if operation.merge is not None:
        other = "load_row_element<Input>(place_.y + k_ * problem_.element_step[1])"
        element = f"merged_element<RowOf_>({element}, {other})"
    lines.append(
        "const auto at = [&](int64 k_) -> Number "
        f"{{ return k_ >= 0 && k_ < length ? Number(number({element})) : not_a_number<Number>(); }}; (void)at;"
    )
    return lines


def _rest(operators: list[str], k: int) -> str:
    text = operators[-1]
    for each in reversed(operators[k:-1]):
        text = f"Both<{each}, {text}>"
    return text


def _write(
    operation: RowOperation, types: RowTypes, names: Names, known: dict[str, str], where: str
) -> tuple[list[str], list[str]]:
    """Return the functions of all texts for elements with, last, the one that writes; and what they use of a row."""
    functions, held, columns, body = [], dict[str, None](), dict[str, None](), []
    everything = {**names.elements, **names.columns, **names.tables, **known}
    tables = dict[str, None]()
    for k, (name, text) in enumerate(operation.write.items()):
        dtype = c_name(types.outputs[k])
        body.append(f"Elements<{dtype}, V> out{k}_;")
        function, used = function_of(f"write_{name}_", text, f"write {name} {where}", everything, output=dtype)
        functions.append(function)
        value = f"write_{name}_({', '.join(map(_argument(names), used))})"
        if operation.length is not None:
            filled = operation.fill.get(name, "0.0f")
            function, others = function_of(f"fill_{name}_", filled, f"fill {name} {where}", {**known, "i": "int64"})
            functions.append(function)
            used = [*used, *others]
            absent = f"fill_{name}_({', '.join(map(_argument(names), others))})"
            value = f"index + k < length_ ? {value} : {absent}"
        held.update((each, None) for each in used if each in known)
        columns.update((each, None) for each in used if each in names.columns)
        tables.update((each, None) for each in used if each in names.tables)
        body.append(
            f"const auto value{k}_ = [&](uint32 k) {{ return {value}; }};\ndecltype(value{k}_(0)) values{k}_[V];"
        )
        body.append(f"#pragma unroll\nfor (uint32 k = 0; k < V; ++k) values{k}_[k] = value{k}_(k);")
        body.append(f"put_outputs<{dtype}, V>(out{k}_.elements, values{k}_);")
        step = f"problem.element_step[{operation.arrays + k}]"
        put = f"place.outputs[{k}], {step}, index, count, out{k}_, across, across.carried[{k}]"
        body.append(f"store_elements<{dtype}, V, Where>({put});")
    functions.append(_columns(operation, types, list(columns)))
    loads = [f"const auto& {name}_ = columns_.{name}_;" for name in columns]
    loads += [table_of(operation, names, name, "problem", "_") for name in tables]
    head = (
        f"template <Begin Where, uint32 V = vector_elements<Input>, class P, class Place> {FUNCTION} void\n"
        "write(const P& problem, const Place& place, uint32 index, int32 count, uint32 length_, uint4 first, "
        "uint4 second, const Values& values, Across<outputs>& across, const Columns& columns_)"
    )
    start = (
        "const auto x_ = first_elements<Input, V>(first), y_ = first_elements<Input, V>(second); (void)x_; (void)y_;"
    )
    writer = f"{head}\n{{\n{start}\n" + "\n".join([*loads, *body]) + "\n}\n"
    return [*functions, writer], list(held)


def _columns(operation: RowOperation, types: RowTypes, used: list[str]) -> str:
    """Return what lies beside the columns of one vector, if elements are written from it, and what loads it."""
    of_types = {name: c_name(types.columns[operation.columns.index(name)]) for name in used}
    members = " ".join(f"Elements<{dtype}, vector_elements<Input>> {name}_;" for name, dtype in of_types.items())
    moved = " ".join(f"{column_of(operation, types, name)} columns_.{name}_ = {name}_;" for name in used)
    head = f"template <Begin Where, class P> {FUNCTION} Columns columns(const P& problem, uint32 index, int32 count)"
    body = f"{{\nconstexpr uint32 V = vector_elements<Input>; (void)V; Columns columns_; {moved} return columns_;\n}}\n"
    return f"struct Columns {{ {members} }};\n{head}\n{body}"


def _argument(names: Names) -> Callable[[str], str]:
    """Return the function that says what a text's name is for the k-th element of a vector."""

    def argument(name: str) -> str:
        if name in ("x", "y") or name in names.columns:
            return f"Number({name}_.number_of(k))"
        if name == "i":
            return "int64(index + k)"
        return f"{name}_" if name in names.tables else f"values.{name}"

    return argument
