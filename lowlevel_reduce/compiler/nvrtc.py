"""Compiles CUDA C++ in memory with NVRTC. Only this module uses NVRTC's bindings, and imports them when called."""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from lowlevel_reduce.errors import CompileError, CudaError, NoCompilerError, UnsupportedError, check

__all__ = ["DEFAULT_OPTIONS", "Library", "compile_source", "is_loaded", "load", "supported_architectures", "version"]

DEFAULT_OPTIONS: tuple[str, ...] = (
    # The language of the headers in cuda_src.
    "--std=c++17",
    # Only the headers that are passed in can be included. Otherwise the working directory would be searched, and a file
    # found there could enter a cubin without being part of its cache key.
    "--no-source-include",
    # Report registers, stack and spills of every kernel in the log.
    "--ptxas-options=-v",
    # Not -lineinfo: it writes the working directory into the cubin, which would then differ from place to place.
    # Not -fmad=false: a kernel that needs each operation rounded separately says so in its own options.
)

# From 12.9 on NVRTC has a cache of its own, and results from it come without the log that reports the resources; this
# package's cache comes before it anyway. NVRTC 12.8 and older refuse the option. Seen with NVRTC 13.0 and a driver.
_NO_CACHE, _NO_CACHE_SINCE = "--no-cache", (12, 9)

_OLDEST = 75  # the oldest architecture that every supported NVRTC can target; CUDA 13 dropped the older ones
_SONAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
AFTER = "after "
"""Prefix of the file name that a ``#line`` directive gives to the code after a text; the text's name follows it. If the
text is incomplete, the compiler reports the first line of that code, but the mistake is in the text's last line."""

_FIRST_ERROR = r"(?m)^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic |internal )?error\b"
# The first if NVRTC does not know the number, the second if there is no such a/f variant of the number (since 12.9).
_UNKNOWN_ARCHITECTURE = r"invalid value for --gpu-architecture|value specified with --nv_arch"


class Library(NamedTuple):
    """The NVRTC that a process uses.

    Attributes
    ----------
    version : (int, int)
        The version that NVRTC reports.
    path : str or None
        The file that it was loaded from, if the loader can tell.
    chosen : bool
        False if other code in this process had loaded it before, so that not the environment alone decided which one.
    """

    version: tuple[int, int]
    path: str | None
    chosen: bool


@functools.cache
def load() -> Library:
    """Load NVRTC, once per process.

    Raises
    ------
    NoCompilerError
        If it cannot be found or loaded; the message says what to install.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # noqa: PLC0415 - lazily: a warm process needs none of it

        found = load_nvidia_dynamic_lib("nvrtc")
        nvrtc = _bindings()
    except (ImportError, RuntimeError) as error:  # not found, or found and not loadable
        raise NoCompilerError(
            'NVRTC, the CUDA runtime compiler, could not be loaded: pip install "lowlevel-reduce[cu12]" or '
            f'pip install "lowlevel-reduce[cu13]" brings it ({str(error).strip()})'
        ) from error
    major, minor = _checked("nvrtcVersion", nvrtc.nvrtcVersion())
    return Library((major, minor), found.abs_path, not found.was_already_loaded_from_elsewhere)


def is_loaded() -> bool:
    """Tell whether this module or other code in this process has loaded NVRTC, without loading it."""
    if load.cache_info().currsize:
        return True
    if not sys.platform.startswith("linux"):
        # Here the loader cannot be asked without loading; but the bindings must have been imported to load NVRTC.
        return "cuda.bindings.nvrtc" in sys.modules
    import ctypes  # noqa: PLC0415 - 1 ms, not at import

    return any(_is_mapped(ctypes, name) for name in _SONAMES)


def version() -> tuple[int, int]:
    """Return NVRTC's version as ``(major, minor)``, as NVRTC itself reports it."""
    return load().version


@functools.cache
def supported_architectures() -> tuple[str, ...]:
    """Return the architectures that this NVRTC compiles for, from sm_75 up, e.g. ``("sm_75", ..., "sm_121")``.

    NVRTC lists only numbers. Some of them also have variants such as ``sm_90a``; only compiling shows which.
    """
    load()
    numbers = _checked("nvrtcGetSupportedArchs", _bindings().nvrtcGetSupportedArchs())
    return tuple(f"sm_{number}" for number in numbers if number >= _OLDEST)


