"""Time every way to reduce an array in parts on two GPUs, beside torch's, in one command; the bits are one GPU's.

python -m benchmarks.profile.parts_table [--json FILE] [--rounds 30] [--early]

It needs two GPUs and torch with NCCL, and is made to take less than four minutes. Two processes, a GPU each, sum 1e6,
16e6 and 1e9 floats: by a call that exchanges the lengths, with ``length=``, by a bound plan, and by a plan captured in
a graph, beside torch's ``sum`` and ``all_reduce``, eager and captured. One process does it by ``reduce_shards`` beside
torch's two sums and their addition. Two processes take the logsumexp of 64 rows of 151,936 bfloat16 in two slices,
cut at leaves and in halves, beside torch's five steps. Every time is from the call to a value on the host, but of the
rows to a synchronised result, and once more with its copy to the host, taken in an order drawn for each round, after a
barrier.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lowlevel_reduce as lr
from benchmarks.profile.parts import joined, samples_us
from lowlevel_reduce.parts import fold

__all__ = ["GOALS", "main", "rows_of", "table_of", "torch_logsumexp"]

ELEMENTS = (1_000_000, 16_000_000, 1_000_000_000)
ROWS, VOCABULARY = 64, 151_936
SHARDS = "one process, reduce_shards"
GRAPH, EAGER, TOLD, PLAN = "graph", "eager", "length=", "plan"
TORCH, TORCH_GRAPH = "torch", "torch graph"
EARLY = ", early fold"

GOALS = {
    # How many times torch's time each may take, by the number of elements: the aims of the design.
    EAGER: {1_000_000: 2.0, 16_000_000: 2.0, 1_000_000_000: 2.0},
    TOLD: {1_000_000: 1.25, 16_000_000: 1.25, 1_000_000_000: 1.05},
    PLAN: {1_000_000: 1.25, 16_000_000: 1.25, 1_000_000_000: 1.05},
    GRAPH: {1_000_000: 1.1, 16_000_000: 1.1, 1_000_000_000: 1.1},
    SHARDS: {1_000_000: 1.1, 16_000_000: 1.1, 1_000_000_000: 1.1},
}
LOGSUMEXP_GOAL = 1 / 3

Samples = dict[str, list[float]]
Figures = dict[str, Samples]


def part_of(torch: Any, rank: int, length: int) -> Any:
    """Return the part of a rank, made of its own seed on the current device: any process can make it again."""
    device = f"cuda:{torch.cuda.current_device()}"
    generator = torch.Generator(device=device)
    generator.manual_seed(rank + 1)
    return torch.rand(length, generator=generator, device=device)


def slice_of(torch: Any, rank: int, length: int) -> Any:
    """Return a rank's slice of the logits."""
    return (part_of(torch, rank, ROWS * length) * 20 - 10).reshape(ROWS, length).to(torch.bfloat16)


def bits(value: Any) -> bytes:
    """Return the bits of a result, on the host."""
    found: bytes = value.numpy().tobytes() if isinstance(value, lr.DeviceArray) else value.cpu().numpy().tobytes()
    return found


def checked(what: str, found: bytes, expected: bytes) -> None:
    """Refuse a result that has other bits than one GPU's."""
    if found != expected:
        raise lr.ReduceError(f"{what} has the bits {found[:8].hex()}, one GPU {expected[:8].hex()}: not timed")


def captured(torch: Any, call: Callable[[], Any], stream: Any) -> Any:
    """Return a graph of a call that was made before, in a stream of torch's."""
    with torch.cuda.stream(stream):
        call()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Of this thread alone: NCCL's watchdog asks for events in another.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        call()
    return graph


def ways(
    torch: Any, make: Callable[[], Any], reduce: Callable[..., Any], x: Any, out: Any, theirs: Callable[[], Any]
) -> tuple[dict[str, Callable[[], Any]], list[Any]]:
    """Return what is timed, each a call that returns a result on the device, and what must live as long."""
    plan = make()
    launch = plan.bind(torch.cuda.current_stream())
    side = torch.cuda.Stream()
    in_graph = plan.bind(side)
    graph = captured(torch, lambda: in_graph(x.data_ptr(), out.data_ptr()), side)
    their_result: list[Any] = []
    their_graph = captured(torch, lambda: their_result.append(theirs()), side)

    def by_plan() -> Any:
        launch(x.data_ptr(), out.data_ptr())
        return out

    def by_graph() -> Any:
        graph.replay()
        return out

    def by_their_graph() -> Any:
        their_graph.replay()
        return their_result[-1]

    calls = {
        EAGER: lambda: reduce(x),
        TOLD: lambda: reduce(x, length=plan.cut.length),
        PLAN: by_plan,
        GRAPH: by_graph,
        TORCH: theirs,
        TORCH_GRAPH: by_their_graph,
    }
    return calls, [plan, launch, in_graph, graph, their_graph, side]


