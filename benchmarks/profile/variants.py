"""Time variants of the library in one run, next to competitors; many figures of NOTES.md come from this.

python -m benchmarks.profile.variants --case "OP TYPE SHAPE" ... [--variant "NAME KEY=VALUE ..."] ... [--peer NAME]
    --json FILE

A shape is sizes with x between them, such as 8x2^20. axis=N may follow, or axis=N,M; strides=N,M,... in elements; and
shift=N, the array's first element in an aligned memory. Segments have their names in the suite. With --around, each
case is also timed after its producer and alone. A variant differs from the library as it is by any of

    checkout=DIR            the whole library of another checkout, such as that of an old commit (with nothing else)
    sources=DIR             another cuda_src, such as that of a checkout with a change
    MODULE.NAME=VALUE       another constant of a module, such as strategy.column_costs._LATENCY=1.0
    launch.FIELD=VALUE      an attribute of every launch, such as launch.shared_memory_carveout=0
    plan.OPTION=VALUE       an option of lowlevel_reduce.plan, such as plan.strategy='rows'
"""

from __future__ import annotations

import argparse
import ast
import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.measure import records
from benchmarks.measure.checkouts import Checkout
from benchmarks.measure.figures import BACK_TO_BACK, OURS
from benchmarks.measure.harness import Harness, Inputs, Maker, ours
from benchmarks.measure.problems import Case
from benchmarks.measure.shapes import named
from benchmarks.measure.timing import conditions, opened, sources_digest
from benchmarks.peers import PEERS
from benchmarks.suites import Setting, arrays
from lowlevel_reduce import ReduceError, Stream
from lowlevel_reduce.compiler import program
from lowlevel_reduce.compiler.sources import SourceTree
from lowlevel_reduce.driver import LaunchConfig
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.operators import OPERATORS
from lowlevel_reduce.plans import loading, mapping, segments
from lowlevel_reduce.strategy import column_costs, column_cuts, columns, elements, joined_columns, selection, whole

__all__ = ["Variant", "case_of", "main", "name_of_case", "spelled", "variant_of"]

ROUNDS = 9
"""Enough to distinguish one percent; a run has few cells, so it can have many rounds."""


