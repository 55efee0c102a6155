"""A pack: many compiled kernels for one architecture in one file, compressed, each found and read by itself.

The file is a header, an index sorted by key, a table of blocks, the SHA-256 of these three, and the blocks. A block is
an xz stream of entries of the disk cache, one after the other; each of them has a digest of its own. Kernels that
resemble each other lie in the same block, where they take half of what each would take alone. Code begins at multiples
of 16 bytes of its block, as its instructions do, which saves a tenth. All numbers are little-endian:

- header: ``LLRPACK`` and a zero, then uint32 schema, entries, blocks, and the architecture and the version of the
  library, each padded with zeros to 24 bytes;
- an index record: the key, which is the SHA-256 in the entry's name, then uint32 block, offset in it, and size; block
  0xffffffff is that of a kernel that the compiler spilled registers of, and which is left out for that: another
  attempt at the same kernel is in the pack;
- a block record: uint64 offset in the file, uint32 size, uint32 size uncompressed.
"""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from lowlevel_reduce.compiler.cache import Stored, decode_entry, payload_offset
from lowlevel_reduce.compiler.files import read_part

__all__ = ["BLOCK_BYTES", "DamagedPackError", "Pack", "PackedEntry", "Place", "key_of", "packed"]

BLOCK_BYTES = 2 << 20
"""Uncompressed bytes of a block, at most, but for larger entries: two families. Of a block no more is unpacked than a
process needs, at 6 ms a MiB: for a whole array's kernel, which lies in the first tenth, 1 ms."""

_ALIGNMENT = 16
"""Bytes of an instruction, at multiples of which code begins."""

_FILTER = {"lc": 0, "lp": 4, "pb": 4}
"""What xz expects a byte to depend on: which of an instruction's 16 bytes it is, and no bytes before it."""

SCHEMA = 2
_MAGIC = b"LLRPACK\0"
_HEADER = struct.Struct("<8sIII24s24s")
_ENTRY = struct.Struct("<32sIII")
_BLOCK = struct.Struct("<QII")
_DIGEST_BYTES = 32
_MOST_RECORDS = 1 << 20  # of a file that is none of ours, no table is read that could fill the memory
_MOST_BLOCK_BYTES = 64 << 20
_SPILLED = 0xFFFFFFFF


class DamagedPackError(Exception):
    """A file that is no pack, or not a whole one; the message says what is wrong, and is for who reads the pack."""


class PackedEntry(NamedTuple):
    """An entry to be packed: its name, ``cubin-KEY.llr``, and its bytes as `cache.encode_entry` returns them."""

    name: str
    data: bytes


class Place(NamedTuple):
    """Where an entry lies: in which block, at which byte of it once it is unpacked, and how many bytes it has."""

    block: int
    offset: int
    size: int


class _Block(NamedTuple):
    offset: int
    size: int
    unpacked: int


class Pack:
    """A pack on the disk, of which the tables are read at once and blocks when an entry in them is asked for.

    Threads may share it: what was unpacked last is kept, a block or its beginning, and replaced in one step.

    Parameters
    ----------
    path : str
        The file.

    Raises
    ------
    DamagedPackError
        If the file cannot be read, is no pack, or if its tables do not match their digest or its length.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        header, length = _part(path, 0, _HEADER.size)
        if len(header) < _HEADER.size:
            raise DamagedPackError("is shorter than a header")
        magic, schema, entries, blocks, architecture, version = _HEADER.unpack(header)
        if magic != _MAGIC or max(entries, blocks) > _MOST_RECORDS:
            raise DamagedPackError("is no pack of kernels")
        if schema != SCHEMA:
            raise DamagedPackError(f"has schema {schema}, not {SCHEMA}")
        self._entries: int = entries
        tables = _ENTRY.size * entries + _BLOCK.size * blocks
        body, _ = _part(path, _HEADER.size, tables + _DIGEST_BYTES)
        digest = hashlib.sha256(header + body[:tables]).digest()
        if len(body) < tables + _DIGEST_BYTES or digest != body[tables:]:
            raise DamagedPackError("does not match the digest of its tables")
        self.architecture = architecture.rstrip(b"\0").decode(errors="replace")
        self.version = version.rstrip(b"\0").decode(errors="replace")
        self._index = body[: _ENTRY.size * entries]
        self.blocks = tuple(map(_Block._make, _BLOCK.iter_unpack(body[_ENTRY.size * entries : tables])))
        if self.blocks and length < max(block.offset + block.size for block in self.blocks):
            raise DamagedPackError("is truncated")
        self._last: tuple[int, bytes] = (-1, b"")

    def __len__(self) -> int:
        return len(self._records())

    def place(self, name: str) -> Place | None:
        """Return where the entry of a name lies; None if there is none."""
        place = self._found(name)
        return None if place is None or place.block == _SPILLED else place

    def is_spilled(self, name: str) -> bool:
        """Tell whether the entry of a name was left out because its kernel spills registers."""
        place = self._found(name)
        return place is not None and place.block == _SPILLED

    def _found(self, name: str) -> Place | None:
        key, low, high = key_of(name), 0, self._entries
        while low < high:
            middle = (low + high) // 2
            if self._index[_ENTRY.size * middle : _ENTRY.size * middle + len(key)] < key:
                low = middle + 1
            else:
                high = middle
        if low == self._entries:
            return None
        found, *place = _ENTRY.unpack_from(self._index, _ENTRY.size * low)
        return Place(*place) if found == key else None

    def load(self, name: str) -> Stored | None:
        """Return the entry of a name; None if there is none.

        Raises
        ------
        DamagedPackError
            If there is one, but it cannot be read, or does not match its digest or its name.
        """
        place = self.place(name)
        if place is None:
            return None
        entry = self._unpacked(place.block, place.offset + place.size)[place.offset : place.offset + place.size]
        stored = decode_entry(name, entry)
        if stored is None:
            raise DamagedPackError(f"has an entry {name} that does not match its digest")
        return stored

    def verify(self) -> None:
        """Read every entry; raises DamagedPackError for the first one that `load` would."""
        for key, *_ in sorted(self._records(), key=lambda record: (record[1], record[2])):  # block by block
            self.load(f"cubin-{key.hex()}.llr")

    def _records(self) -> list[tuple[bytes, int, int, int]]:
        return [record for record in _ENTRY.iter_unpack(self._index) if record[1] != _SPILLED]

    def _unpacked(self, number: int, end: int) -> bytes:
        """Return a block up to a byte of it, or more."""
        import lzma  # noqa: PLC0415 - 2 ms, for who has packs

        last, data = self._last
        if last == number and end <= len(data):
            return data
        if number >= len(self.blocks):
            raise DamagedPackError(f"has no block {number}")
        block = self.blocks[number]
        if block.unpacked > _MOST_BLOCK_BYTES:
            raise DamagedPackError(f"has a block of {block.unpacked} bytes")
        # Each time twice as much, so that a block is unpacked twice at most, however many kernels a process needs.
        wanted = max(end, 2 * len(data)) if last == number else end
        if wanted >= block.unpacked:
            wanted = block.unpacked + 1
        packed_bytes, _ = _part(self.path, block.offset, block.size)
        try:
            data = lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(packed_bytes, wanted)
        except lzma.LZMAError as error:
            raise DamagedPackError(f"has a block that cannot be unpacked: {error}") from error
        if len(data) != min(wanted, block.unpacked):
            raise DamagedPackError("has a block that is not whole")
        self._last = (number, data)
        return data


def key_of(name: str) -> bytes:
    """Return the key in an entry's name, ``cubin-KEY.llr``."""
    return bytes.fromhex(name.partition("-")[2].removesuffix(".llr"))


