"""Kernels compiled in processes beside each other, into a directory: threads of one process share NVRTC's locks.

Four kernels take two threads 0.65 of the time that they take one (benchmarks/NOTES.md, "What a compilation consists
of"), and a wheel has thousands. Each process runs `serve` of this module: it reads one kernel a line, as JSON, and
answers each with a line. What calls this may be any program, so the processes import nothing of it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, Any, cast

from lowlevel_reduce.compiler import DiskCache, Program, prebuilt_at, stored_in, version
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy.stubs import OPTIONS, KernelSource

__all__ = ["compile_beside", "is_compiled", "serve"]

_DONE, _FAILED = "done\n", "failed\n"

# The interpreter puts the working directory first, whose json.py or other version of this package is none of ours.
_PROGRAM = f"import sys; sys.path[:] = filter(None, sys.path); from {__name__} import serve; serve(sys.argv[1])"

Job = tuple[KernelSource, str]
"""A kernel, and the architecture that it is compiled for."""


def is_compiled(source: KernelSource, architecture: str, directory: DiskCache) -> bool:
    """Tell whether a directory has all that `loading.compile_kernel` asks for: a kernel and every attempt before it.

    Raises
    ------
    ReduceError
        If they are another compiler's: names of prebuilt kernels do not tell, and a wheel is of one compiler.
    """
    for text in (source.text, *source.spare):
        cubin = stored_in(directory, Program(source.entry, text, options=OPTIONS), architecture)
        if cubin is None:
            return False
        if cubin.nvrtc_version != version():
            theirs, ours = (".".join(map(str, each)) for each in (cubin.nvrtc_version, version()))
            raise ReduceError(
                f"{directory.directory} has kernels of NVRTC {theirs}, and this is {ours}: name another directory"
            )
        if not cubin.kernels[source.entry].spill_store_bytes:
            return True
    return True


def compile_beside(jobs: Sequence[Job], directory: DiskCache, each: Callable[[], Any], *, most: int) -> None:
    """Compile kernels into a directory in at most `most` processes.

    A kernel that does not compile is left out, so that whoever asks for it next meets the error.

    Parameters
    ----------
    jobs : sequence of (KernelSource, str)
        Kernels, and the architecture of each.
    directory : DiskCache
        A directory of prebuilt kernels.
    each : callable
        Called after each kernel, in any thread.
    most : int
        Processes beside each other, at most.

    Raises
    ------
    ReduceError
        If a process cannot be started, or ends before it has answered; the message has what it said.
    """
    queue: SimpleQueue[Job] = SimpleQueue()
    for job in jobs:
        queue.put(job)

    def served() -> None:
        with _process(directory) as (process, said):
            while True:
                try:
                    source, architecture = queue.get_nowait()
                except Empty:
                    return
                _answer(process, said, source, architecture)
                each()

    count = max(1, min(most, len(jobs)))
    with ThreadPoolExecutor(count, thread_name_prefix="compile") as pool:
        futures = [pool.submit(served) for _ in range(count)] if jobs else []
        try:
            for future in futures:
                future.result()
        finally:
            with contextlib.suppress(Empty):  # after an error the others end with the kernel that they are at
                while True:
                    queue.get_nowait()


@contextlib.contextmanager
def _process(directory: DiskCache) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Start a process that compiles into a directory, and end it; yields it with the file that has its messages."""
    package = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", _PROGRAM, str(directory.directory)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": path},
            )
        except OSError as error:
            raise ReduceError(f"a process that compiles kernels cannot be started: {error}") from error
        try:
            yield process, said
        except BaseException:
            process.kill()
            raise
        finally:
            with contextlib.suppress(BrokenPipeError), process:  # closes its pipes, at which it ends, and waits for it
                pass


def _answer(process: subprocess.Popen[str], said: IO[str], source: KernelSource, architecture: str) -> None:
    """Have a process compile a kernel; whether it could is seen by what is in the directory."""
    fields = {"entry": source.entry, "text": source.text, "spare": source.spare, "architecture": architecture}
    asked, answers, answer = cast(IO[str], process.stdin), cast(IO[str], process.stdout), ""
    with contextlib.suppress(BrokenPipeError):
        asked.write(json.dumps(fields) + "\n")
        asked.flush()
        answer = answers.readline()
    if answer not in (_DONE, _FAILED):
        code = process.wait()
        said.seek(0)
        words = said.read().strip()[-2000:]
        raise ReduceError(f"a process that compiled {source.entry} for {architecture} ended with {code}: {words}")


def serve(directory: str) -> None:
    """Compile what each line of the standard input asks for, and answer each."""
    into = prebuilt_at(directory)
    for line in sys.stdin:
        fields = json.loads(line)
        source = KernelSource(fields["entry"], fields["text"], tuple(fields["spare"]))
        try:
            compile_kernel(source, fields["architecture"], into=into)
            answer = _DONE
        except ReduceError:
            answer = _FAILED  # the process that asked compiles it again, and so meets the error with its type
        sys.stdout.write(answer)
        sys.stdout.flush()
