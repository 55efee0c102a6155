"""Row operations beside torch, torch.compile, quack and a copy: device time by graph replays, and the bits.

``python -m benchmarks.profile.rowops --json FILE`` measures every cell and checks that a row has the same bits alone,
among seven and among 65,536; ``--quick`` measures a few, without ``torch.compile``; ``--unaligned`` rows of odd lengths
and along the first axis. What is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import lowlevel_reduce as lr
from benchmarks.measure.timing import conditions, launches_for, opened, replay_us, rotation
from lowlevel_reduce import Buffer, Stream
from lowlevel_reduce.dtypes import numpy_dtype
from lowlevel_reduce.rowops.exponentials import softmax_of
from lowlevel_reduce.rowops.losses import cross_entropy_of
from lowlevel_reduce.rowops.norms import layer_norm_of, rms_norm_of
from lowlevel_reduce.rowops.quantisation import quantize_of

__all__ = ["main"]

HOT_BYTES = 8 << 20
"""Smaller problems keep one copy: they stay in the L2 between launches, as they would in use."""

ROUNDS = 7


class Case(NamedTuple):
    """One cell: an operation over `rows` rows of `length` elements; `block` cuts them; `columns` of the first axis."""

    op: str
    rows: int
    length: int
    dtype: str
    block: int | None = None
    columns: bool = False

    @property
    def name(self) -> str:
        """How it is called in results."""
        return f"{self.op} {self.rows}x{self.length} {self.dtype}" + (
            f" by {self.block}" if self.block else " axis=0" if self.columns else ""
        )


_TABLE = (
    (32768, 256, "bfloat16"), (32768, 1024, "bfloat16"), (32768, 4096, "bfloat16"), (16384, 8192, "bfloat16"),
    (16384, 16384, "bfloat16"), (8192, 65536, "bfloat16"), (4096, 131072, "float32"), (4096, 262144, "bfloat16"),
    (8, 131072, "bfloat16"), (64, 7168, "bfloat16"),
)  # fmt: skip
_SMALL = ((1, 4096), (8, 4096), (64, 4096), (1, 32768), (1, 131072), (64, 131072))

CASES = (
    *(Case(op, *shape) for op in ("softmax", "rms_norm") for shape in _TABLE),
    *(Case(op, *shape, "bfloat16") for op in ("softmax", "rms_norm") for shape in _SMALL),
    *(Case("layer_norm", *shape, "bfloat16") for shape in ((32768, 1024), (16384, 8192))),
    Case("log_softmax", 16384, 8192, "bfloat16"),
    Case("cross_entropy", 4096, 128256, "bfloat16"),
    Case("cross_entropy", 32768, 1024, "bfloat16"),
    Case("quantize", 16384, 5120, "bfloat16", 128),
    Case("quantize", 16384, 5120, "bfloat16"),
    Case("softmax", 32768, 1023, "bfloat16"),
)
UNALIGNED = (
    *(Case("softmax", 32768, 1023, dtype) for dtype in ("bfloat16", "float32")),
    Case("rms_norm", 32768, 1023, "bfloat16"),
    Case("softmax", 8192, 8191, "bfloat16"),
    *(Case("softmax", *shape, dtype, columns=True) for shape, dtype in
      (((32768, 1024), "bfloat16"), ((16384, 8192), "bfloat16"), ((32768, 1024), "float32"))),
    Case("rms_norm", 32768, 1024, "bfloat16", columns=True),
)  # fmt: skip
QUICK = tuple(
    case
    for case in CASES
    if case.op in ("softmax", "rms_norm", "quantize") and (case.rows >= 4096 or (case.rows, case.length) == (8, 131072))
)


class Memory(NamedTuple):
    """Copies of a case's input and outputs, and what all copies share, by addresses."""

    sources: list[int]
    outputs: list[int]
    weight: int
    target: int
    kept: int


