"""Measure what a first call waits for, in fresh processes beside CuPy's, and say which goals it meets.

python -m benchmarks.profile.first_call [--times 5] [--without-cupy] [--wheel FILE] [--json FILE]

Each figure is the median of as many processes, ours and CuPy's by turns, all caches empty: the first result, with the
context before it and alone, and that of a second operator, with and without a wheel of kernels, that of two families,
which is built first for this device, or the given one; those of other operators after these; the first result while its
family is compiled in threads; plans of 300 random shapes after a warm-up, none of which may compile anything. And the
least processor time of each kernel of four families for sm_90, beside that of its headers alone, by one thread. It
takes about two minutes on 16 processors. Device times are compared by `benchmarks.profile.variants`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import lowlevel_reduce as lr
from benchmarks.measure.figures import OURS
from benchmarks.measure.timing import conditions
from benchmarks.suites.cold import PEERS, alone, before, keep_byte_code
from benchmarks.suites.cold_scripts import CALLS, FAMILIES, SCRIPT, WARMED_UP, install_wheel, unpack_wheel

__all__ = ["Line", "compiled_lines", "lines_of", "main", "table"]

CUPY = "CuPy"

PARTS = ("first result", "second operator")

MOST_OF_HEADERS = {"whole": 2.5, "others": 4.0}
"""By which multiple of what its headers alone take a kernel of the sum may take: of whole arrays, and others."""

MOST_OF_SUM = 1.5
"""By which multiple of the sum's kernel that of another operator may take."""

PROCESSES = 4
"""Among how many processes the kernels are divided."""

KERNELS = """
import json, re, time
from lowlevel_reduce.kernel_wheel.manifest import argument_layouts, role_of
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy.family import family_of
from lowlevel_reduce.strategy.stubs import KernelSource
def processor(source):
    begin = time.process_time()
    compile_kernel(source, "sm_90")
    return time.process_time() - begin
def empty(source):
    return KernelSource(source.entry, re.sub(r"[{]\\n    .*\\n[}]\\n$", "{\\n}\\n", source.text))
families = {}
for op in OPS:
    named = families[op] = {}
    for source in family_of(op, dtype="float32", compute_capability=(9, 0)):
        name = role_of(source) + ("_anywhere" if source.entry.endswith("_anywhere") else "")
        named[name + " of larger blocks" if name in named else name] = source
names = list(dict.fromkeys(name for named in families.values() for name in named))[PART::PROCESSES]
out = {op: {} for op in families}
processor(empty(families[OPS[0]][names[0]]))  # loads NVRTC
for name in names:
    sources = {op: named[name] for op, named in families.items() if name in named}
    tried = [{op: (processor(each), processor(empty(each))) for op, each in sources.items()} for _ in range(TIMES)]
    for op, source in sources.items():
        seconds, headers = map(min, zip(*(each[op] for each in tried)))
        whole = "const __grid_constant__ Problem " in source.text
        out[op][name] = {"whole": whole, "seconds": seconds, "headers": headers}
print(json.dumps(out))
"""
"""The processor time of one process's kernels and of their headers: OPS, PART, PROCESSES and TIMES are put before.

Operators take turns at each kernel, and the least of all times counts: what else a processor does makes them longer,
by half where its cores are shared, and would make a ratio of any two. There is no cache.
"""

Times = Sequence[Mapping[str, float]]


class Line(NamedTuple):
    """A line of the table: what was measured, ours and theirs in milliseconds, and the largest ratio that is a goal."""

    what: str
    ours: float
    theirs: float | None
    goal: float | None
    beside: str = CUPY

    @property
    def ratio(self) -> float | None:
        """Our time over theirs."""
        return None if self.theirs is None else self.ours / self.theirs

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None if there is none, or nothing to compare with."""
        return None if self.goal is None or self.ratio is None else self.ratio <= self.goal


def milliseconds(times: Times, part: str) -> float:
    """Return the median of a part of several processes."""
    return 1e3 * statistics.median([each[part] for each in times])


def lines_of(found: Mapping[str, Times]) -> list[Line]:
    """Return the lines of fresh processes: by name "empty", "wheel", "meanwhile", "warmed" and the competitor's."""
    theirs = {part: milliseconds(found[CUPY], part) if CUPY in found else None for part in PARTS}
    goals = {("empty", PARTS[0]): 1.5, ("empty", PARTS[1]): 1.0, ("wheel", PARTS[0]): 1.0, ("wheel", PARTS[1]): 1.0}
    said = {"empty": "empty cache", "wheel": "with the wheel, no NVRTC loaded"}
    lines = [
        Line(f"{part}, {said[kind]}", milliseconds(found[kind], part), theirs[part], goals[kind, part])
        for part in PARTS
        for kind in ("empty", "wheel")
    ]
    lines.append(_with_context(found))
    for name in CALLS:
        peer = milliseconds(found[CUPY], name) if CUPY in found else None
        lines.append(Line(f"after two operators, {name}, empty cache", milliseconds(found["empty"], name), peer, 1.0))
    alone_ms = milliseconds(found["empty"], PARTS[0])
    meanwhile = milliseconds(found["meanwhile"], PARTS[0])
    lines.append(Line("first result, its family compiled meanwhile", meanwhile, alone_ms, None, "without"))
    lines.append(Line("warm-up of a family", milliseconds(found["warmed"], "warm-up"), None, None))
    return [*lines, Line("a plan after it, of 300 shapes", milliseconds(found["warmed"], "new shape"), None, None)]


