"""Reads NVRTC's output: the names of its kernels, from a cubin's symbols or from PTX, and their machine code."""

from __future__ import annotations

import re
import struct

from lowlevel_reduce.errors import ReduceError

__all__ = ["cubin_kernels", "kernel_code", "ptx_kernels"]

_PTX_ENTRY = rb"(?m)^\s*(?:\.(?:visible|weak)\s+)?\.entry\s+([\w$.]+)"

_SYMTAB = 2  # sh_type of a symbol table
_FUNCTION = 2  # STT_FUNC, the low four bits of st_info
_ENTRY = 0x10  # STO_CUDA_ENTRY in st_other: a kernel rather than a function that kernels call


def cubin_kernels(cubin: bytes) -> tuple[str, ...]:
    """Return the names of the kernels in a cubin, sorted.

    Raises
    ------
    ReduceError
        If the data is not a 64-bit little-endian ELF file with a symbol table.
    """
    _check_elf(cubin)
    try:
        return tuple(sorted(_entries(cubin)))
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise ReduceError(f"not a cubin: its symbol table cannot be read ({error})") from error


def kernel_code(cubin: bytes, kernel: str) -> bytes:
    """Return a kernel's machine code, including the padding behind it.

    Raises
    ------
    ReduceError
        If the data is not a 64-bit little-endian ELF file, or contains no code of that kernel.
    """
    _check_elf(cubin)
    try:
        sections = _sections(cubin)
        names = sections[struct.unpack_from("<H", cubin, 62)[0]][4]
        for section in sections:
            if _string(cubin, names + section[0]) == f".text.{kernel}":
                return cubin[section[4] : section[4] + section[5]]
    except (struct.error, ValueError, IndexError, OverflowError) as error:
        raise ReduceError(f"not a cubin: its sections cannot be read ({error})") from error
    raise ReduceError(f"the cubin has no code of {kernel}")


def ptx_kernels(ptx: bytes) -> tuple[str, ...]:
    """Return the names of the kernels in PTX text, sorted."""
    return tuple(sorted(name.decode() for name in re.findall(_PTX_ENTRY, ptx)))


def _check_elf(cubin: bytes) -> None:
    if cubin[:6] != b"\x7fELF\x02\x01":
        raise ReduceError("not a cubin: it does not start like a 64-bit ELF file")


def _sections(cubin: bytes) -> list[tuple[int, ...]]:
    (table_offset,) = struct.unpack_from("<Q", cubin, 40)
    size, count = struct.unpack_from("<HH", cubin, 58)
    # Elf64_Shdr: name, type, flags, addr, offset, size, link, info, addralign, entsize
    return [struct.unpack_from("<IIQQQQIIQQ", cubin, table_offset + size * i) for i in range(count)]


def _string(cubin: bytes, start: int) -> str:
    return cubin[start : cubin.index(b"\0", start)].decode()


def _entries(cubin: bytes) -> list[str]:
    sections = _sections(cubin)
    names: list[str] = []
    for section in sections:
        if section[1] != _SYMTAB:
            continue
        strings = sections[section[6]][4]
        # Elf64_Sym: name, info, other, shndx, value, size
        for name, info, other, *_ in struct.iter_unpack("<IBBHQQ", cubin[section[4] : section[4] + section[5]]):
            if info & 0xF == _FUNCTION and other & _ENTRY:
                names.append(_string(cubin, strings + name))
    return names
