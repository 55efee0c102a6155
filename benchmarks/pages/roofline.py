"""The roofs of a GPU and where the rungs stand under them: from committed records and counters, drawn for the pages.

python -m benchmarks.pages.roofline [--check] writes docs/plots/climb.svg and docs/plots/roofline.svg.

W and Q, the operations of a sum and the bytes it moves, are counted by the simulator; times are those of
``benchmarks/results/*-ladder-a-1e8.jsonl``, the newest of each GPU. A plot's last line is the digest of what it shows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import records
from benchmarks.measure.figures import FileError, digest
from benchmarks.pages.filling import RESULTS, ROOT
from benchmarks.pages.ladder_doc import counted_records
from benchmarks.profile.ladder_counters import COUNTERS

__all__ = ["GPUS", "LADDER", "Gpu", "Standing", "main", "newest", "standings"]

PLOTS = ROOT / "docs" / "plots"
LADDER = (
    "v0_atomic", "v1_shared_interleaved", "v2_shared_sequential", "v3_two_loads", "v3_four_loads", "v4_float4",
    "v4_float4_tuned", "v5_warp_shuffle", "v5_warp_shuffle_tuned", "v6_block_atomic", "v6_block_atomic_tuned",
    "v7_cluster", "v7_cluster_tuned", "v8_one_tree",
)  # fmt: skip
"""The sums of system A in the order of the ladder."""


class Gpu(NamedTuple):
    """What bounds a GPU: its multiprocessors, their peak clock, and the memory's bandwidth by its clock and width."""

    name: str
    multiprocessors: int
    clock_ghz: float
    gb_per_s: float

    @property
    def gops_per_s(self) -> float:
        """Additions of float32 a second, in 1e9: 128 a clock on each multiprocessor (compute capability 9.0).

        It is also how many instructions threads can be issued: four warps of 32 lanes a clock.
        """
        return self.multiprocessors * 128 * self.clock_ghz

    @property
    def ridge(self) -> float:
        """The operations a byte from which on the arithmetic is the limit, and not the memory."""
        return self.gops_per_s / self.gb_per_s


GPUS = (Gpu("H100 SXM", 132, 1.98, 3352.3), Gpu("H200", 132, 1.98, 4814.3))
"""The peak clocks that nvidia-smi reports, 1980 MHz and the memory's, which the records' conditions have."""


class Standing(NamedTuple):
    """Where a rung stands: operations a byte, instructions of threads a byte, and its bandwidth if it was measured."""

    rung: str
    intensity: float
    issued: float
    gb_per_s: float | None
    microseconds: float | None


def newest(results: Path, run: str = "a-1e8") -> dict[str, tuple[str, list[Mapping[str, Any]]]]:
    """Return the newest file and its records of a run of the ladder for each GPU, by the GPU's name."""
    found: dict[str, tuple[str, list[Mapping[str, Any]]]] = {}
    for file in sorted(results.glob(f"*-ladder-{run}.jsonl")):
        document = records.read(file, "ladder")
        found[str(document.conditions["device"])] = file.name, list(document.records)
    return found


def standings(timed: Sequence[Mapping[str, Any]], counters: Path = COUNTERS) -> list[Standing]:
    """Return where the rungs of the ladder stand; raises FileError if a rung has no counters."""
    counted = {record["rung"]: record for record in counted_records(counters)[0]}
    times = {record["rung"]: record for record in timed}
    found = []
    for name in LADDER:
        record, time = counted.get(name), times.get(name, {})
        if record is None or not record["counters"]:
            raise FileError(f"{counters.name} has no counters of {name}")
        told = record["counters"]
        moved = told["bytes_read"] + told["bytes_written"]
        found.append(
            Standing(
                name,
                (record["n"] - 1) / moved,
                32 * told["instructions"] / told["bytes_read"],
                time.get("gb_per_s"),
                time.get("microseconds"),
            )
        )
    return found


