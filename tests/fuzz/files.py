"""The cache and prebuilt kernels on a disk that fails, and with entries that somebody forged; the compiler is a fake.

One round looks for a kernel, compiles and stores it, looks again, and takes another one from a directory of prebuilt
kernels, as three processes would. In every round each file operation can fail, once or from then on, or a signal can
arrive. Then what the round returned is the right kernel or a typed error, no descriptor stays open, no half a file has
the name of a whole one, and the next round is as if nothing had been.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import random
import shutil
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lowlevel_reduce.compiler import (
    Cubin,
    DiskCache,
    Program,
    Resources,
    SourceTree,
    cache,
    compile_program,
    nvrtc,
    prebuilt_at,
    program,
)
from lowlevel_reduce.errors import CacheError, CacheWarning
from tests.fuzz.tally import Tally

__all__ = ["fail_file_operations", "forge_entries", "open_descriptors"]

_OPERATIONS = (
    *("open", "read", "write", "close", "fstat"),
    *("stat", "replace", "mkdir", "unlink", "utime", "scandir", "listdir"),
)
_CODES = {
    "open": (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EMFILE, errno.EINTR),
    "write": (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EINTR),
    "mkdir": (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES),
    "replace": (errno.EIO, errno.ENOSPC, errno.EXDEV),
    "close": (errno.EIO, errno.EINTR),
}
# Where a process cannot even ask for a directory, its prebuilt kernels seem to be missing, which is a typed error.
_MAY_REFUSE = ("stat",)
_KERNELS = {"k": Resources(8, 0, 0, 0, 0, 352, 0)}
_MISSING, _PREBUILT = (Program(name, f"// {name}") for name in ("missing", "prebuilt"))


class _Fault(NamedTuple):
    operation: str
    number: int  # of the call that fails, from 1
    code: int | None  # None for an interrupt
    persists: bool
    done: bool  # whether the operation is carried out before

    def __str__(self) -> str:
        what = "a KeyboardInterrupt" if self.code is None else errno.errorcode[self.code]
        when = "from call" if self.persists else "at call"
        return f"{what} of os.{self.operation} {when} {self.number}, {'after' if self.done else 'before'} it is done"


def fail_file_operations(directory: Path, seed: int = 0, count: int | None = None) -> Tally:
    """Let file operations fail, one fault a round: all faults, or a sample of so many. The directory is emptied."""
    faults = _faults(directory)
    if count is not None:
        faults = random.Random(seed).sample(faults, min(count, len(faults)))
    tally = Tally("file operations that failed, once or from one on", seed)
    for fault in faults:
        _round_with(directory, fault, tally)
    return tally


def forge_entries(directory: Path, seed: int, count: int) -> Tally:
    """Put so many forged entries in the place of a whole one, none of which may lead to a wrong kernel.

    They are random bits, cuts and mixtures, and entries with a digest that agrees whose description is not the
    library's. The directory is empty at first.
    """
    tally = Tally("forged cache entries", seed)
    with _Processes(directory) as processes:
        processes.run(_MISSING)
        entry = next((directory / "cache").glob("cubin-*"))
        whole, other = entry.read_bytes(), next((directory / "prebuilt").glob("cubin-*")).read_bytes()
        for k in range(count):
            rng = random.Random(f"{seed} {k}")
            forge = rng.choice((_flipped, _cut, _mixed, _misdescribed))
            forged = forge(rng, whole, other, entry.name)
            entry.write_bytes(forged)
            before = open_descriptors()
            try:
                found = processes.run(_MISSING)
            except Exception as error:  # noqa: BLE001 - any is what this looks for
                tally.tried += 1
                tally.lose(f"forged entry {seed} {k}: {error!r}")
                continue
            if found.from_cache:
                tally.accept()
            else:
                tally.refuse("compiled anew")
            agrees = forged == whole or forge is _misdescribed
            if not _is_right(found, _MISSING) or (found.from_cache and not agrees):
                tally.lose(f"forged entry {seed} {k} is taken for a kernel")
            if open_descriptors() != before:
                tally.lose(f"forged entry {seed} {k}: a descriptor stays open")
            if entry.read_bytes() != whole and not found.from_cache:
                tally.lose(f"forged entry {seed} {k} is not replaced")
    return tally


def open_descriptors() -> list[str]:
    """Return the descriptors that this process has open, and the one by which they are listed; none without /proc."""
    return sorted(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else []


class _Processes:
    """What processes with a fake compiler do in a directory that holds one prebuilt kernel."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._library = directory / "libnvrtc.so"
        self._tree = SourceTree(directory)
        self._patch = pytest.MonkeyPatch()
        self._loaded = False

    def __enter__(self) -> _Processes:
        self._library.write_bytes(bytes(10))
        patch = self._patch
        patch.setenv(cache.VARIABLE, str(self._directory / "cache"))
        patch.setenv(cache.PREBUILT_VARIABLE, "")
        patch.setattr(nvrtc, "load", self._load)
        patch.setattr(nvrtc, "is_loaded", lambda: self._loaded)
        patch.setattr(nvrtc, "version", lambda: (12, 9))
        patch.setattr(nvrtc, "compile_source", lambda name, *_, **__: (_code(name), "log"))
        patch.setattr(program, "cubin_kernels", lambda _: ("k",))
        patch.setattr(program, "parse_resources", lambda *_: _KERNELS)
        compile_program(_PREBUILT, "sm_90", tree=self._tree, into=prebuilt_at(str(self._directory / "prebuilt")))
        patch.setenv(cache.PREBUILT_VARIABLE, str(self._directory / "prebuilt"))
        shutil.rmtree(self._directory / "cache", ignore_errors=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
        self._forget()

    def run(self, source: Program) -> Cubin:
        """Return the kernel as a new process would; what a process keeps is forgotten before."""
        self._loaded = False
        self._forget()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CacheWarning)
            return compile_program(source, "sm_90", tree=self._tree)

    def _forget(self) -> None:
        cache._unwritten.clear()
        cache._warned.clear()

    def _load(self) -> nvrtc.Library:
        self._loaded = True
        return nvrtc.Library((12, 9), str(self._library), True)


