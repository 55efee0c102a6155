"""The libraries that are compared with; one that a machine lacks is named as missing, with the reason."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.peers.common import Missing
from lowlevel_reduce import Stream

__all__ = ["PEERS", "Missing", "find"]

PEERS: Mapping[str, str] = {
    "CUB": "cub",
    "cuda.compute": "compute",
    "CuPy": "cupy_peer",
    "torch": "torch_peer",
    "torch.compile": "torch_compiled",
    "Triton": "triton_peer",
    "Numba": "numba_peer",
}
"""Every competitor and its module, whose function `open_peer` takes a stream and returns a peer or raises `Missing`."""


def find(
    names: Sequence[str], stream: Stream, load: Callable[[str], Any] = importlib.import_module
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the competitors that this machine has, by name, and why it lacks the others.

    Parameters
    ----------
    names : sequence of str
        Of `PEERS`.
    stream : Stream
        Where they will run.
    load : callable
        Imports a module by its name.
    """
    found, missing = {}, {}
    for name in names:
        try:
            found[name] = load(f"benchmarks.peers.{PEERS[name]}").open_peer(stream)
        except (Missing, ImportError) as error:
            missing[name] = str(error)
        except Exception as error:  # noqa: BLE001  one that is there and does not start, and the others shall be measured
            missing[name] = f"{type(error).__name__}: {error}"[:200]
    return found, missing
