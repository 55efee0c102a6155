"""Fresh processes: their environment, and what they print."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence

__all__ = ["CACHES", "environment_of", "last_line"]

CACHES = ("LOWLEVEL_REDUCE_CACHE_DIR", "CUPY_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR",
          "CUDA_CACHE_PATH")  # fmt: skip
"""Where this library, CuPy, Inductor, Triton and the driver keep what they have compiled."""


def environment_of(cache: str | None, byte_code: str | None = None) -> dict[str, str]:
    """Return the environment of a process whose caches of compiled code are in a folder, by default where they are.

    With `byte_code`, it keeps the byte code of modules in that folder, whatever this process does.
    """
    found = dict(os.environ)
    if cache is not None:
        found |= {name: os.path.join(cache, name.lower()) for name in CACHES}
    if byte_code is not None:
        found.pop("PYTHONDONTWRITEBYTECODE", None)
        found["PYTHONPYCACHEPREFIX"] = byte_code
    return found


def last_line(command: Sequence[str], environment: Mapping[str, str], timeout: float = 300.0) -> str:
    """Return the last line that a process prints.

    Raises
    ------
    RuntimeError
        If it fails or does not end in time; with the last line of its errors.
    """
    try:
        run = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, check=False, timeout=timeout
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"a fresh process did not end in {timeout:.0f} s") from error
    if run.returncode:
        said = (run.stderr.strip() or "it said nothing").splitlines()[-1]  # one ended by a signal says nothing
        raise RuntimeError(f"a fresh process failed with {run.returncode}: {said}")
    return (run.stdout.strip() or "{}").splitlines()[-1]