@contextlib.contextmanager
def _failing(fault: _Fault | None, counted: dict[str, int]) -> Iterator[None]:
    """Let operations fail as the fault says; their calls are counted in any case."""

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            counted[name] = number = counted.get(name, 0) + 1
            if fault is None or fault.operation != name or number < fault.number:
                return real(*arguments, **options)
            if number > fault.number and not fault.persists:
                return real(*arguments, **options)
            if fault.done:
                with contextlib.suppress(OSError):
                    real(*arguments, **options)
            if fault.code is None:
                raise KeyboardInterrupt
            raise OSError(fault.code, os.strerror(fault.code))

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in _OPERATIONS:
            patch.setattr(os, name, wrapped(name, getattr(os, name)))
        yield


def _faults(directory: Path) -> list[_Fault]:
    """Return every fault of a round, each call of each operation with each code, once and persistently."""
    counted: dict[str, int] = {}
    with _Processes(_emptied(directory)) as processes, _failing(None, counted):
        for source in (_MISSING, _MISSING, _PREBUILT):
            processes.run(source)
    faults = []
    for name, calls in counted.items():
        for number in range(1, calls + 1):
            for code in _CODES.get(name, (errno.EIO,)):
                # A close that fails has closed.
                faults += [_Fault(name, number, code, persists, name == "close") for persists in (False, True)]
            # A signal's handler runs when the operation has returned. What open returned then is lost, in any Python.
            faults += [_Fault(name, number, None, False, done) for done in _moments(name)]
    return faults


def _moments(name: str) -> tuple[bool, ...]:
    return {"open": (False,), "close": (True,), "scandir": (False,)}.get(name, (False, True))


