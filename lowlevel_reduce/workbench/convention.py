"""The calling conventions of one's own kernels: what each parameter means, read from its type. Pure.

A kernel that sums takes, in any order:

- one pointer to const: the elements, float, double, half, int, unsigned, long long or unsigned long long;
- one pointer of the same or a wider type: the result;
- one integer: the number of elements;
- further pointers: memory that is zero before each run, the same for all, for a kernel's own counters and partials.

The types are those of the kernel's mangled name, which the compiler writes; for an ``extern "C"`` kernel, whose name
has none, those of its declaration in the source, or those that the caller gives.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lowlevel_reduce.errors import UnsupportedError

__all__ = ["Convention", "base_name", "convention_of", "declared_types", "mangled_types"]

_POINTED = {
    "float": "float32", "double": "float64", "__half": "float16", "half": "float16", "int": "int32",
    "unsigned int": "uint32", "long long": "int64", "unsigned long long": "uint64",
}  # fmt: skip
_COUNTS = {
    "int": "i", "unsigned int": "I", "long": "q", "unsigned long": "Q", "long long": "q", "unsigned long long": "Q",
}  # fmt: skip
_SPELLINGS = {
    "size_t": "unsigned long", "unsigned": "unsigned int", "uint32_t": "unsigned int", "int32_t": "int",
    "int64_t": "long", "uint64_t": "unsigned long", "long int": "long", "long long int": "long long",
    "unsigned long int": "unsigned long", "unsigned long long int": "unsigned long long",
}  # fmt: skip
_WIDENED = {"long": "long long", "unsigned long": "unsigned long long"}  # 64 bits each where CUDA runs
_MANGLED = {
    "f": "float", "d": "double", "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long",
    "y": "unsigned long long", "c": "char", "b": "bool", "v": "void", "h": "unsigned char", "s": "short",
    "t": "unsigned short",
}  # fmt: skip

ACCEPTED = (
    "a kernel that sums takes one pointer to const (the elements), one pointer (the result), one integer (their "
    "number), and further pointers (memory that is zero before each run)"
)


@dataclass(frozen=True)
class Convention:
    """What the parameters of a kernel mean.

    Attributes
    ----------
    roles : tuple of str
        For each parameter "input", "result", "count" or "workspace".
    signature : str
        Its letters for `BoundKernel`.
    dtype, result : str
        Types of the elements and of the result.
    """

    roles: tuple[str, ...]
    signature: str
    dtype: str
    result: str

    @property
    def folds_itself(self) -> bool:
        """Whether the kernel can be launched again on its own partials."""
        return self.dtype == self.result


def convention_of(name: str, types: list[str]) -> Convention:
    """Return what parameters of these types mean.

    Raises
    ------
    UnsupportedError
        If they fit no convention; the message says which parameter does not, and what is accepted.
    """
    roles: list[str] = []
    signature = ""
    pointed: dict[str, str] = {}
    for place, text in enumerate(types, 1):
        role, letter, kind = _role(name, place, text, roles)
        roles.append(role)
        signature += letter
        pointed[role] = kind
    missing = [role for role in ("input", "result", "count") if role not in roles]
    if missing:
        words = {"input": "pointer to const", "result": "pointer for the result", "count": "integer"}
        lacks = " and no ".join(words[role] for role in missing)
        raise UnsupportedError(f"{name}({', '.join(types)}) has no {lacks}: {ACCEPTED}")
    return Convention(tuple(roles), signature, pointed["input"], pointed["result"])


def _role(name: str, place: int, text: str, before: list[str]) -> tuple[str, str, str]:
    """Return the role of a parameter, its letter, and what it points to."""
    words = text.replace("*", " * ").split()
    stars, const = words.count("*"), "const" in words
    plain = _plain(" ".join(word for word in words if word not in ("*", "const")))
    refused = UnsupportedError(f"parameter {place} of {name} is {text!r}: {ACCEPTED}")
    if stars == 0:
        if plain not in _COUNTS or "count" in before:
            raise refused
        return "count", _COUNTS[plain], plain
    kind = _POINTED.get(_WIDENED.get(plain, plain))
    if stars > 1 or (const and (kind is None or "input" in before)):
        raise refused
    if const:
        return "input", "Q", str(kind)
    if "result" not in before and kind is not None:
        return "result", "Q", kind
    return "workspace", "Q", plain


def _plain(text: str) -> str:
    return _SPELLINGS.get(text, text)


def base_name(entry: str) -> str:
    """Return a kernel's name as the source has it: without what the compiler's mangling adds."""
    return _name(entry)[0]


def _name(entry: str) -> tuple[str, str]:
    """Return a kernel's own name and what follows it in its mangled name; the latter is empty if it is not mangled."""
    match = re.match(r"_Z(N?)", entry)
    if match is None or not entry[match.end() : match.end() + 1].isdigit():
        return entry, ""
    name, rest = entry, entry[match.end() :]
    while rest[:1].isdigit():
        digits = len(rest) - len(rest.lstrip("0123456789"))
        end = digits + int(rest[:digits])
        name, rest = rest[digits:end], rest[end:]
        if not match[1]:
            break
    return name, rest.removeprefix("E") if match[1] else rest