class Bench:
    """Buffers on one stream, and the timing of contenders."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.device = stream.context.device
        self._buffers: dict[str, Buffer] = {}

    def buffer(self, name: str, size_bytes: int) -> Buffer:
        """Return memory of at least that size, kept from case to case."""
        known = self._buffers.get(name)
        if known is None or known.size_bytes < size_bytes:
            if known is not None:
                self.stream.synchronize()
                known.close()
            self._buffers[name] = known = Buffer.allocate(size_bytes, self.stream.context)
        return known

    def memory(self, case: Case) -> Memory:
        """Return the arrays of a case, filled with numbers between -8 and 8."""
        dtype = numpy_dtype(case.dtype)
        size = case.rows * case.length * dtype.itemsize
        cold = 2 * size >= HOT_BYTES
        copies = min(rotation(2 * size, self.device), 4096) if cold else 1
        step = -(-size // 512) * 512
        source, output = self.buffer("source", step * copies), self.buffer("output", step * copies)
        pattern = (np.random.default_rng(1).standard_normal(1 << 20) * 2).astype(dtype)
        done = 0
        source.copy_from(pattern, size_bytes=min(pattern.nbytes, source.size_bytes))
        done = min(pattern.nbytes, source.size_bytes)
        while done < source.size_bytes:  # each copy doubles what is there
            more = min(done, source.size_bytes - done)
            Buffer.from_pointer(source.pointer + done, more, context=self.stream.context, owner=source).copy_from(
                source, size_bytes=more
            )
            done += more
        weight = self.buffer("weight", 1 << 21)
        weight.copy_from(np.ones(1 << 18, dtype), size_bytes=(1 << 18) * dtype.itemsize)
        target = self.buffer("target", 8 * 65536)
        target.copy_from(np.zeros(65536, np.int64))
        kept = self.buffer("kept", 8 * case.rows * max(1, case.length // (case.block or case.length)))
        pointers = range(0, step * copies, step)
        return Memory(
            [source.pointer + at for at in pointers], [output.pointer + at for at in pointers],
            weight.pointer, target.pointer, kept.pointer,
        )  # fmt: skip

    def us(self, enqueue: Callable[[int], object], copies: int) -> float:
        """Return the device time of one launch in microseconds, the median over replays of a graph."""
        for i in range(3):
            enqueue(i % copies)
        self.stream.synchronize()
        once = replay_us(lambda i: enqueue(i % copies), self.stream, launches=min(copies, 20), rounds=1)
        launches = launches_for(once, 1)
        return replay_us(lambda i: enqueue(i % copies), self.stream, launches=launches, rounds=ROUNDS)


def ours(case: Case, memory: Memory, stream: Stream, **way: Any) -> Callable[[int], object]:
    """Return what launches our operation over a copy of the input; a `way` forces strategy and cluster."""
    options: dict[str, Any] = {"parameters": {}, **way}
    shape: tuple[int, ...] = (case.rows, case.length)
    beside: tuple[int, ...] = ()
    keeps = False
    if case.op in ("softmax", "log_softmax"):
        operation = softmax_of(log=case.op == "log_softmax", causal=False, lengths=False, scaled=False)
    elif case.op == "rms_norm":
        operation, beside = rms_norm_of(weight=True, residual=False, keeps=False), (memory.weight,)
        options["parameters"] = {"eps": 1e-6}
    elif case.op == "layer_norm":
        operation, beside = layer_norm_of(weight=True, bias=True, keeps=False), (memory.weight, memory.weight)
        options["parameters"] = {"eps": 1e-5}
    elif case.op == "cross_entropy":
        operation, beside = cross_entropy_of(counts=False), (memory.target,)
        options |= {"rows": {"target": "int64"}, "parameters": {"ignore": -100}}
    else:
        operation, keeps = quantize_of("float8_e4m3fn"), True
        if case.block:
            shape = (case.rows * case.length // case.block, case.block)
    if case.columns:
        size = numpy_dtype(case.dtype).itemsize
        strides = (size, case.rows * size)
        options |= {"strides_bytes": strides, "output_strides_bytes": {"out": strides}}
    plan = lr.row_plan(operation, shape=shape, dtype=case.dtype, context=stream.context, **options)
    print("   ", plan.describe().splitlines()[-1])
    launch = plan.bind(stream)
    if case.op == "cross_entropy":
        lse = memory.kept + 4 * case.rows
        return lambda i: launch(memory.sources[i], *beside, memory.kept, lse)
    kept = (memory.kept,) if keeps else ()
    return lambda i: launch(memory.sources[i], *beside, memory.outputs[i], *kept)


COPY = lr.RowOperation("copy", write={"out": "x"})


def copies_of(case: Case, memory: Memory, stream: Stream) -> Iterator[tuple[str, Callable[[int], object]]]:
    """Yield a copy of as many bytes as the case reads and writes: by our kernels, and by the driver."""
    size = numpy_dtype(case.dtype).itemsize
    total = moved_bytes(case) // (2 * size)
    length = 8192 if total % 8192 == 0 else case.length
    plan = lr.row_plan(COPY, shape=(total // length, length), dtype=case.dtype, context=stream.context)
    launch = plan.bind(stream)
    yield "copy", lambda i: launch(memory.sources[i], memory.outputs[i])
    context = stream.context
    pairs = [
        (
            Buffer.from_pointer(to, total * size, context=context),
            Buffer.from_pointer(come, total * size, context=context),
        )
        for to, come in zip(memory.outputs, memory.sources, strict=True)
    ]
    yield "driver's copy", lambda i: pairs[i][0].copy_from(pairs[i][1], stream=stream, size_bytes=total * size)


def moved_bytes(case: Case) -> int:
    """Return the bytes that a case reads and writes at least."""
    elements, size = case.rows * case.length, numpy_dtype(case.dtype).itemsize
    if case.op == "cross_entropy":
        return elements * size
    if case.op == "quantize":
        return elements * (size + 1) + 4 * elements // (case.block or case.length)
    return 2 * elements * size


def peers_of(case: Case, memory: Memory, torch: Any, compiled: bool) -> Iterator[tuple[str, Callable[[int], object]]]:
    """Yield torch, torch.compile and quack over the same memory, as far as they have the operation."""
    from benchmarks.peers.common import RawArray  # noqa: PLC0415

    own = getattr(torch, case.dtype)
    shape, numpy_type = (case.rows, case.length), numpy_dtype(case.dtype)
    if case.columns:
        shape = (case.length, case.rows)
    axis = 0 if case.columns else -1

    def tensor(pointer: int, size: tuple[int, ...]) -> Any:
        raw = torch.as_tensor(RawArray(pointer, size, numpy_type), device="cuda")
        return raw if raw.dtype == own else raw.view(own)

    tensors = [tensor(pointer, shape) for pointer in memory.sources]
    weight = torch.ones(case.length, dtype=own, device="cuda")
    target = torch.zeros(case.rows, dtype=torch.int64, device="cuda")
    f = torch.nn.functional

    def quantized(x: Any) -> Any:
        blocks = x.view(-1, case.block or case.length).float()
        scale = blocks.abs().amax(dim=-1, keepdim=True) / 448
        return (blocks / scale).to(torch.float8_e4m3fn), scale

    calls: dict[str, Callable[[Any], Any]] = {
        "softmax": lambda x: torch.softmax(x, axis),
        "log_softmax": lambda x: torch.log_softmax(x, axis),
        "rms_norm": lambda x: f.rms_norm(x.T if case.columns else x, (case.length,), weight, 1e-6),
        "layer_norm": lambda x: f.layer_norm(x, (case.length,), weight, weight),
        "cross_entropy": lambda x: f.cross_entropy(x, target, reduction="none"),
        "quantize": quantized,
    }
    call = calls[case.op]
    yield "torch", lambda i: call(tensors[i])
    if compiled:
        torch._dynamo.reset()
        fast = torch.compile(call, dynamic=False)
        yield "torch.compile", lambda i: fast(tensors[i])
    with suppress(ImportError, AttributeError):
        if case.columns:
            return
        if case.op == "softmax":
            softmax = importlib.import_module("quack.softmax").softmax_fwd
            yield "quack", lambda i: softmax(tensors[i])
        elif case.op == "rms_norm":
            norm = importlib.import_module("quack.rmsnorm").rmsnorm_fwd
            yield "quack", lambda i: norm(tensors[i], weight)
        elif case.op == "cross_entropy":
            entropy = importlib.import_module("quack.cross_entropy").cross_entropy_fwd
            yield "quack", lambda i: entropy(tensors[i], target)


def torch_us(torch: Any, enqueue: Callable[[int], object], copies: int, stream: Any, ours_us: float) -> float:
    """Return the same time of a contender that allocates its results: by a graph of torch's."""
    with torch.cuda.stream(stream):
        for i in range(3):
            enqueue(i % copies)
        stream.synchronize()
        launches = max(3, min(200, launches_for(ours_us * 2, 1)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(launches):
                enqueue(i % copies)
        times = []
        for _ in range(ROUNDS + 1):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            graph.replay()
            start.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            times.append(float(start.elapsed_time(end)) * 1e3 / launches)
        del graph
    return statistics.median(times[1:])


def bits(stream: Stream) -> dict[str, bool]:
    """Return, by operation, whether a row has the same bits alone, among seven and among 65,536, by every strategy."""
    found = {}
    row = (np.random.default_rng(3).standard_normal(4000) * 3).astype(np.float32)
    weight = np.random.default_rng(4).standard_normal(4000).astype(np.float32)
    calls: dict[str, Callable[..., Any]] = {
        "softmax": lambda x, **way: lr.softmax(x, stream=stream, **way),
        "rms_norm": lambda x, **way: lr.rms_norm(x, weight, 1e-6, stream=stream, **way),
        "layer_norm": lambda x, **way: lr.layer_norm(x, weight, weight, stream=stream, **way),
    }
    ways: tuple[dict[str, Any], ...] = (
        {}, {"strategy": "block_rows", "cluster": 2}, {"strategy": "block_rows", "cluster": 8},
        {"strategy": "block_rows", "cluster": 16}, {"strategy": "turn_rows"}, {"strategy": "turn_rows", "cluster": 4},
    )  # fmt: skip
    for name, call in calls.items():
        alone = call(row[None]).numpy()
        same = all(np.array_equal(call(np.tile(row, (7, 1)), **way).numpy(), np.tile(alone, (7, 1))) for way in ways)
        many = call(np.tile(row, (65536, 1))).numpy()
        found[name] = bool(same and np.all(many == alone))
        if name != "softmax":
            meant = getattr(lr.tree, name)(row[None], weight, *((1e-6,) if name == "rms_norm" else (weight,)))
            found[f"{name} as in NumPy"] = alone.tobytes() == meant.tobytes()
    return found


def ways_of(case: Case, memory: Memory, bench: Bench) -> dict[str, float]:
    """Return the times of all strategies and clusters that a case can be launched by."""
    found = {}
    for strategy in ("block_rows", "split_rows", "turn_rows"):
        for cluster in (1, 2, 4, 8, 16):
            with suppress(ValueError):
                launch = ours(case, memory, bench.stream, strategy=strategy, cluster=cluster)
                found[f"{strategy} {cluster}"] = bench.us(launch, len(memory.sources))
    return found


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        return None


def main() -> None:
    """Measure, print a table, and write one line of JSON for each cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--unaligned", action="store_true")
    parser.add_argument("--ways", action="store_true", help="all strategies and clusters instead of peers")
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--commit")
    given = parser.parse_args()
    torch = _torch()
    lines: list[dict[str, Any]] = []
    with opened() as stream:
        outer = None if torch is None else torch.cuda.ExternalStream(stream.handle)
        lines.append({"conditions": conditions(stream.context.device, given.commit), "bits": bits(stream)})
        print(json.dumps(lines[0]["bits"]))
        bench = Bench(stream)
        for case in QUICK if given.quick else UNALIGNED if given.unaligned else CASES:
            if given.only not in case.name:
                continue
            memory = bench.memory(case)
            copies = len(memory.sources)
            times: dict[str, float | str] = {}
            mine = bench.us(ours(case, memory, stream), copies)
            times["one tree"] = mine
            for name, enqueue in copies_of(case, memory, stream):
                times[name] = bench.us(enqueue, copies)
            if given.ways:
                times |= ways_of(case, memory, bench)
            elif torch is not None:
                for name, enqueue in peers_of(case, memory, torch, not given.quick):
                    try:
                        times[name] = torch_us(torch, enqueue, copies, outer, mine)
                    except Exception as error:  # noqa: BLE001 - a peer that fails is reported, and the run goes on
                        times[name] = f"{type(error).__name__}: {error}"[:200]
            moved = moved_bytes(case)
            shown = "  ".join(
                f"{name} {us:.2f} us ({moved / us / 1e3:.0f} GB/s)" if isinstance(us, float) else f"{name}: {us}"
                for name, us in times.items()
            )
            print(f"{case.name}: {shown}", flush=True)
            lines.append({"cell": case.name, "bytes": moved, "copies": copies, "us": times})
            if given.json:
                given.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