def _round_with(directory: Path, fault: _Fault, tally: Tally) -> None:
    refused = ""  # by which error; the error itself would keep what it came through
    with _Processes(_emptied(directory)) as processes:
        before, seen = open_descriptors(), False
        with _failing(fault, {}):
            for source in (_MISSING, _MISSING, _PREBUILT):
                try:
                    found = processes.run(source)
                    if not _is_right(found, source):
                        tally.lose(f"{fault}: a wrong kernel")
                except KeyboardInterrupt:
                    seen = True
                except Exception as error:  # noqa: BLE001 - any is what this looks for
                    refused = type(error).__name__
                    if not isinstance(error, CacheError) or fault.operation not in _MAY_REFUSE:
                        tally.lose(f"{fault}: {error!r}")
        if seen != (fault.code is None):
            tally.lose(f"{fault}: the interrupt is lost")
        if open_descriptors() != before:
            tally.lose(f"{fault}: a descriptor stays open")
        for held in (DiskCache(str(directory / "cache")), prebuilt_at(str(directory / "prebuilt"))):
            for entry in held.entries():
                if held.load(entry.name) is None:
                    tally.lose(f"{fault}: {entry.name} is no entry")
        after = [processes.run(source) for source in (_MISSING, _MISSING, _PREBUILT)]
        if not all(map(_is_right, after, (_MISSING, _MISSING, _PREBUILT))) or not all(
            each.from_cache for each in after[1:]
        ):
            tally.lose(f"{fault}: the next processes do not find what they should")
    if refused:
        tally.refuse(refused)
    else:
        tally.accept()


def _emptied(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    return directory


def _code(name: str) -> bytes:
    return f"the code of {name}".encode() * 20


def _is_right(cubin: Cubin, source: Program) -> bool:
    return cubin.data == _code(source.name) and dict(cubin.kernels) == _KERNELS and cubin.names == ("k",)


def _flipped(rng: random.Random, whole: bytes, other: bytes, name: str) -> bytes:
    forged = bytearray(whole)
    for _ in range(rng.randrange(1, 9)):
        forged[rng.randrange(len(forged))] ^= 1 << rng.randrange(8)
    return bytes(forged)


def _cut(rng: random.Random, whole: bytes, other: bytes, name: str) -> bytes:
    place = rng.randrange(len(whole))
    tails = (b"", bytes(len(whole) - place), rng.randbytes(len(whole) - place), whole, whole[place:] + b"\0")
    return whole[:place] + rng.choice(tails)


def _mixed(rng: random.Random, whole: bytes, other: bytes, name: str) -> bytes:
    place = rng.randrange(1, len(whole))
    return rng.choice((other, whole[:place] + other[place:], other[:place] + whole[place:]))


def _misdescribed(rng: random.Random, whole: bytes, other: bytes, name: str) -> bytes:
    """Return an entry with a digest that agrees, whose description is not what this library writes."""
    held = cache.decode_entry(name, whole)
    assert held is not None
    metadata: dict[str, Any] = json.loads(json.dumps(held.metadata))
    values: tuple[Any, ...] = (
        None,
        0,
        -1,
        1e300,
        "",
        "\0",
        "\ud800",
        [],
        [[]],
        {},
        {"k": 3},
        {"k": {"registers": "8"}},
        [1],
    )
    key = rng.choice(list(metadata))
    if rng.random() < 0.2:
        del metadata[key]
    else:
        metadata[key] = rng.choice(values)
    if rng.random() < 0.2:
        text = (
            json.dumps({"name": name, "metadata": metadata}).encode()[:-1]
            + b',"x":'
            + b"[" * 100_000
            + b"]" * 100_000
            + b"}"
        )
        return _with_digest(text, held.payload)
    return cache.encode_entry(name, metadata, held.payload)


def _with_digest(text: bytes, payload: bytes) -> bytes:
    body = cache._HEADER.pack(cache._MAGIC, cache.SCHEMA, len(text), len(payload)) + text + payload
    return body + hashlib.sha256(body).digest()