def compile_source(
    name: str,
    source: str,
    architecture: str,
    *,
    headers: Mapping[str, str],
    options: tuple[str, ...] = (),
    output: str = "cubin",
) -> tuple[bytes, str]:
    """Compile one translation unit. Threads may call this concurrently: NVRTC runs without the GIL.

    Parameters
    ----------
    name : str
        The name of the source in the log.
    source : str
        CUDA C++ text.
    architecture : str
        ``"sm_90"``, ``"sm_90a"``, ….
    headers : Mapping[str, str]
        The text of each header by its name in ``#include``; there is no include path besides.
    options : tuple of str, optional
        Options that follow `DEFAULT_OPTIONS`.
    output : {"cubin", "ptx"}, optional
        Machine code, or PTX for the virtual architecture of the same number.

    Returns
    -------
    (bytes, str)
        The cubin or PTX, and the log.

    Raises
    ------
    CompileError
        If the source does not compile, or an option is not one of NVRTC's.
    UnsupportedError
        If this NVRTC does not know the architecture.
    NoCompilerError
        If there is no NVRTC.
    """
    base = architecture.rstrip("af")
    if base not in supported_architectures():
        raise _unknown_architecture(architecture)
    target = architecture if output == "cubin" else architecture.replace("sm_", "compute_")
    own = (_NO_CACHE,) if version() >= _NO_CACHE_SINCE else ()
    arguments = [option.encode() for option in (*DEFAULT_OPTIONS, *own, *options, f"--gpu-architecture={target}")]
    nvrtc = _bindings()
    handle = _create(nvrtc, name, source, headers)
    try:
        try:
            _checked("nvrtcCompileProgram", nvrtc.nvrtcCompileProgram(handle, len(arguments), arguments))
        except CudaError as error:
            log = _log(nvrtc, handle)
            if re.search(_UNKNOWN_ARCHITECTURE, log):
                raise _unknown_architecture(architecture) from error
            raise _compile_error(name, log or str(error), {**headers, name: source}) from error
        image = _fetch("nvrtcGetCUBIN" if output == "cubin" else "nvrtcGetPTX", handle)
        return image if output == "cubin" else image.rstrip(b"\0"), _log(nvrtc, handle)
    finally:
        _checked("nvrtcDestroyProgram", nvrtc.nvrtcDestroyProgram(handle))


def _bindings() -> Any:
    from cuda.bindings import nvrtc  # noqa: PLC0415 - 60 ms to import, and a warm process needs none of it

    return nvrtc


def _checked(call: str, result: Any) -> Any:
    return check(call, result, _bindings().nvrtcGetErrorString)


def _create(nvrtc: Any, name: str, source: str, headers: Mapping[str, str]) -> Any:
    texts = [text.encode() for text in headers.values()]
    names = [header.encode() for header in headers]
    result = nvrtc.nvrtcCreateProgram(source.encode(), name.encode(), len(names), texts, names)
    return _checked("nvrtcCreateProgram", result)


def _fetch(call: str, handle: Any) -> bytes:
    nvrtc = _bindings()
    size = _checked(f"{call}Size", getattr(nvrtc, f"{call}Size")(handle))
    # NVRTC writes into the buffer, so it must be a bytearray, never `b" " * size`: bytes objects of length 1 are shared
    # by the whole process, and an empty log is exactly one byte long.
    buffer = bytearray(size)
    _checked(call, getattr(nvrtc, call)(handle, buffer))
    return bytes(buffer)


def _log(nvrtc: Any, handle: Any) -> str:
    size = _checked("nvrtcGetProgramLogSize", nvrtc.nvrtcGetProgramLogSize(handle))
    buffer = bytearray(size)
    _checked("nvrtcGetProgramLog", nvrtc.nvrtcGetProgramLog(handle, buffer))
    return buffer.rstrip(b"\0").decode(errors="replace")


def _compile_error(name: str, log: str, texts: Mapping[str, str]) -> CompileError:
    first = re.search(_FIRST_ERROR, log)
    if first is None:  # the error is about an option, or from the assembler: there is no line of CUDA C++ to show
        return CompileError(name, log, None, None, None)
    file, line = first["file"], int(first["line"])
    if line == 1 and file.startswith(AFTER):
        file = file.removeprefix(AFTER)
        line = len("\n".join(_lines_of(file, "\n".join(texts.values()))).rstrip().split("\n"))
    lines = texts[file].split("\n") if file in texts else _lines_of(file, "\n".join(texts.values()))
    return CompileError(name, log, file, line, lines[line - 1] if line <= len(lines) else None)


def _lines_of(file: str, text: str) -> list[str]:
    """Return the lines of `text` that a ``#line 1`` directive assigns to that file."""
    found = re.search(rf'^#line 1 "{re.escape(file)}"\n(.*?)(?=^#line |\Z)', text, re.MULTILINE | re.DOTALL)
    return found[1].split("\n") if found else []


def _unknown_architecture(architecture: str) -> UnsupportedError:
    major, minor = version()
    known = ", ".join(supported_architectures())
    return UnsupportedError(
        f"NVRTC {major}.{minor} does not compile for {architecture}; it knows {known}, and a- and f-variants of some"
    )


def _is_mapped(ctypes: Any, name: str) -> bool:
    try:
        ctypes.CDLL(name, mode=os.RTLD_NOLOAD)
    except OSError:
        return False
    return True