def sums(torch: Any, distributed: Any, rank: int, elements: int, rounds: int, meet: Callable[[], None]) -> Samples:
    """Time the sum of one length."""
    lengths = lr.shard_lengths(elements, "float32", 2)
    x, out = part_of(torch, rank, lengths[rank]), torch.zeros((), device="cuda")
    whole = torch.cat([part_of(torch, each, lengths[each]) for each in range(2)])
    expected = bits(lr.sum(whole))
    del whole
    torch.cuda.empty_cache()

    def theirs() -> Any:
        total = x.sum()
        distributed.all_reduce(total)
        return total

    calls, kept = ways(
        torch,
        lambda: lr.distributed.plan("sum", length=elements, dtype="float32"),
        lr.distributed.sum,
        x,
        out,
        theirs,
    )
    for name, call in calls.items():
        if name not in (TORCH, TORCH_GRAPH):
            checked(f"sum of {elements} by {name}", bits(call()), expected)
    value = float(out.item())
    timed = {name: _followed_by(_value, call) for name, call in calls.items()}
    samples = samples_us(timed, value, rounds, meet)
    del kept
    return samples


def torch_logsumexp(distributed: Any, x: Any) -> Any:
    """Return the logsumexp of rows of which this rank has a slice, by torch's five steps."""
    most = x.amax(dim=1, keepdim=True).float()
    distributed.all_reduce(most, op=distributed.ReduceOp.MAX)
    total = (x.float() - most).exp().sum(dim=1, keepdim=True)
    distributed.all_reduce(total)
    return most + total.log()


