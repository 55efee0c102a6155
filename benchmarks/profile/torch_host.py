"""Host time of an eager torch operator of this library, beside an empty operator of its signature and the direct call.

python -m benchmarks.profile.torch_host [--json FILE] [--device cuda|cpu]

Asked is that an operator costs at most 3 us more than an empty custom operator of the same signature, which returns
tensors of the same shapes, and the direct call of the library together. The direct call writes into arrays that are
there, so that what torch allocates counts once. On the CPU, where the tree in NumPy would be what is timed, it only
shows that everything runs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

import lowlevel_reduce as lr
from benchmarks.measure.timing import conditions
from lowlevel_reduce.driver import Device
from lowlevel_reduce.torch import operators

__all__ = ["main", "rows_of"]

ROUNDS, CALLS = 21, 200


class Row(NamedTuple):
    """An operator of the library, an empty one, and the direct call, all without arguments."""

    name: str
    operator: Callable[[], Any]
    empty: Callable[[], Any]
    direct: Callable[[], Any]


@torch.library.custom_op("lowlevel_reduce_empty::softmax", mutates_args=())
def _softmax(x: Tensor, scale: float, log: bool) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


@torch.library.custom_op("lowlevel_reduce_empty::rms_norm", mutates_args=())
def _rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device), torch.empty(
        x.shape[:-1], dtype=torch.float32, device=x.device
    )


@torch.library.custom_op("lowlevel_reduce_empty::layer_norm", mutates_args=())
def _layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    mean, rstd = (torch.empty(x.shape[:-1], dtype=torch.float32, device=x.device) for _ in range(2))
    return out, mean, rstd


def rows_of(device: str) -> list[Row]:
    """Return what is compared, over 8 rows of 4096 bfloat16."""
    x = torch.randn(8, 4096, device=device).to(torch.bfloat16)
    weight = torch.ones(4096, dtype=torch.bfloat16, device=device)
    out, rstd, mean = torch.empty_like(x), *(torch.empty(8, device=device) for _ in range(2))
    calls: dict[str, Callable[[], Any]]
    if device == "cuda":
        calls = {
            "softmax": lambda: lr.softmax(x, out=out),
            "rms_norm": lambda: lr.rms_norm(x, weight, 1e-6, return_rstd=True, out={"out": out, "rstd": rstd}),
            "layer_norm": lambda: lr.layer_norm(
                x, weight, weight, return_stats=True, out={"out": out, "mean": mean, "rstd": rstd}
            ),
        }
    else:
        calls = dict.fromkeys(("softmax", "rms_norm", "layer_norm"), lambda: None)
    return [
        Row("softmax", lambda: operators._softmax(x, 1.0, False), lambda: _softmax(x, 1.0, False), calls["softmax"]),
        Row(
            "rms_norm",
            lambda: operators._rms_norm(x, weight, 1e-6),
            lambda: _rms_norm(x, weight, 1e-6),
            calls["rms_norm"],
        ),
        Row(
            "layer_norm",
            lambda: operators._layer_norm(x, weight, weight, 1e-5),
            lambda: _layer_norm(x, weight, weight, 1e-5),
            calls["layer_norm"],
        ),
    ]


def _us(call: Callable[[], Any], wait: Callable[[], Any], rounds: int, calls: int) -> float:
    times = []
    for _ in range(rounds + 2):
        wait()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            call()
        times.append((time.perf_counter_ns() - begin) / calls / 1e3)
    wait()
    return statistics.median(times[2:])


def main(argv: list[str] | None = None) -> None:
    """Measure, in torch's own current stream, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS)
    parser.add_argument("--commit", help="the commit, where there is no git")
    given = parser.parse_args(argv)
    on_gpu = given.device == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    found = {}
    with torch.no_grad(), torch.cuda.device(0) if on_gpu else nullcontext():
        for row in rows_of(given.device):
            three = (row.operator, row.empty, row.direct)
            for call in three:
                call()
            times: list[list[float]] = [[], [], []]
            for _ in range(3):  # by turns, so that all see the same host
                for own, call in zip(times, three, strict=True):
                    own.append(_us(call, wait, max(1, given.rounds // 3), given.calls))
            operator, empty, direct = map(min, times)
            found[row.name] = {"operator": operator, "empty": empty, "direct": direct}
            print(
                f"{row.name:12s} operator {operator:6.2f} us, empty {empty:6.2f}, direct {direct:6.2f}: "
                f"{operator - empty - direct:+.2f} us above both"
            )
    if given.json:
        device = Device(0) if on_gpu else None
        facts = {"device": "cpu", **conditions(device, given.commit), "rounds": given.rounds, "calls": given.calls}
        given.json.write_text(json.dumps({"conditions": facts, "us": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
