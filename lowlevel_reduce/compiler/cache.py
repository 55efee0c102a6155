"""The disk cache of compiled code: a directory of verified files, one per entry, that processes share.

An entry is a header (magic, schema, lengths), JSON metadata, a payload, and the SHA-256 of all that precedes it. What
is read is code that will run on the GPU. So an entry is accepted only if it is a regular file that belongs to this user
and that nobody else may write, if its directory is such a one too, and if its digest and its name match its content.
Any other file is a miss.

A directory of prebuilt kernels has the same kind of entries. It may belong to root, everybody may read it, nothing is
evicted from it, and only prebuilding writes to it.

Missing directories above either are made with its own mode, whatever the umask. Those that are there are not looked at:
who may write there could put another directory in the place of ours, but not one that belongs to this user.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import stat
import struct
import time
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from lowlevel_reduce.compiler.files import make_directories, read_file, write_file
from lowlevel_reduce.errors import CacheError, CacheWarning

__all__ = [
    "LIMIT_BYTES",
    "PREBUILT_VARIABLE",
    "SCHEMA",
    "VARIABLE",
    "DiskCache",
    "Entry",
    "Stored",
    "decode_entry",
    "encode_entry",
    "make_key",
    "open_cache",
    "open_prebuilt",
    "payload_offset",
    "prebuilt_at",
]

VARIABLE = "LOWLEVEL_REDUCE_CACHE_DIR"
PREBUILT_VARIABLE = "LOWLEVEL_REDUCE_PREBUILT_DIR"
LIMIT_BYTES = 256 * 2**20  # some ten thousand cubins of this library; the least recently used ones are evicted first
SCHEMA = 1  # to be incremented whenever the meaning of an entry or of a key changes

_MAGIC = b"LLRCACHE"
_HEADER = struct.Struct("<8sIIQ")  # magic, schema, bytes of metadata, bytes of payload
_DIGEST_BYTES = 32
_ENTRY_NAME = r"(?:cubin|ptx|toolchain)-[0-9a-f]{64}\.llr"
_TEMPORARY_NAME = r"\.[0-9a-f]{32}\.llr-tmp"
_ABANDONED_SECONDS = 3600  # a temporary file this old belongs to a process that died while writing

# What could not be written to a directory, by the directory and the name: the most recent ones, for this process.
_unwritten: OrderedDict[tuple[str, str], Stored] = OrderedDict()
_MOST_UNWRITTEN = 256
BOUNDS = {"_unwritten": _MOST_UNWRITTEN}  # for who watches for growth
_warned: set[str] = set()  # the directories that a warning has named


class Stored(NamedTuple):
    """The content of an entry: JSON metadata and bytes."""

    metadata: Mapping[str, Any]
    payload: bytes


class Entry(NamedTuple):
    """An entry in the directory's listing: file name, size in bytes, time of last use (seconds since the epoch)."""

    name: str
    size_bytes: int
    used: float


class _Use(NamedTuple):
    """What a directory is used for: the modes of new files, whether root's files are trusted, and texts for errors."""

    what: str
    directory_mode: int
    file_mode: int
    trusts_root: bool
    if_unwritable: str
    if_untrusted: str


_OWN = _Use(
    what="cache of compiled code",
    directory_mode=0o700,
    file_mode=0o600,
    trusts_root=False,
    if_unwritable=f'Set {VARIABLE} to a directory that you can write, or to "off".',
    if_untrusted=f'Make it yours alone (chmod 700), or set {VARIABLE} to a directory that is, or to "off".',
)
_EVERYBODY = _Use(
    what="directory of prebuilt kernels",
    directory_mode=0o755,
    file_mode=0o644,
    trusts_root=True,
    if_unwritable="Name a directory that you can write.",
    if_untrusted="It has to be yours or root's, and nobody else may write into it (chmod 755).",
)