def _with_context(found: Mapping[str, Times]) -> Line:
    """Return the line of the context and the first result together: what is made ready in the first is not lost."""
    both = {
        name: [{"both": each["context"] + each[PARTS[0]]} for each in times]
        for name, times in found.items()
        if name in ("empty", CUPY)
    }
    theirs = milliseconds(both[CUPY], "both") if CUPY in both else None
    return Line("context and first result, empty cache", milliseconds(both["empty"], "both"), theirs, 1.5)


def compiled_lines(families: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[Line]:
    """Return the lines of what compiling takes: of each kind the kernel that is furthest from its goal."""
    lines = []
    for kind, most in MOST_OF_HEADERS.items():
        of_kind = {name: each for name, each in families["sum"].items() if each["whole"] == (kind == "whole")}
        name, worst = max(of_kind.items(), key=lambda pair: pair[1]["seconds"] / pair[1]["headers"])
        what = f"sum compiled, {'whole arrays' if kind == 'whole' else kind}, at worst {name}"
        lines.append(Line(what, 1e3 * worst["seconds"], 1e3 * worst["headers"], most, "headers alone"))
    for op, kernels in families.items():
        both = {name: (each["seconds"], families["sum"][name]["seconds"]) for name, each in kernels.items()
                if name in families["sum"] and op != "sum"}  # fmt: skip
        if both:
            name, (ours, sums) = max(both.items(), key=lambda pair: pair[1][0] / pair[1][1])
            lines.append(Line(f"{op} compiled, at worst {name}", 1e3 * ours, 1e3 * sums, MOST_OF_SUM, "the sum's"))
        total = 1e3 * sum(each["seconds"] for each in kernels.values())
        lines.append(Line(f"{op} compiled, its {len(kernels)} kernels", total, None, None))
    return lines


def table(lines: Sequence[Line]) -> list[str]:
    """Return the table in Markdown."""
    head = [
        "| processes' medians, ms | ours | beside | | ratio | goal | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    words = {True: "met", False: "**not met**", None: ""}
    return head + [
        f"| {line.what} | {line.ours:.1f} | "
        + (f"{line.beside} | {line.theirs:.1f} | {line.ratio:.2f} | " if line.theirs is not None else "| | | ")
        + f"{'' if line.goal is None else line.goal} | {words[line.is_met]} |"
        for line in lines
    ]


def measured(times: int, byte_code: str, *, with_cupy: bool, wheel: Path | None = None) -> dict[str, Times]:
    """Run the fresh processes by turns, so that what slows the machine down slows all of them."""
    script = SCRIPT.replace("PLANS", "[]")
    ours, theirs = ([(name, each[whose]) for name, each in CALLS.items()] for whose in (0, 1))
    found: dict[str, list[Mapping[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        site = str(install_wheel(Path(folder)) if wheel is None else unpack_wheel(wheel, Path(folder) / "site"))
        runs: dict[str, tuple[str, dict[str, str]]] = {
            "empty": (f"CALLS = {ours}\n{script}", {}),
            "wheel": (script, {"PYTHONPATH": before(site)}),
            "meanwhile": (script, {"LOWLEVEL_REDUCE_WARM_UP": "1"}),
            "warmed": (WARMED_UP, {}),
        }
        if with_cupy:
            runs[CUPY] = (f"CALLS = {theirs}\n{PEERS[CUPY]}", {})
        for _ in range(times):
            for name, (source, variables) in runs.items():
                found.setdefault(name, []).extend(alone(source, 1, byte_code, **variables))
    if any(each["compiler"] for each in found["wheel"]):
        raise RuntimeError("a process that has the wheel of kernels loaded NVRTC")
    return dict(found)


def compiled(times: int, byte_code: str) -> dict[str, dict[str, Any]]:
    """Return the kernels of each family, compiled one after the other by several processes, a part by each."""

    def part(number: int) -> Any:
        script = f"OPS, PART, PROCESSES, TIMES = {(FAMILIES, number, PROCESSES, times)}\n{KERNELS}"
        return alone(script, 1, byte_code, LOWLEVEL_REDUCE_CACHE_DIR="off", LOWLEVEL_REDUCE_PREBUILT_DIR="")[0]

    with ThreadPoolExecutor(PROCESSES) as pool:
        parts = list(pool.map(part, range(PROCESSES)))
    return {op: {name: each for found in parts for name, each in found[op].items()} for op in FAMILIES}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and print the table; with ``--json``, keep all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5, help="processes of each kind, and compilations of each kernel")
    parser.add_argument("--without-cupy", action="store_true")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="such as all of `make kernels`")
    parser.add_argument("--commit", help="the commit, where there is no git")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as byte_code:
        keep_byte_code(byte_code)
        found = measured(arguments.times, byte_code, with_cupy=not arguments.without_cupy, wheel=arguments.wheel)
        families = compiled(min(arguments.times, 3), byte_code)
    lines = [*lines_of(found), *compiled_lines(families)]
    print("\n".join(table(lines)))
    if arguments.json:
        with lr.Context.primary() as context:
            facts = conditions(context.device, arguments.commit)
        document = {
            "conditions": facts,
            "lines": [line._asdict() | {"ratio": line.ratio, "is_met": line.is_met} for line in lines],
            "processes": {OURS if name == "empty" else name: list(times) for name, times in found.items()},
            "compiled": families,
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
