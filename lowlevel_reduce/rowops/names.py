"""The names that texts of a row operation may use, and texts as functions of what they use."""

from __future__ import annotations

from lowlevel_reduce.dtypes import c_name
from lowlevel_reduce.operators.quoting import body_of, uses
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.rowops.types import RowTypes, result_type

__all__ = ["FUNCTION", "Names", "column_of", "function_of", "table_of", "table_value"]

FUNCTION = "static __device__ __forceinline__"
"""How a function of the generated struct begins."""


def _wide(name: str) -> str:
    """Return in what C++ type a row input is held: of 32 or 64 bits."""
    number = {"float16": "float32", "bfloat16": "float32", "bool": "int32", "int8": "int32", "int16": "int32"}
    return {**number, "uint8": "uint32", "uint16": "uint32"}.get(name, name)


class Names:
    """The variables that texts may use, with their C++ types, by where they come from."""

    def __init__(self, operation: RowOperation, types: RowTypes) -> None:
        scalars = {each.name: types.number if each.kind == "number" else "int64" for each in operation.scalars}
        rows = dict(zip(operation.rows, map(_wide, types.rows), strict=True))
        self.before = dict.fromkeys(operation.before, types.number)
        self.given = {**rows, **scalars, "n": "int64", "row": "int64", **self.before}
        self.results = {
            name: result_type(own, types.number)
            for each, own in zip(operation.reductions, types.reductions, strict=True)
            for name in each.results
        }
        self.row = dict.fromkeys(operation.row, types.number)
        self.columns = dict.fromkeys(operation.columns, types.number)
        self.tables = {
            name: f"Table<{c_name(own)}, {types.number}>"
            for name, own in zip(operation.tables, types.tables, strict=True)
        }
        texts = [each.terms for each in operation.reductions if each.terms is not None]
        self.tables_of_terms = [name for name in self.tables if any(uses(text, name) for text in texts)]
        self.elements = {"x": types.number, "i": "int64", **({"y": types.number} if operation.second else {})}


def _parameters(text: str, names: dict[str, str]) -> tuple[str, list[str]]:
    """Return the declarations of those names that a text uses, and the names."""
    used = [name for name in names if uses(text, name)]
    return ", ".join(f"const {names[name]} {name}" for name in used), used


def function_of(
    function: str, text: str, where: str, names: dict[str, str], at: bool = False, output: str = ""
) -> tuple[str, list[str]]:
    """Return a text as a function of what it uses, and its arguments' names; `output` is a type that it may name."""
    declared, used = _parameters(text, names)
    looks = at and uses(text, "at")
    template = "template <class At> " if looks else ""
    named = f"using Output = {output}; " if uses(text, "Output") else ""
    if looks:
        declared = ", ".join(filter(None, (declared, "const At& at")))
        used = [*used, "at"]
    return f"{template}{FUNCTION} auto {function}({declared}) {{ {named}{body_of(text, where)} }}\n", used


def column_of(operation: RowOperation, types: RowTypes, name: str) -> str:
    """Return the declaration of those elements of an array beside the columns that go with a vector."""
    k = operation.columns.index(name)
    dtype = c_name(types.columns[k])
    array = f"problem.addresses[{operation.arrays + k}]"
    return f"const auto {name}_ = load_columns<{dtype}, V, Where>({array}, index, count);"


def table_of(operation: RowOperation, names: Names, name: str, problem: str, suffix: str = "") -> str:
    """Return the declaration of a table as a variable."""
    return f"const {names.tables[name]} {name}{suffix}{table_value(operation, names, name, problem)};"


def table_value(operation: RowOperation, names: Names, name: str, problem: str) -> str:
    """Return what a table is made of, in braces."""
    k, type_ = operation.tables.index(name), names.tables[name]
    address = f"{problem}.addresses[{operation.inputs - len(operation.tables) + k}]"
    pointer = f"reinterpret_cast<decltype({type_}::elements)>({address})"
    return f"{{{pointer}, {problem}.table_elements[{k}]}}"