class DiskCache:
    """The entries of one directory; any number of threads and processes may use it at once.

    Parameters
    ----------
    directory : str
        An absolute path. The directory is created when the first entry is stored.
    limit_bytes : int or None, optional
        Total size above which storing an entry removes the least recently used others. With None, no entry is ever
        removed, and times of use are not recorded.
    """

    def __init__(self, directory: str, *, limit_bytes: int | None = LIMIT_BYTES, _use: _Use = _OWN) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self._use = _use

    def load(self, name: str) -> Stored | None:
        """Return an entry, or None if there is none that is complete, trusted, and matches its name.

        Raises
        ------
        CacheError
            If the directory belongs to another user, or others may write to it.
        """
        if not self._is_there():
            return _unwritten.get((self.directory, name))
        path = os.path.join(self.directory, name)
        data = read_file(path, lambda info: _is_trusted(info, self._use))
        stored = None if data is None else decode_entry(name, data)
        if stored is None:
            return _unwritten.get((self.directory, name))
        if self.limit_bytes is not None:
            # A hit is worth more than its time of use, which cannot be recorded in a read-only directory.
            with contextlib.suppress(OSError):
                os.utime(path)
        return stored

    def store(self, name: str, metadata: Mapping[str, Any], payload: bytes) -> None:
        """Write an entry atomically, replacing one of the same name; a crash of this process leaves no partial entry.

        Raises
        ------
        ValueError
            If the name is not one of an entry.
        CacheError
            If the entry cannot be written; the message names the directory and says what to do.
        """
        with self._explained():
            self._write(name, metadata, payload)

    def keep(self, name: str, metadata: Mapping[str, Any], payload: bytes) -> None:
        """Write an entry as `store` does, or keep it for this process if it cannot be written.

        That is worth a CacheWarning, the first time for each directory, and no error: the caller has what it needs.

        Raises
        ------
        ValueError
            If the name is not one of an entry.
        CacheError
            If the directory belongs to another user, or others may write to it.
        """
        try:
            self.store(name, metadata, payload)
        except CacheError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            _unwritten[self.directory, name] = Stored(metadata, payload)
            while len(_unwritten) > _MOST_UNWRITTEN:
                _unwritten.popitem(last=False)
            if self.directory not in _warned:
                _warned.add(self.directory)
                warnings.warn(f"{error} Until then every process compiles anew.", CacheWarning, stacklevel=2)
        else:
            _unwritten.pop((self.directory, name), None)

    def check(self) -> None:
        """Raise CacheError if the directory belongs to another user, or others may write to it."""
        self._is_there()

    def check_kept(self) -> None:
        """Raise CacheError if any entry is kept for this process alone, because it could not be written."""
        count = sum(directory == self.directory for directory, _ in list(_unwritten))
        if count:
            raise CacheError(
                f"{count} kernels could not be written to the {self._use.what} in {self.directory}, and go with this "
                f"process. {self._use.if_unwritable}"
            )

    def entries(self) -> list[Entry]:
        """List the entries, the least recently used first."""
        found = [Entry(item.name, info.st_size, info.st_mtime) for item, info in self._files(_ENTRY_NAME)]
        return sorted(found, key=lambda entry: (entry.used, entry.name))

    @property
    def size_bytes(self) -> int:
        """Total size of all entries."""
        return sum(entry.size_bytes for entry in self.entries())

    def clear(self) -> int:
        """Remove all entries, but no other files of the directory; return how many entries there were."""
        with self._explained():
            names = [entry.name for entry in self.entries()]
            for name in names:
                self._remove(name)
            self._remove_abandoned()
            return len(names)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except CacheError:
            raise
        except OSError as error:
            raise CacheError(
                f"cannot write to the {self._use.what} in {self.directory}: {error}. {self._use.if_unwritable}"
            ) from error

    def _write(self, name: str, metadata: Mapping[str, Any], payload: bytes) -> None:
        if not re.fullmatch(_ENTRY_NAME, name):
            raise ValueError(f"not an entry's name: {name!r}")
        make_directories(self.directory, self._use.directory_mode)
        self._is_there()
        temporary = os.path.join(self.directory, f".{os.urandom(16).hex()}.llr-tmp")
        place = os.path.join(self.directory, name)
        write_file(place, encode_entry(name, metadata, payload), temporary=temporary, mode=self._use.file_mode)
        self._evict(keep=name)

    def _is_there(self) -> bool:
        try:
            info = os.stat(self.directory)
        except OSError:
            return False  # missing or inaccessible: there is nothing to load, and storing will say what is wrong
        if not stat.S_ISDIR(info.st_mode):
            return False
        if not _is_trusted(info, self._use):
            raise CacheError(
                f"{self.directory} belongs to another user, or others may write into it: its code could be anybody's. "
                f"{self._use.if_untrusted}"
            )
        return True

    def _evict(self, *, keep: str) -> None:
        entries = [] if self.limit_bytes is None else self.entries()
        excess = sum(entry.size_bytes for entry in entries) - (self.limit_bytes or 0)
        for entry in entries:
            if excess <= 0:
                break
            if entry.name != keep:
                self._remove(entry.name)
                excess -= entry.size_bytes
        self._remove_abandoned()

    def _remove_abandoned(self) -> None:
        for item, info in self._files(_TEMPORARY_NAME):
            if time.time() - info.st_mtime > _ABANDONED_SECONDS:  # a newer one may be being written right now
                self._remove(item.name)

    def _remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # another process was faster
            os.unlink(os.path.join(self.directory, name))

    def _files(self, pattern: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
        try:
            with os.scandir(self.directory) as found:
                items = list(found)
        except (FileNotFoundError, NotADirectoryError):
            return
        for item in items:
            if re.fullmatch(pattern, item.name) and not item.is_dir(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    yield item, item.stat(follow_symlinks=False)


def open_cache() -> DiskCache | None:
    """Return the cache that the environment selects, or None if it is off.

    ``LOWLEVEL_REDUCE_CACHE_DIR`` names the directory. ``off`` or ``0`` turn the cache off; if the variable is unset or
    empty, the user's cache directory is used.

    Raises
    ------
    CacheError
        If the user's cache directory is to be used and this user has none.
    """
    value = os.environ.get(VARIABLE, "")
    if value.lower() in {"off", "0"}:
        return None
    return DiskCache(os.path.abspath(os.path.expanduser(value)) if value else _default_directory())


def open_prebuilt() -> DiskCache | None:
    """Return the directory of prebuilt kernels that ``LOWLEVEL_REDUCE_PREBUILT_DIR`` names; None if it names none.

    Raises
    ------
    CacheError
        If there is no such directory: whoever names one wants its kernels, not kernels compiled silently instead.
    """
    value = os.environ.get(PREBUILT_VARIABLE, "")
    if not value:
        return None
    prebuilt = prebuilt_at(value)
    if not os.path.isdir(prebuilt.directory):
        raise CacheError(f"{PREBUILT_VARIABLE} names {prebuilt.directory}, which is no directory")
    return prebuilt


def prebuilt_at(path: str) -> DiskCache:
    """Return the directory of prebuilt kernels at a path, which need not exist yet."""
    return DiskCache(os.path.abspath(os.path.expanduser(path)), limit_bytes=None, _use=_EVERYBODY)


def make_key(*ingredients: str | bytes) -> str:
    """Return the SHA-256, in hexadecimal, of the schema and the ingredients, each preceded by its length."""
    digest = hashlib.sha256(SCHEMA.to_bytes(4, "little"))
    for ingredient in ingredients:
        data = ingredient.encode() if isinstance(ingredient, str) else ingredient
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


@functools.cache
def _default_directory() -> str:
    import platformdirs  # noqa: PLC0415 - 2 ms, and not needed where the variable is set

    try:
        directory = platformdirs.user_cache_dir("lowlevel_reduce", appauthor=False)
    except RuntimeError:
        directory = ""
    if not os.path.isabs(directory):  # older platformdirs return a literal ~/.cache, relative to the working directory
        raise CacheError(
            "this user has no home directory for the cache of compiled code: HOME is not set. "
            f'Set {VARIABLE} to a directory that you can write, or to "off".'
        )
    return directory


def _is_trusted(info: os.stat_result, use: _Use) -> bool:
    if not hasattr(os, "geteuid"):
        return True  # Windows: an access list protects the user's profile, and the mode bits mean nothing
    is_ours = info.st_uid == os.geteuid() or (use.trusts_root and info.st_uid == 0)
    return is_ours and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def encode_entry(name: str, metadata: Mapping[str, Any], payload: bytes) -> bytes:
    """Return an entry as a file has it, with its digest."""
    # The content includes the name, so that a valid entry that was copied to another name is rejected there.
    text = json.dumps({"name": name, "metadata": dict(metadata)}, separators=(",", ":")).encode()
    body = _HEADER.pack(_MAGIC, SCHEMA, len(text), len(payload)) + text + payload
    return body + hashlib.sha256(body).digest()


def payload_offset(entry: bytes) -> int:
    """Return at which byte of an entry, as `encode_entry` returns it, its payload begins."""
    return _HEADER.size + int(_HEADER.unpack_from(entry)[2])


def decode_entry(name: str, data: bytes) -> Stored | None:
    """Return the entry of a name; None if the bytes are not one, are damaged, or belong to another name."""
    if len(data) < _HEADER.size + _DIGEST_BYTES:
        return None
    magic, schema, text_bytes, payload_bytes = _HEADER.unpack_from(data)
    if magic != _MAGIC or schema != SCHEMA or len(data) != _HEADER.size + text_bytes + payload_bytes + _DIGEST_BYTES:
        return None
    if hashlib.sha256(data[:-_DIGEST_BYTES]).digest() != data[-_DIGEST_BYTES:]:
        return None
    start = _HEADER.size + text_bytes
    try:
        held = json.loads(data[_HEADER.size : start])
        if held["name"] != name or not isinstance(held["metadata"], dict):
            return None
    except (ValueError, KeyError, TypeError, RecursionError):  # the digest matches, but this code did not write it
        return None
    return Stored(held["metadata"], data[start : start + payload_bytes])