def _climb(timed: Mapping[str, tuple[str, list[Mapping[str, Any]]]]) -> str:
    from benchmarks.pages.plots import COLOURS, GREY, drawn, grey  # noqa: PLC0415 - matplotlib is slow to import

    devices = sorted(timed, reverse=True)
    with drawn("climb", (8, 2.4 + 1.4 * len(devices))) as (figure, text):
        axes = figure.add_subplot()
        grey(axes)
        height = 0.8 / len(devices)
        for k, device in enumerate(devices):
            by_name = {record["rung"]: record for record in timed[device][1]}
            for place, name in enumerate(LADDER):
                record = by_name.get(name)
                if record is None or not record["microseconds"]:
                    continue
                y = place + (k - (len(devices) - 1) / 2) * height
                colour = COLOURS[1] if name != "v8_one_tree" else COLOURS[0]
                axes.barh(y, record["percent_of_peak"], height * 0.9, color=colour, alpha=1 - 0.4 * k)
                told = f"{record['microseconds']:,.0f} µs"
                axes.text(record["percent_of_peak"] + 1, y, told, va="center", fontsize=7, color=GREY)
        axes.set_yticks(range(len(LADDER)), LADDER, fontsize=7)
        axes.invert_yaxis()
        axes.set_xlim(0, 108)
        named = " and ".join(f"{device} ({shade})" for device, shade in zip(devices, ("dark", "light"), strict=False))
        axes.set_xlabel(
            f"% of the memory's peak; sum of 1e8 float32, {named if devices[1:] else devices[0]}", color=GREY
        )
    return text.getvalue()


def _roofline(stand: Sequence[Standing]) -> str:
    from benchmarks.pages.plots import COLOURS, GREY, drawn, grey  # noqa: PLC0415 - as above

    with drawn("roofline", (8, 3.8)) as (figure, text):
        left, right = figure.subplots(1, 2)
        for axes in (left, right):
            grey(axes)
            axes.set_xscale("log")
            axes.set_yscale("log")
        for gpu, colour in zip(GPUS, COLOURS, strict=False):
            spread = (0.05, gpu.ridge, 200.0)
            left.plot(spread, [min(gpu.gb_per_s * x, gpu.gops_per_s) for x in spread], color=colour, label=gpu.name)
            left.axvline(gpu.ridge, color=colour, linestyle=":", linewidth=0.8)
            right.plot(spread, [min(gpu.gb_per_s, gpu.gops_per_s / x) for x in spread], color=colour, label=gpu.name)
        measured = [each for each in stand if each.gb_per_s]
        left.scatter(
            [each.intensity for each in measured],
            [each.intensity * (each.gb_per_s or 0) for each in measured],
            color=COLOURS[2], s=12, zorder=3, label="rungs on an H200",
        )  # fmt: skip
        right.scatter(
            [each.issued for each in measured],
            [each.gb_per_s or 0 for each in measured],
            color=COLOURS[2],
            s=12,
            zorder=3,
        )
        for each in (each for each in measured if not each.rung.endswith("_tuned")):
            right.annotate(each.rung.partition("_")[0], (each.issued, each.gb_per_s or 0), fontsize=6, color=GREY)
        left.set_xlabel("additions a byte", color=GREY)
        left.set_ylabel("1e9 additions a second", color=GREY)
        right.set_xlabel("instructions of threads a byte (simulator)", color=GREY)
        right.set_ylabel("GB/s", color=GREY)
        left.legend(frameon=False, labelcolor=GREY, fontsize=7)
    return text.getvalue()


def main(argv: Sequence[str] | None = None) -> int:
    """Draw or check; return 1 if a plot shows something else than the files, 2 if a file is malformed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if something would be changed")
    parser.add_argument("--plots", type=Path, default=PLOTS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args(argv)
    try:
        timed = newest(arguments.results)
        stand = standings(_of_h200(timed))
    except FileError as error:
        print(f"benchmarks.pages.roofline: {error}", file=sys.stderr)
        return 2
    shown = {
        "climb": [[name, file, _plain(rows)] for name, (file, rows) in sorted(timed.items())],
        "roofline": [list(each) for each in (*GPUS, *stand)],
    }
    for name, values in shown.items():
        file, last = arguments.plots / f"{name}.svg", f"<!-- shows {digest(values)} -->"
        if file.is_file() and file.read_text(encoding="utf-8").rstrip().endswith(last):
            continue
        if arguments.check:
            print(
                f"{file} shows other figures than the results: run python -m benchmarks.pages.roofline", file=sys.stderr
            )
            return 1
        svg = _climb(timed) if name == "climb" else _roofline(stand)
        lines = [line.rstrip() for line in svg.splitlines()]
        file.write_text("\n".join([*lines, last, ""]), encoding="utf-8")
    return 0


def _of_h200(timed: Mapping[str, tuple[str, list[Mapping[str, Any]]]]) -> list[Mapping[str, Any]]:
    for name, (_, rows) in timed.items():
        if "H200" in name:
            return rows
    raise FileError("there is no run a-1e8 of the ladder on an H200")


def _plain(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [[row["rung"], row["microseconds"], row["percent_of_peak"]] for row in rows if row["rung"] in LADDER]


if __name__ == "__main__":
    sys.exit(main())
