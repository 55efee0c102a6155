"""What tests keep between runs, in `.cache/tests` of the work tree: compiled kernels and their machine code as text.

Everything is kept by a digest of all that it is made from, as in the library's own cache, so that nothing stale is
found after a change. `TESTS_CACHE_DIR` names another directory, which several work trees may share.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from lowlevel_reduce import NoCompilerError, compiler
from lowlevel_reduce.compiler import program
from lowlevel_reduce.compiler.cache import VARIABLE, DiskCache, open_cache
from lowlevel_reduce.compiler.program import Cubin

__all__ = ["DIRECTORY", "forget_the_oldest", "listing", "use_kept_kernels"]

DIRECTORY = Path(os.environ.get("TESTS_CACHE_DIR") or Path(__file__).resolve().parents[1] / ".cache" / "tests")
LIMIT_BYTES = 1 << 30


def use_kept_kernels(patch: pytest.MonkeyPatch) -> None:
    """Let the library's cache be the kept one; skip the test where NVRTC is missing."""
    try:
        compiler.version()
    except NoCompilerError as error:
        pytest.skip(str(error))
    directory = str(DIRECTORY / "kernels")

    def opened() -> DiskCache | None:
        # Without a limit no time goes into looking for what to drop at each kernel.
        cache = open_cache()
        return DiskCache(directory, limit_bytes=None) if cache and cache.directory == directory else cache

    compile_now, locks, begun = program._compile, defaultdict[str, threading.Lock](threading.Lock), set[str]()

    def compile_once(job: Any, cache: DiskCache | None) -> Cubin:
        """Compile, or wait for the thread that compiles the same: ranks in threads need their kernels all at once."""
        if cache is None or cache.directory != directory:
            return compile_now(job, cache)
        name = program._entry_name(job, None)
        with locks[name]:
            found = program._from_cache(job, cache) if name in begun else None
            begun.add(name)
            return found or compile_now(job, cache)

    patch.setenv(VARIABLE, directory)
    patch.setattr(program, "open_cache", opened)
    patch.setattr(program, "_compile", compile_once)


def listing(cubin: bytes) -> str:
    """Return what ``nvdisasm -c`` prints of a cubin; skip the test where there is no nvdisasm."""
    pathfinder = pytest.importorskip("cuda.pathfinder")
    tool = pathfinder.find_nvidia_binary_utility("nvdisasm")
    if tool is None:
        pytest.skip("nvdisasm is not installed: pip install nvidia-cuda-nvdisasm")
    maker = f"{tool} {os.stat(tool).st_size} {os.stat(tool).st_mtime_ns}"
    path = DIRECTORY / "listings" / hashlib.sha256(maker.encode() + b"\0" + cubin).hexdigest()
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        image = path.with_suffix(f".{os.getpid()}.cubin")
        image.write_bytes(cubin)
        done = subprocess.run([tool, "-c", str(image)], capture_output=True, text=True, check=True)
        image.write_text(done.stdout)
        image.replace(path)  # at once, since other processes may be reading
    return path.read_text()


def forget_the_oldest() -> None:
    """Remove the oldest files while all of them together are above the limit."""
    found = sorted((path.stat().st_mtime, path.stat().st_size, path) for path in DIRECTORY.rglob("*") if path.is_file())
    excess = sum(size for _, size, _ in found) - LIMIT_BYTES
    for _, size, path in found:
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= size
