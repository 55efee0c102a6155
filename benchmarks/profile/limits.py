"""Profile cases with Nsight Compute: what limits this library's kernels, and a competitor's, in a cell.

    python -m benchmarks.profile.limits --case "sum float32 2^12" ... [--peer NAME] ... --json FILE

A case is spelled as for ``benchmarks.profile.variants``. Each contender reduces each case once, after a first time that
is not profiled. ncu launches each kernel several times, alone, with empty caches and at the device's clocks. So a
kernel takes longer here than in the suites, where it overlaps with its neighbours and small arrays are in the L2:
figures are to be compared with each other.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.measure import records
from benchmarks.measure.figures import OURS, FileError
from benchmarks.measure.harness import Harness, Maker, Ready, ours
from benchmarks.measure.problems import Case, check
from benchmarks.measure.timing import conditions, opened
from benchmarks.measure.turns import telling
from benchmarks.peers import PEERS
from benchmarks.profile import ncu
from benchmarks.profile.ncu import Launch
from benchmarks.profile.variants import case_of, name_of_case, spelled
from benchmarks.suites import Setting
from lowlevel_reduce import Kernel, LaunchConfig, Library, Stream
from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.driver import binding, launch

__all__ = ["METRICS", "SIGN", "contenders", "main", "summary"]

_STALLS = ("long_scoreboard", "short_scoreboard", "barrier", "membar", "wait", "lg_throttle", "mio_throttle",
           "math_pipe_throttle", "no_instruction", "sleeping")  # fmt: skip

METRICS: Mapping[str, str] = {
    "time_ns": "gpu__time_duration.sum",
    "blocks": "launch__grid_size",
    "threads": "launch__block_size",
    "registers": "launch__registers_per_thread",
    "memory_bytes": "dram__bytes_read.sum",
    "memory_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "l2_percent": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue_percent": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "cycles": "sm__cycles_elapsed.max",
    "active_cycles": "sm__cycles_active.avg",
} | {
    f"stalled_{reason}": f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in _STALLS
}  # fmt: skip
"""What is read of each kernel, and the profiler's name for it.

Of its peak, a percentage is that of the device's memory, of the L2, of the slots for issuing instructions and of the
places for warps. Cycles are those of the multiprocessors: from the first to the last, and those in which one had a
warp, on average. A stall is how many warps, for each instruction that a scheduler issued, could not go on for that
reason: waiting for global memory is "long_scoreboard", for shared memory "short_scoreboard", for a fence "membar".
"""

SIGN = "contender_begins"
"""The kernel that is launched, and profiled, before each contender's own."""

_PROGRAM = Program("limits", f'extern "C" __global__ void {SIGN}() {{}}\n')


def launch_all(cases: Sequence[Case], peers: Sequence[str]) -> list[dict[str, str]]:
    """Launch each contender for each case; return which they were, in their order, and what failed or is missing."""
    done: list[dict[str, str]] = []
    with opened() as stream, _sign(stream) as sign:
        harness = Harness(stream)
        setting = Setting(harness)
        for case in cases:
            inputs = harness.inputs(case, "hot")
            makers = [Maker(OURS, functools.partial(ours, case, inputs, stream))]
            makers += [maker for peer in setting.peers(*peers) for maker in peer.ready(case, inputs, stream)]
            setting.settle()
            for maker in makers:
                failed: dict[str, dict[str, Any]] = {}
                with telling(maker.name, failed):
                    ready = _warm(maker, case)
                if not failed:
                    _profile(ready, stream, sign)
                done.append({"cell": name_of_case(case), "contender": maker.name, **failed.get(maker.name, {})})
            if inputs.offsets is not None:
                inputs.offsets.close()
        harness.release()
        done += [{"contender": name, "missing": why} for name, why in setting.missing.items()]
    return done


def _warm(maker: Maker, case: Case) -> Ready:
    """Make a contender ready and check what it returns."""
    ready = maker()
    try:
        ready.enqueue(0)
        check(case, ready.results(), exact=ready.exact, known={})
    except BaseException:
        ready.close()
        raise
    return ready


def _profile(ready: Ready, stream: Stream, sign: Kernel) -> None:
    """Let the profiler see one reduction, after the sign; then close the contender.

    An error ends the run: the sign may have been seen, and nothing would tell what comes after it.
    """
    stream.context.synchronize()
    binding.call("cuProfilerStart")
    launch(sign, LaunchConfig(grid=1, block=32), stream, "")
    ready.enqueue(0)
    stream.context.synchronize()
    binding.call("cuProfilerStop")
    ready.close()


