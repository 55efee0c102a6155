"""Fill the figures of README.md from the measured suites, or check that they agree with them.

python -m benchmarks.pages.readme_doc [--check]

They come from the newest complete run of each suite, on the kind of GPU that was measured last if there is one, and are
between ``<!-- measured NAME -->`` and ``<!-- end -->``: ``headline`` is a paragraph, ``sums`` and ``operators`` are
tables with the conditions of the measurement.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from benchmarks.measure.figures import AFTER, BACK_TO_BACK, OURS, FileError, median_us, row_at, us_at
from benchmarks.measure.runs import Suite, load_cards
from benchmarks.pages.filling import ROOT, fill
from benchmarks.suites.arrays import OPERATOR_TYPES, OPERATORS

__all__ = ["PAGE", "filled", "main"]

PAGE = ROOT / "README.md"

_LENGTHS = ("2^8", "2^12", "2^16", "2^18", "2^20", "2^22", "2^24", "2^26", "100,000,000", "2^28", "2^30")
_SUM, _LOGSUMEXP, _CALL = "100,000,000", "logsumexp 2^14 x 2^14, axis 1", "one-shot"
_ALONG_AXIS = "sum(x, axis=1)"
"""The cells of the headline, from the suites of whole arrays, of other operators, and of host time."""

_SPOKEN = {
    "torch": "eager PyTorch",
    "torch.compile": "`torch.compile`",
    "cuda.compute": "`cuda.compute`",
    "CUB not_guaranteed": "CUB with `not_guaranteed` determinism",
    "CUB gpu_to_gpu": "CUB with `gpu_to_gpu` determinism",
}
_CALLS = {"torch": "`torch.sum`", "CuPy": "`cupy.sum`"}
"""How a sentence names competitors and their calls; those that are not here keep their name."""

_LIBRARIES = {"torch": "PyTorch", "torch.compile": "`torch.compile`", "cuda.compute": "`cuda.compute`"}
_WIDTH = 120

_TABLE = re.compile(r"(<!-- measured (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def filled(text: str, results: Path) -> str:
    """Return the page with its figures filled in from the newest runs in `results`.

    Raises
    ------
    FileError
        If a file is malformed, there is no complete run of a suite, or it lacks a cell.
    """
    cards = load_cards(results)
    tables = {
        "headline": lambda: _headline(*(_newest(cards, name) for name in ("flat", "stats", "host"))),
        "sums": lambda: _sums(_newest(cards, "flat")),
        "operators": lambda: _costs(_newest(cards, "operators")),
    }

    def table(match: re.Match[str]) -> str:
        if match[2] not in tables:
            raise FileError(f"there is no table {match[2]!r}; there is {', '.join(tables)}")
        return f"{match[1]}\n{tables[match[2]]()}\n\n{match[4]}"

    return _TABLE.sub(table, text)


def _newest(cards: dict[str, dict[str, list[Suite]]], name: str) -> Suite:
    for suite in (each for suites in cards.values() for each in suites.get(name, [])):
        if not suite.partial:
            return suite
    raise FileError(f"there is no complete run of the suite {name!r}")


def _shown(us: float) -> str:
    return f"{us:.2f}" if us < 100 else f"{us:.1f}"


def _in_use(suite: Suite) -> Suite:
    """Return the rows of a suite that are quoted: after its producer, where there are such rows, else back to back."""
    return suite.of(AFTER if AFTER in suite.modes else BACK_TO_BACK) if len(suite.modes) > 1 else suite


def _headline(flat: Suite, stats: Suite, host: Suite) -> str:
    """Return the figures that the page begins with, each next to the fastest competitor in its row."""
    behind_producer = ", right after the kernel that wrote the input" if AFTER in flat.modes else ""
    flat, stats = _in_use(flat), _in_use(stats)
    rate = 1e-6 * row_at(flat.rows, _SUM)["size_bytes"] / us_at(flat.rows, _SUM)
    text = (
        f"On one {flat.conditions['device']}{behind_producer}, each compared with the fastest competitor in the same "
        f"run: the sum of 1e8 float32 takes {_spoken_us(flat, _SUM)} µs ({rate:.2f} TB/s), against "
        f"{_beside(flat, _SUM)}; `logsumexp` along the rows of a 16384 x 16384 array takes "
        f"{_spoken_us(stats, _LOGSUMEXP)} µs, against {_beside(stats, _LOGSUMEXP, 'torch')}; a call to `lr.sum` costs "
        f"{_spoken_us(host, _CALL)} µs of host time, against {_beside(host, _CALL)}"
    )
    if any(row["cell"] == _ALONG_AXIS for row in host.rows):
        text += f", and one along an axis {_spoken_us(host, _ALONG_AXIS)}, against {_beside(host, _ALONG_AXIS)}"
    text += "."
    return textwrap.fill(text, _WIDTH, break_long_words=False, break_on_hyphens=False)


def _beside(suite: Suite, cell: str, *others: str) -> str:
    """Return the fastest competitor of a row with its time, and the same for the `others`."""
    names = dict.fromkeys([row_at(suite.rows, cell)["best_peer"], *others])
    spoken = _CALLS if cell in (_CALL, _ALONG_AXIS) else _SPOKEN
    return " and ".join(f"{_spoken_us(suite, cell, name)} for {spoken.get(name, name)}" for name in names)


def _spoken_us(suite: Suite, cell: str, name: str = OURS) -> str:
    us = us_at(suite.rows, cell, name)
    return f"{us:.1f}" if us < 1000 else f"{us:.0f}"


def _sums(suite: Suite) -> str:
    when = ", right after the kernel that wrote its input," if AFTER in suite.modes else ","
    how = "added device time in graphs" if AFTER in suite.modes else "device time by graph replays"
    suite = _in_use(suite)
    # Variants of CUB count as one library; competitors that failed are not in `peers`.
    names = [_LIBRARIES.get(name, name) for name in dict.fromkeys(peer.partition(" ")[0] for peer in suite.peers)]
    lines = [f"Device time of a float32 sum by the one tree{when} next to the fastest of {_listed(names)}:", ""]
    lines += ["| elements | one tree, µs | CUB, µs | fastest peer, µs | peer |", "| --- | ---: | ---: | ---: | --- |"]
    for cell in _LENGTHS:
        ours, cub, best = us_at(suite.rows, cell), us_at(suite.rows, cell, "CUB"), row_at(suite.rows, cell)["best_peer"]
        lines.append(f"| {cell} | {_shown(ours)} | {_shown(cub)} | {_shown(us_at(suite.rows, cell, best))} | {best} |")
    return "\n".join([*lines, "", _conditions(suite, how)])


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _costs(suite: Suite) -> str:
    measured = {row["cell"]: us for row in suite.rows if (us := median_us(row, OURS)) is not None}
    dtypes = [dtype for dtype in OPERATOR_TYPES if f"{OPERATORS[0]} {dtype} 2^28" in measured]
    lines = ["| operator | " + " | ".join(dtypes) + " |", "| --- |" + " ---: |" * len(dtypes)]
    for op in OPERATORS:
        times = [measured.get(f"{op} {dtype} 2^28") for dtype in dtypes]
        bases = [measured[f"{OPERATORS[0]} {dtype} 2^28"] for dtype in dtypes]
        cells = [
            "–" if us is None else f"{us:.1f} µs" if op == OPERATORS[0] else f"× {us / base:.2f}"
            for us, base in zip(times, bases, strict=True)
        ]
        if any(us is not None for us in times):
            lines.append(f"| `{op}` | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", _conditions(suite)])


def _conditions(suite: Suite, how: str = "device time by graph replays") -> str:
    at, packages = suite.conditions, suite.conditions["packages"]
    nvrtc = next((f"NVRTC {packages[name]}, " for name in packages if name.startswith("nvidia-cuda-nvrtc")), "")
    cub = f"CUB {at['cub']}, " if "cub" in at else ""
    return (
        f"Measured on one {at['device']}, driver {at['nvidia_smi'].split(',')[0]}, {nvrtc}{cub}{at['measured'][:10]}, "
        f"commit {at['commit']}: {how}, medians of one run, `benchmarks/results/{suite.file}`."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Fill or check; return 1 if the page differs from the files, 2 if one is malformed."""
    return fill("readme_doc", __doc__, PAGE, filled, argv)


if __name__ == "__main__":
    sys.exit(main())