def packed(
    architecture: str, version: str, groups: Iterable[Sequence[PackedEntry]], spilled: Iterable[str] = ()
) -> bytes:
    """Return the bytes of a pack; an entry that comes again is left out.

    Parameters
    ----------
    architecture : str
        What the kernels are compiled for, e.g. ``"sm_90"``.
    version : str
        The library's version.
    groups : iterable of sequences of PackedEntry
        Entries that resemble each other: a group has blocks of its own.
    spilled : iterable of str
        The names of entries that are not in the groups since their kernels spill registers.

    Returns
    -------
    bytes
        The file. The same arguments give the same bytes, with one version of liblzma.
    """
    import lzma  # noqa: PLC0415 - 2 ms, for who makes packs
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 12 ms, likewise

    def compressed(data: bytes) -> tuple[bytes, int]:
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, **_FILTER}]
        return lzma.compress(data, format=lzma.FORMAT_XZ, filters=filters), len(data)

    places: dict[bytes, Place] = {}
    blocks: list[bytes] = []
    for group in groups:
        for content in _blocks_of([entry for entry in group if key_of(entry.name) not in places]):
            block = bytearray()
            for entry in content:
                block += bytes(-(len(block) + payload_offset(entry.data)) % _ALIGNMENT)
                places[key_of(entry.name)] = Place(len(blocks), len(block), len(entry.data))
                block += entry.data
            blocks.append(bytes(block))
    places = {key_of(name): Place(_SPILLED, 0, 0) for name in spilled} | places
    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="compress") as pool:  # liblzma runs without the GIL
        streams = list(pool.map(compressed, blocks))
    header = _HEADER.pack(_MAGIC, SCHEMA, len(places), len(streams), architecture.encode(), version.encode())
    index = b"".join(_ENTRY.pack(key, *place) for key, place in sorted(places.items()))
    begin = len(header) + len(index) + _BLOCK.size * len(streams) + _DIGEST_BYTES
    table = bytearray()
    for stream, unpacked in streams:
        table += _BLOCK.pack(begin, len(stream), unpacked)
        begin += len(stream)
    head = header + index + bytes(table)
    return b"".join([head, hashlib.sha256(head).digest(), *(stream for stream, _ in streams)])


def _blocks_of(entries: Sequence[PackedEntry]) -> list[list[PackedEntry]]:
    """Divide entries, each once, into blocks of about `BLOCK_BYTES` bytes."""
    blocks: list[list[PackedEntry]] = []
    size = BLOCK_BYTES
    for entry in {entry.name: entry for entry in entries}.values():
        if size + len(entry.data) > BLOCK_BYTES:
            blocks.append([])
            size = 0
        blocks[-1].append(entry)
        size += len(entry.data)
    return blocks


def _part(path: str, offset: int, size: int) -> tuple[bytes, int]:
    try:
        return read_part(path, offset, size)
    except OSError as error:
        raise DamagedPackError(f"cannot be read: {error}") from error