@contextmanager
def _sign(stream: Stream) -> Iterator[Kernel]:
    simulated = binding.selected().image == "ptx"
    code = compile_program(_PROGRAM, stream.context.device.architecture, output="ptx" if simulated else "cubin")
    with Library.load(code.data, name=_PROGRAM.name) as library:
        yield library.kernel(SIGN)


def contenders(launches: Sequence[Launch], done: Sequence[Mapping[str, str]]) -> list[dict[str, Any]]:
    """Return the contenders with the figures of their kernels, by this module's names for them.

    Parameters
    ----------
    launches : sequence of Launch
        All that ncu saw.
    done : sequence of mapping
        What `launch_all` returned. Contenders that failed or are missing have launched nothing.

    Raises
    ------
    FileError
        If the two do not fit.
    """
    groups: list[list[dict[str, Any]]] = []
    for each in launches:
        if each.kernel == SIGN:
            groups.append([])
        elif not groups:
            raise FileError(f"ncu saw {each.kernel} before the first contender")
        else:
            figures = {name: each.figures[metric] for name, metric in METRICS.items()}
            groups[-1].append({"kernel": each.kernel, **figures})
    launched = [entry.keys().isdisjoint({"error", "missing"}) for entry in done]
    if len(groups) != sum(launched):
        raise FileError(f"ncu saw {len(groups)} contenders, not {sum(launched)}")
    kernels = iter(groups)
    return [
        {**entry, "kernels": next(kernels)} if was_launched else dict(entry)
        for entry, was_launched in zip(done, launched, strict=True)
    ]


def summary(entry: Mapping[str, Any]) -> str:
    """Return a contender's figures as text: a line for it, and one for each kernel."""
    if "missing" in entry:
        return f"{entry['contender']} is missing: {entry['missing']}"
    head = f"{entry['cell']} {entry['contender']}"
    if "error" in entry:
        return f"{head}: {entry['error']}"
    lines = [head]
    for kernel in entry["kernels"]:
        stalls = sorted(((kernel[f"stalled_{reason}"], reason) for reason in _STALLS), reverse=True)[:3]
        lines.append(
            f"  {kernel['kernel'][:36]:36} {kernel['time_ns'] / 1e3:8.2f} us, memory {kernel['memory_percent']:.1f} %, "
            f"L2 {kernel['l2_percent']:.1f} %, issue {kernel['issue_percent']:.1f} %, warps "
            f"{kernel['warps_percent']:.0f} %, {kernel['registers']:.0f} registers, stalls "
            + ", ".join(f"{reason} {value:.1f}" for value, reason in stalls)
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Profile what the command line asks for, print and write it; return 1 if a contender failed, 2 if ncu did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", action="append", required=True, metavar="TEXT", type=spelled(_spelled_case))
    parser.add_argument("--peer", action="append", default=[], choices=PEERS)
    parser.add_argument("--json", metavar="FILE", type=Path)
    parser.add_argument("--launch", metavar="FILE", type=Path, help="launch them, for ncu; FILE is told what they were")
    parser.add_argument("--commit", help="for a copy of the tree without its history")
    arguments = parser.parse_args(argv)
    if arguments.launch is not None:
        done = launch_all([case_of(text) for text in arguments.case], arguments.peer)
        arguments.launch.write_text(json.dumps(done), encoding="utf-8")
        return 0
    if arguments.json is None or not arguments.json.parent.is_dir():
        parser.error("--json needs a file in a directory that exists")
    try:
        found = _profiled(arguments.case, arguments.peer)
    except (FileError, OSError) as error:
        print(f"benchmarks.profile.limits: {error}", file=sys.stderr)
        return 2
    for entry in found:
        print(summary(entry))
    with opened() as stream:
        facts = {**conditions(stream.context.device, arguments.commit), "ncu": ncu.version()}
    records.begin(arguments.json, "limits", facts, metrics=dict(METRICS))
    records.add(arguments.json, *found)
    return int(any("error" in entry for entry in found))


def _spelled_case(text: str) -> str:
    case_of(text)
    return text


def _profiled(cases: Sequence[str], peers: Sequence[str]) -> list[dict[str, Any]]:
    metrics = tuple(METRICS.values())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "done.json"
        words = [word for case in cases for word in ("--case", case)] + [
            word for peer in peers for word in ("--peer", peer)
        ]
        text = ncu.profile(
            sys.executable,
            metrics=metrics,
            arguments=("benchmarks.profile.limits", *words, "--launch", str(file)),
            options=("--profile-from-start", "off"),
        )
        done = json.loads(file.read_text(encoding="utf-8"))
    return contenders(ncu.launches(text, metrics), done)


if __name__ == "__main__":
    sys.exit(main())