def logsumexps(
    torch: Any, distributed: Any, rank: int, rounds: int, meet: Callable[[], None], *, at_leaves: bool
) -> tuple[Samples, Samples]:
    """Time the logsumexp of rows of which each rank has a slice, cut at leaves or in halves.

    Returned are the times to a synchronised result, and those to one on the host.
    """
    lengths = lr.shard_lengths(VOCABULARY, "bfloat16", 2) if at_leaves else [VOCABULARY // 2] * 2
    x, out = slice_of(torch, rank, lengths[rank]), torch.zeros(ROWS, dtype=torch.bfloat16, device="cuda")
    whole = torch.cat([slice_of(torch, each, lengths[each]) for each in range(2)], dim=1)
    lr.logsumexp(whole, axis=1, out=out)
    expected = bits(out.view(torch.int16))

    def theirs() -> Any:
        return torch_logsumexp(distributed, x)

    def reduce(part: Any, **options: Any) -> Any:
        return lr.distributed.logsumexp(part, axis=1, **options)

    shape = tuple(x.shape)
    calls, kept = ways(
        torch,
        lambda: lr.distributed.plan("logsumexp", length=VOCABULARY, dtype="bfloat16", shape=shape, axis=1),
        reduce,
        x,
        out,
        theirs,
    )
    if not at_leaves:
        del calls[TOLD]  # the length of the whole alone tells of cuts at leaves
    for name, call in calls.items():
        if name not in (TORCH, TORCH_GRAPH):
            found = call()
            found = bits(found) if isinstance(found, lr.DeviceArray) else bits(found.view(torch.int16))
            checked(f"logsumexp by {name}", found, expected)

    def on_host(found: Any) -> Any:
        # As it is: to convert it is a launch more, of results that are not float32.
        return found.numpy() if isinstance(found, lr.DeviceArray) else found.cpu()

    def first(found: Any) -> float:
        return float(found.reshape(-1)[0])

    value = first(on_host(calls[PLAN]()))
    stream = torch.cuda.current_stream()

    def waited(found: Any) -> Any:
        stream.synchronize()
        return found

    def read(found: Any) -> float:
        return first(on_host(found))

    timed = {name: _followed_by(waited, call) for name, call in calls.items()}
    samples = samples_us(timed, value, rounds, meet, within=2e-2, read=read)
    timed = {name: _followed_by(on_host, call) for name, call in calls.items()}
    copied = samples_us(timed, value, rounds, meet, within=2e-2, read=first)
    del kept
    return samples, copied


def _followed_by(value: Callable[[Any], Any], call: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: value(call())


def _value(found: Any) -> float:
    return float(found) if isinstance(found, lr.DeviceArray) else float(found.item())


def _rank(rank: int, folder: str, rounds: int, early: bool) -> None:
    """Run one of two processes; the first writes what was measured.

    If it is `early`, folds may start before the gather has ended, which they wait for, and only that is measured.
    """
    fold.MAY_START_EARLY = early
    found: Figures = {}
    with joined(rank, folder) as (torch, distributed, meet):
        for elements in ELEMENTS[:2] if early else ELEMENTS:
            found[f"sum {elements}"] = sums(torch, distributed, rank, elements, rounds, meet)
        for at_leaves in (True,) if early else (True, False):
            name = "logsumexp" if at_leaves else "logsumexp in halves"
            both = logsumexps(torch, distributed, rank, rounds, meet, at_leaves=at_leaves)
            found[name], found[f"{name}, on the host"] = both
        if rank == 0:
            (Path(folder) / ("early" if early else "samples")).write_text(json.dumps(found), encoding="utf-8")


def _one_process(folder: str, rounds: int) -> None:
    """Time `reduce_shards` on both GPUs of this process."""
    torch = importlib.import_module("torch")
    found: Figures = {}
    for elements in ELEMENTS:
        parts = []
        for rank, length in enumerate(lr.shard_lengths(elements, "float32", 2)):
            with torch.cuda.device(rank):
                parts.append(part_of(torch, rank, length))
        whole = torch.cat([parts[0], parts[1].to("cuda:0")])
        expected = bits(lr.sum(whole))
        del whole
        torch.cuda.empty_cache()
        checked(f"reduce_shards of {elements}", bits(lr.reduce_shards(parts)), expected)

        def theirs(parts: list[Any] = parts) -> float:
            sums = [part.sum() for part in parts]
            return float((sums[0] + sums[1].to("cuda:0")).item())

        def ours(parts: list[Any] = parts) -> float:
            return float(lr.reduce_shards(parts))

        found[f"shards {elements}"] = samples_us({SHARDS: ours, TORCH: theirs}, ours(), rounds)
    (Path(folder) / "shards").write_text(json.dumps(found), encoding="utf-8")


def _alone(rank: int, folder: str, rounds: int, early: bool) -> None:
    _one_process(folder, rounds)


def rows_of(found: Figures) -> list[dict[str, Any]]:
    """Return a row for each way: its median, that of torch's form, their ratio, and the goal, met or not."""
    rows = []
    for problem, samples in found.items():
        medians = {name: statistics.median(times) for name, times in samples.items()}
        for name, median in medians.items():
            if name in (TORCH, TORCH_GRAPH):
                continue
            theirs = medians[TORCH_GRAPH if name == GRAPH else TORCH]
            is_rows = problem.startswith("logsumexp")
            goal = LOGSUMEXP_GOAL if is_rows else GOALS[name][int(problem.removesuffix(EARLY).split()[1])]
            ratio = median / theirs
            rows.append(
                {"problem": problem, "way": name, "us": round(median, 1), "torch_us": round(theirs, 1),
                 "ratio": round(ratio, 3), "goal": round(goal, 3), "met": ratio <= goal}
            )  # fmt: skip
    return rows


def table_of(rows: Sequence[dict[str, Any]]) -> str:
    """Return the rows as a table of Markdown."""
    lines = [
        "| problem | way | µs | torch, µs | ratio | at most | |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        met = "met" if row["met"] else "not met"
        figures = f"{row['us']} | {row['torch_us']} | {row['ratio']:.2f} | {row['goal']:.2f}"
        lines.append(f"| {row['problem']} | {row['way']} | {figures} | {met} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print the table, and write the samples with their conditions if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--early", action="store_true", help="also let folds start before the gather has ended")
    arguments = parser.parse_args(argv)
    spawn = importlib.import_module("torch.multiprocessing").spawn
    found: Figures = {}
    with tempfile.TemporaryDirectory() as folder:
        runs = ((_rank, 2, "samples", False), (_alone, 1, "shards", False), (_rank, 2, "early", True))
        for work, processes, name, early in runs[: 3 if arguments.early else 2]:
            try:
                spawn(work, args=(folder, arguments.rounds, early), nprocs=processes)
            except Exception as error:
                if not early:
                    raise
                print(f"with early folds: {error}", flush=True)  # what was measured before is told all the same
                continue
            samples = json.loads((Path(folder) / name).read_text(encoding="utf-8"))
            found |= {f"{problem}{EARLY if early else ''}": each for problem, each in samples.items()}
            print(table_of(rows_of(found)), flush=True)  # as far as it came
    rows = rows_of(found)
    if arguments.json:
        torch = importlib.import_module("torch")
        conditions = {
            "device": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "library": lr.__version__,
            "rounds": arguments.rounds,
        }
        text = json.dumps({"conditions": conditions, "rows": rows, "samples": found}, indent=1)
        arguments.json.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