def mangled_types(entry: str) -> list[str] | None:
    """Return the types of the parameters that a mangled name has; None if it has none that this reads."""
    rest = _name(entry)[1]
    if not rest:
        return None
    template: list[str] = []
    if rest.startswith("I"):
        template, rest = _template(rest[1:])
        rest = rest[1:] if rest.startswith("v") else rest  # the result's type is part of a template's name
    types: list[str] = []
    seen: list[str] = []
    while rest:
        found = _one_type(rest, template, seen)
        if found is None:
            return None
        text, rest = found
        types.append(text)
    return types


def _template(rest: str) -> tuple[list[str], str]:
    arguments: list[str] = []
    while rest and not rest.startswith("E"):
        literal = re.match(r"L[a-z]\w*?E", rest)
        if literal:
            arguments.append(literal[0])
            rest = rest[literal.end() :]
            continue
        found = _one_type(rest, [], [])
        if found is None:
            return arguments, "?"
        arguments.append(found[0])
        rest = found[1]
    return arguments, rest[1:]


def _one_type(rest: str, template: list[str], seen: list[str]) -> tuple[str, str] | None:
    """Read one type of the Itanium C++ ABI's mangling; what was seen before may be referred to."""
    if rest[:1] in ("P", "K"):
        inner = _one_type(rest[1:], template, seen)
        if inner is None:
            return None
        seen.append(f"{inner[0]}*" if rest[0] == "P" else f"const {inner[0]}")
        return seen[-1], inner[1]
    if rest[:1] in ("T", "S"):
        return _referred(rest, template, seen)
    digits = len(rest) - len(rest.lstrip("0123456789"))
    if digits:
        end = digits + int(rest[:digits])
        seen.append(rest[digits:end])
        return seen[-1], rest[end:]
    return (_MANGLED[rest[0]], rest[1:]) if rest[:1] in _MANGLED else None


def _referred(rest: str, template: list[str], seen: list[str]) -> tuple[str, str] | None:
    """Read a template's argument, or a type that was seen before."""
    match = re.match(r"[TS]([0-9A-Z]*)_", rest)
    if match is None:
        return None
    place = int(match[1], 36) + 1 if match[1] else 0
    if rest[0] == "S":
        place -= 1 if template else 0  # a template's name is the first thing that can be referred to again
    known = template if rest[0] == "T" else seen
    if not 0 <= place < len(known):
        return None
    if rest[0] == "T":
        seen.append(known[place])
    return known[place], rest[match.end() :]


def declared_types(source: str, name: str) -> list[str] | None:
    """Return the types of a kernel's parameters by its declaration in a source; None if there is none."""
    plain = re.sub(r"/\*.*?\*/|//[^\n]*", " ", source, flags=re.DOTALL)
    pattern = rf"__global__[^;{{(]*(?:\([^)]*\))?[^;{{(]*\b{re.escape(name)}\s*\(([^)]*)\)"
    match = re.search(pattern, plain)
    return None if match is None else [_declared(text) for text in match[1].split(",") if text.strip()]


def _declared(text: str) -> str:
    """Return the type of a parameter's declaration: without its name and its qualifiers."""
    words = re.sub(r"__restrict__|\brestrict\b|\bvolatile\b|\bstd::", " ", text).replace("*", " * ").split()
    stars = words.count("*")
    known = {"const", "*", "unsigned", "long", "int", "float", "double", "short", "char", "signed", "bool"}
    kept = [word for word in words if word != "*"]
    if len(kept) > 1 and kept[-1] not in known:
        kept = kept[:-1]  # the parameter's name
    const = "const " if "const" in kept and stars else ""
    return const + " ".join(word for word in kept if word not in ("const", "signed")) + "*" * stars
