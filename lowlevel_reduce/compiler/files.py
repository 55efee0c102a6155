"""The cache's files: read only from whom they may come, and written whole or not at all.

Whatever operation fails, no descriptor stays open, and no file is half a file under the name of a whole one.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable

__all__ = ["make_directories", "read_file", "read_part", "write_file"]

MOST_BYTES = 1 << 30
"""A larger file is none of ours: no kernel comes near it."""

# Flags that an operating system lacks are zero: Windows has neither O_NOFOLLOW nor O_NONBLOCK, others have no O_BINARY.
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | _NOFOLLOW | _BINARY | getattr(os, "O_NONBLOCK", 0)  # a FIFO must not block the open
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW | _BINARY


def read_file(path: str, is_trusted: Callable[[os.stat_result], bool]) -> bytes | None:
    """Return a file's content; None if it is no file, not trusted, not readable, or larger than `MOST_BYTES`."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:  # missing, a symbolic link, not readable: all are misses, and the next store replaces the file
        return None
    try:
        # The open file is checked, not the path once more: so what is checked is what is read.
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or not is_trusted(info) or info.st_size > MOST_BYTES:
            return None
        parts = []
        while part := os.read(descriptor, info.st_size + 1):  # one read more than the whole file tells its end
            parts.append(part)
        return b"".join(parts)
    except OSError:  # a read error of the medium
        return None
    finally:
        with contextlib.suppress(OSError):  # closed it is even so, and what was read is checked by its digest
            os.close(descriptor)


def read_part(path: str, offset: int, size: int) -> tuple[bytes, int]:
    """Return at most `size` bytes of a file from a byte on, and how many bytes the whole file has.

    It may belong to anybody: this is for files of installed packages, whose code this process runs anyway.

    Raises
    ------
    OSError
        If it cannot be opened or read.
    """
    with open(path, "rb", buffering=0) as file:
        length = os.fstat(file.fileno()).st_size
        file.seek(offset)
        parts = []
        while size > 0 and (part := file.read(size)):
            parts.append(part)
            size -= len(part)
    return b"".join(parts), length


def write_file(path: str, data: bytes, *, temporary: str, mode: int) -> None:
    """Write a file under a temporary name and move it to its place at once, replacing what is there.

    The disk is not waited for, which takes 7 ms and up to 30, and would be a tenth of a small kernel's compilation. So
    the system's own crash may leave a file that lacks something, which its reader has to see: entries have a digest.

    Raises
    ------
    OSError
        If an operation fails; what was at `path` is still there then.
    """
    descriptor = os.open(temporary, _CREATE, mode)
    try:
        try:
            _write(descriptor, data)
        finally:
            os.close(descriptor)  # an error may be that of a write before, so the file may lack something
        _move(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):  # the caller is to see the original error
            os.unlink(temporary)
        raise


def make_directories(path: str, mode: int) -> None:
    """Make a directory and those above it that are missing, all of one mode, whatever the umask leaves to others.

    Raises
    ------
    OSError
        If one cannot be made.
    """
    try:
        _make_directory(path, mode)
    except FileNotFoundError:
        above = os.path.dirname(path)
        if above == path:
            raise
        make_directories(above, mode)
        _make_directory(path, mode)  # once: under /proc a directory cannot be made, as if those above it were missing


def _make_directory(path: str, mode: int) -> None:
    try:
        os.mkdir(path, mode)
    except FileNotFoundError:
        raise
    except OSError:
        if not os.path.isdir(path):
            raise


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _move(temporary: str, path: str) -> None:
    try:
        os.replace(temporary, path)
    except PermissionError:
        if os.name != "nt" or not os.path.exists(path):
            raise
        os.unlink(temporary)  # Windows does not replace a file that another process is reading: so there is an entry