@dataclass(frozen=True)
class Variant:
    """The library with something changed.

    Attributes
    ----------
    name : str
        Its name in the table.
    sources : Path, optional
        Its cuda_src.
    checkout : Checkout, optional
        The checkout that its library is of, instead of this one; then it differs by nothing else.
    constants, launch, plan : dict
        Other values for constants of modules (by ``"module.NAME"``), fields of `LaunchConfig`, and options of a plan.
    """

    name: str
    sources: Path | None = None
    constants: dict[str, Any] = field(default_factory=dict)
    launch: dict[str, Any] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    checkout: Checkout | None = None

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the changes to plans that are made within this block; such plans keep them afterwards."""
        with ExitStack() as stack:
            # Kernels of its own: the cache of loaded ones is keyed by their text, in which headers are only named.
            stack.enter_context(mock.patch.object(loading, "_KEPT", f"kernels of {self.name}"))
            if self.sources is not None:
                tree = SourceTree(self.sources)
                stack.enter_context(mock.patch.object(program, "source_tree", return_value=tree))
            for place, value in self.constants.items():
                module, name = place.rsplit(".", 1)
                found = importlib.import_module(f"lowlevel_reduce.{module}")
                stack.enter_context(mock.patch.object(found, name, value))
            if self.constants:
                _forget_choices()
                stack.callback(_forget_choices)
            if self.launch:

                def config(*given: Any, **named: Any) -> LaunchConfig:  # also what the library itself names
                    return LaunchConfig(*given, **{**named, **self.launch})

                stack.enter_context(mock.patch.object(mapping, "template", mapping.template.__wrapped__))  # not kept
                for module_of_launches in (mapping, segments):
                    stack.enter_context(mock.patch.object(module_of_launches, "LaunchConfig", config))
            yield

    def told(self) -> dict[str, Any]:
        """Return it for a file: a constant that JSON has no form for, such as a mapping of pairs, as its text."""
        plain = (bool, int, float, str)
        constants = {name: value if isinstance(value, plain) else repr(value) for name, value in self.constants.items()}
        told = {"name": self.name, "launch": self.launch, "plan": self.plan, "constants": constants}
        if self.checkout is not None:
            told |= {"checkout": self.checkout.root.name, "checkout_sources": sources_digest(self.checkout.root)}
        return {**told, "sources": None if self.sources is None else str(self.sources)}

    def maker(self, case: Case, inputs: Inputs, stream: Stream) -> Maker:
        """Return the maker that makes it ready for a case."""

        def make() -> Any:
            if self.checkout is not None:
                return self.checkout.ready(case, inputs, stream, self.name)
            with self.applied():
                return replace(ours(case, inputs, stream, **self.plan), name=self.name)

        return Maker(self.name, make)


def _forget_choices() -> None:
    """Forget what was chosen by other constants."""
    for module in (column_costs, column_cuts, columns, elements, joined_columns, selection, whole):
        for kept in vars(module).values():
            if hasattr(kept, "cache_clear"):
                kept.cache_clear()
        getattr(module, "_chosen", {}).clear()


def variant_of(text: str) -> Variant:
    """Return the variant that a command-line argument describes.

    Raises
    ------
    ValueError
        If it is malformed, or names a constant or an attribute that does not exist.
    """
    words = text.split()
    settings = [word for word in words if "=" in word]
    name = " ".join(word for word in words if "=" not in word)
    if not name or words[len(words) - len(settings) :] != settings:
        raise ValueError(f"a variant is a name and then KEY=VALUE words, not {text!r}")
    sources, checkout, found = None, None, dict[str, dict[str, Any]](constants={}, launch={}, plan={})
    for setting in settings:
        key, value = setting.split("=", 1)
        kind, _, rest = key.rpartition(".")
        if key == "sources":
            sources = Path(value)
            if not (sources / "operators.cuh").is_file():
                raise ValueError(f"{value} is no cuda_src: it lacks operators.cuh")
        elif key == "checkout":
            checkout = Checkout(Path(value))
        elif kind in ("launch", "plan"):
            found[kind][rest] = ast.literal_eval(value)
        else:
            found["constants"][_constant(key)] = ast.literal_eval(value)
    unknown = set(found["launch"]) - set(LaunchConfig.__dataclass_fields__)
    if unknown:
        raise ValueError(f"a launch has no {', '.join(sorted(unknown))}")
    if checkout is not None and len(settings) > 1:
        raise ValueError(f"a whole checkout differs by nothing else: {text!r}")
    return Variant(name, sources, **found, checkout=checkout)


def _constant(key: str) -> str:
    module, _, name = key.rpartition(".")
    try:
        there = module and hasattr(importlib.import_module(f"lowlevel_reduce.{module}"), name)
    except ImportError:
        there = False
    if not there:
        raise ValueError(f"lowlevel_reduce has no {key}")
    return key


def case_of(text: str) -> Case:
    """Return the case that a command-line argument describes.

    Raises
    ------
    ValueError
        If it is malformed.
    """
    if text in arrays.SEGMENTS:
        return arrays.segment_case(text)
    form = re.fullmatch(
        r"(\w+) (\w+) ([\d^x]+)(?: axis=(\d+(?:,\d+)*))?(?: strides=(\d+(?:,\d+)*))?(?: shift=(\d+))?", text
    )
    if form is None or form[1] not in OPERATORS:
        raise ValueError(
            f"a case is 'OP TYPE SHAPE [axis=N,...] [strides=N,...] [shift=N]', or one of {list(arrays.SEGMENTS)}, "
            f"not {text!r}"
        )
    shape = tuple(_size(size) for size in form[3].split("x"))
    axes = None if form[4] is None else tuple(map(int, form[4].split(",")))
    strides = None if form[5] is None else tuple(map(int, form[5].split(",")))
    if axes is not None and max(axes) >= len(shape):
        raise ValueError(f"{text!r}: {len(shape)} axes have no number {max(axes)}")
    if strides is not None and len(strides) != len(shape):
        raise ValueError(f"{text!r}: {len(shape)} axes have as many strides, not {len(strides)}")
    axis = axes[0] if axes is not None and len(axes) == 1 else axes
    return Case(form[1], shape, axis, element_type(form[2]).name, shift=int(form[6] or 0), strides=strides)


def _size(text: str) -> int:
    base, power, exponent = text.partition("^")
    return int(base) ** int(exponent) if power else int(base)


def line_of(cell: str, entries: Mapping[str, Any]) -> str:
    """Return a cell's times in one line, each with its ratio to the unchanged library's."""
    base = entries.get(OURS, {}).get("us")
    parts = []
    for name, entry in entries.items():
        if "us" not in entry:
            parts.append(f"{name} FAILED {entry['error'][:60]}")
        else:
            beside = f" ({entry['us'] / base:.3f})" if base and name != OURS else ""
            parts.append(f"{name} {entry['us']:.2f}{beside}")
    return f"{cell[:34]:34} {', '.join(parts)}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for, and save each cell at once; return 1 if a variant failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--case",
        action="append",
        required=True,
        type=spelled(case_of),
        metavar="TEXT",
        help="may be given several times",
    )
    parser.add_argument("--variant", action="append", default=[], type=spelled(variant_of), metavar="TEXT")
    parser.add_argument("--peer", action="append", default=[], choices=PEERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--around", action="store_true", help="also after a producer and alone, which needs PyTorch")
    parser.add_argument("--json", metavar="FILE", required=True, type=Path)
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args(argv)
    if not arguments.json.parent.is_dir():
        parser.error(f"there is no directory {arguments.json.parent}")
    names = [variant.name for variant in arguments.variant]
    if len({OURS, *names}) <= len(names):
        parser.error("variants need names of their own")
    rows: list[dict[str, Any]] = []
    with opened() as stream:
        harness = Harness(stream, arguments.rounds, arguments.rounds)
        setting = Setting(harness)
        facts = conditions(stream.context.device, arguments.commit)
        told = [variant.told() for variant in arguments.variant]
        setting.peers(*arguments.peer)
        records.begin(arguments.json, "variants", facts, variants=told, missing=setting.missing)
        for case in arguments.case:
            neighbours = setting.neighbours(case) if arguments.around else None
            found = _measured(harness, case, arguments.variant, setting.peers(*arguments.peer), neighbours)
            for mode, entries in found.items():
                rows.append({"cell": name_of_case(case), "mode": mode, "entries": entries})
                records.add(arguments.json, rows[-1])
                tag = "" if mode == BACK_TO_BACK else f" {mode}"
                print(line_of(f"{name_of_case(case)}{tag}", entries), flush=True)
        harness.release()
    for name, why in setting.missing.items():
        print(f"missing: {name}: {why}")
    return int(any("us" not in row["entries"][name] for row in rows for name in (OURS, *names)))


def name_of_case(case: Case) -> str:
    """Return the name of a case's row."""
    if case.offsets is not None:
        return f"{case.rows} segments of {case.size} {case.dtype}"
    return named(case)


def _measured(
    harness: Harness, case: Case, variants: Sequence[Variant], peers: Sequence[Any], neighbours: Any = None
) -> dict[str, dict[str, Any]]:
    """Return the entries by mode: back to back, and beside the neighbours if there are any."""
    inputs = harness.inputs(case, "rotated", spare=neighbours is not None)
    makers = [Maker(OURS, lambda: ours(case, inputs, harness.stream))]
    makers += [variant.maker(case, inputs, harness.stream) for variant in variants]
    makers += [maker for peer in peers for maker in peer.ready(case, inputs, harness.stream)]
    try:
        return harness.measure_around(case, makers, [] if neighbours is None else neighbours(inputs))
    finally:
        if inputs.offsets is not None:
            inputs.offsets.close()


def spelled(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a reader of arguments whose errors the command line shows."""

    def argument(text: str) -> Any:
        try:
            return read(text)
        except (ValueError, TypeError, SyntaxError, ReduceError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return argument


if __name__ == "__main__":
    sys.exit(main())
