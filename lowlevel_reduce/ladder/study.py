"""The anatomy of a rung: its source compared with the rung before it, and the resources that its kernels use."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from lowlevel_reduce import operators
from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.driver import Context
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.ladder.plans import Production
from lowlevel_reduce.ladder.program import kernel_source
from lowlevel_reduce.ladder.registry import Rung, as_switched, rung_before
from lowlevel_reduce.plans.array import plan
from lowlevel_reduce.strategy.selection import operator_text
from lowlevel_reduce.strategy.stubs import OPTIONS, kernel_sources
from lowlevel_reduce.strategy.whole import Strategy

__all__ = ["KernelFacts", "rung_prose", "rung_resources", "source_diff"]

_PRODUCTION_LENGTH = 100_000_000


@dataclass(frozen=True)
class KernelFacts:
    """The resources that one kernel of a rung uses.

    Attributes
    ----------
    registers : int
        32-bit registers of a thread.
    shared_bytes : int
        Static shared memory of a block, as declared.
    spill_bytes : int
        Bytes of local memory that a thread writes because it has too few registers.
    cubin : bytes
        The machine code, for a disassembler.
    """

    registers: int
    shared_bytes: int
    spill_bytes: int
    cubin: bytes = field(repr=False)


def source_diff(rung: Rung) -> list[tuple[str, str]]:
    """Return the lines of a rung's source, and what changed from the rung that it improves upon (`rung_before`).

    Returns
    -------
    list of (str, str)
        Marker and line: " " for a line that both have, "+" for a new one, "-" for a removed one. The macros that a form
        of a rung is compiled with come first. All lines of a system's first rung are marked " ". The comment at the
        head of each file is left out: `rung_prose` has it.
    """
    before = rung_before(rung)
    mine = _lines(rung)
    if before is None:
        return [(" ", line) for line in mine]
    return list(_marked(_lines(before), mine))


def rung_prose(rung: Rung) -> list[tuple[str, str]]:
    """Return what the head of a rung's file says about it, in paragraphs.

    Returns
    -------
    list of (str, str)
        "Changes", "Costs" or "Next" and the text, and "" for other paragraphs: first what the rung is.
    """
    lines = as_switched(rung).source.read_text(encoding="utf-8").splitlines()
    text = " ".join(line.removeprefix("//").strip() for line in lines[: _head(lines)])
    pieces = re.split(r"\b(Changes|Costs|Next): ", text)
    found = [("", _sentence(pieces[0].partition(": ")[2] or pieces[0]))]
    for heading, said in zip(pieces[1::2], pieces[2::2], strict=True):
        found.append((heading, _sentence(said)))
    return [(heading, said) for heading, said in found if said]


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:]


def rung_resources(rung: Rung, context: Context, *, dtype: str = "float32", block: int = 256) -> dict[str, KernelFacts]:
    """Compile a rung to machine code, or load it from the cache, and return the resources of its kernels by name.

    A simulated device runs PTX, but the resources are those of the machine code that the real GPU would run.

    Parameters
    ----------
    rung : Rung
        The rung.
    context : Context
        The code is compiled for the architecture of its device.
    dtype, block : str, int
        As for `iterate`.

    Raises
    ------
    ValueError
        If the rung does not take the type.
    UnsupportedError, CompileError, NoCompilerError, CacheError
        From the compiler.
    """
    rung = as_switched(rung)
    architecture = context.device.architecture
    if isinstance(rung.plan, Production):
        return _production(context)
    facts = {}
    for entry in rung.entries:
        source = kernel_source(rung, entry, rung.dtype(dtype), rung.block or block)
        facts[entry] = _facts(entry, source.text, architecture)
    return facts


def _production(context: Context) -> dict[str, KernelFacts]:
    """Return the resources of the kernel that the library's own plan launches for a long input."""
    reduction = operators.resolve("sum")
    text = operator_text(reduction, reduction.types(element_type("float32"), None, None))
    with plan("sum", shape=_PRODUCTION_LENGTH, dtype="float32", context=context) as made:
        if not isinstance(made.strategy, Strategy):
            raise TypeError(f"the reduction of a whole array has the strategy {made.strategy}")
        sources = kernel_sources(text, made.strategy)
    return {source.entry: _facts(source.entry, source.text, context.device.architecture) for source in sources}


def _facts(entry: str, text: str, architecture: str) -> KernelFacts:
    cubin = compile_program(Program(entry, text, options=OPTIONS), architecture)
    use = cubin.kernels[entry]
    return KernelFacts(use.registers, use.shared_bytes, use.spill_store_bytes, cubin.data)


def _lines(rung: Rung) -> list[str]:
    rung = as_switched(rung)
    macros = [f"#define {name} {value}" for name, value in rung.constants]
    lines = rung.source.read_text(encoding="utf-8").splitlines()
    return [*macros, *lines[_head(lines) :]]


def _head(lines: list[str]) -> int:
    """Return how many lines the comment at the head of a file has."""
    return next((place for place, line in enumerate(lines) if not line.startswith("//")), len(lines))


def _marked(before: list[str], mine: list[str]) -> Iterator[tuple[str, str]]:
    for line in difflib.ndiff(before, mine):
        if line[0] != "?":  # these lines are hints about differences within the line above
            yield line[0], line[2:]
