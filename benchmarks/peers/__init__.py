"""The competitors; one that a machine lacks is reported as missing, with the reason."""

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
    "torch deterministic": "torch_deterministic",
    "quack": "quack_peer",
    "Triton": "triton_peer",
    "Numba": "numba_peer",
}
"""Every competitor and its module; the module's `open_peer` takes a stream and returns a peer or raises `Missing`."""


def find(
    names: Sequence[str], stream: Stream, load: Callable[[str], Any] = importlib.import_module
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the competitors that this machine has, by name, and why it lacks the others.

    Parameters
    ----------
    names : sequence of str
        Names in `PEERS`.
    stream : Stream
        The stream on which they will run.
    load : callable
        Imports a module by its name.
    """
    found, missing = {}, {}
    for name in names:
        try:
            found[name] = load(f"benchmarks.peers.{PEERS[name]}").open_peer(stream)
        except (Missing, ImportError) as error:
            missing[name] = str(error)
        except Exception as error:  # noqa: BLE001  it is installed but does not start, and the others must be measured
            missing[name] = f"{type(error).__name__}: {error}"[:200]
    return found, missing
