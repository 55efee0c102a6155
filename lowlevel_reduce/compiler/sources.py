"""Finds the CUDA C++ sources, and reads the headers that a program includes from them.

A program can ``#include "x.cuh"`` files of ``cuda_src``. The name is always relative to its root, even inside a
subfolder: NVRTC looks headers up by that literal name. Conditions are not evaluated: a header behind ``#if`` counts as
included, so that the digest covers too much rather than too little.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from lowlevel_reduce.errors import CompileError

__all__ = ["Headers", "SourceTree", "source_root", "source_tree"]

# A string literal is matched only to be skipped: it may contain what looks like the start of a comment.
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[ \t]*(.*?)[ \t\r]*$", re.MULTILINE)


class Headers(NamedTuple):
    """The include closure of a program.

    Attributes
    ----------
    files : Mapping[str, str]
        The text of each header by its name in ``#include``; sorted by name.
    digest : str
        SHA-256 of names and contents, in hexadecimal.
    """

    files: Mapping[str, str]
    digest: str


class _File(NamedTuple):
    text: str
    includes: tuple[tuple[str, int], ...]


class SourceTree:
    """The files below one directory, read when they are first needed and kept for the life of the process.

    Parameters
    ----------
    root : Path
        The directory that ``#include`` names are relative to.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._files: dict[str, _File] = {}
        self._closures: dict[tuple[str, ...], Headers] = {}

    def closure(self, program: str, source: str) -> Headers:
        """Return every header that a source includes, directly or through other headers.

        Parameters
        ----------
        program : str
            Name of the source, for error messages.
        source : str
            CUDA C++ text.

        Returns
        -------
        Headers
            The headers and their digest.

        Raises
        ------
        CompileError
            If a header is missing, or the name in an ``#include`` is not in quotes or angle brackets; the error shows
            the line of the ``#include``.
        """
        found: dict[str, _File] = {}
        pending = [(program, _parse(program, program, source))]
        while pending:
            includer, file = pending.pop()
            for name, line in file.includes:
                if name not in found:
                    found[name] = self._read(program, name, includer, file.text, line)
                    pending.append((name, found[name]))
        names = tuple(sorted(found))
        if names not in self._closures:  # the digest takes most of the time, and related kernels include the same files
            files = {name: found[name].text for name in names}
            self._closures[names] = Headers(MappingProxyType(files), _digest(files))
        return self._closures[names]

    def _read(self, program: str, name: str, includer: str, text: str, line: int) -> _File:
        found = self._files.get(name)
        if found is None:
            try:
                content = self._path(name).read_text(encoding="utf-8")
            except (OSError, ValueError) as error:
                raise _include_error(
                    program, f"{name!r} is not a header of {self.root}: {error}", includer, text, line
                ) from error
            # No lock, since a signal handler might wait for it: if threads read the same file, one result is kept.
            found = self._files.setdefault(name, _parse(program, name, content))
        return found

    def _path(self, name: str) -> Path:
        # A name that leads out of the root could include a file that differs between machines. And NVRTC identifies a
        # header by its literal name: to it, "a/../b.cuh" and "b.cuh" would be two files, which defeats #pragma once.
        parts = PurePosixPath(name).parts
        if not parts or name != "/".join(parts) or ".." in parts or "\\" in name or ":" in name or name.startswith("/"):
            raise ValueError("a header is named by its plain path below that directory")
        return self.root.joinpath(*parts)


def source_root() -> Path:
    """Return the ``cuda_src`` directory of this installation.

    In a wheel it is inside the package, in a checkout beside the package. The place inside is tried first: beside an
    installed package is all of site-packages, where another package may use the same name.

    Raises
    ------
    CompileError
        If it is in neither place.
    """
    package = Path(__file__).resolve().parent.parent
    places = (package / "cuda_src", package.parent / "cuda_src")
    for place in places:
        if place.is_dir():
            return place
    message = f"the CUDA sources are missing (looked for {places[0]} and {places[1]}): reinstall lowlevel-reduce"
    raise CompileError("cuda_src", message, None, None, None)


@functools.cache
def source_tree() -> SourceTree:
    """Return the tree of `source_root`, one per process."""
    return SourceTree(source_root())


def _parse(program: str, name: str, text: str) -> _File:
    bare = _COMMENT.sub(_blank, text)
    includes: list[tuple[str, int]] = []
    for match in _INCLUDE.finditer(bare):
        target = match.group(1)
        line = bare.count("\n", 0, match.start()) + 1
        if target.startswith('"') and target.endswith('"') and len(target) > 2:
            includes.append((target[1:-1], line))
        elif not target.startswith("<"):
            # It is not known here what a macro expands to, so the header would be missing from the digest.
            raise _include_error(
                program, f'cannot follow "#include {target}": write the name in quotes', name, text, line
            )
    return _File(text, tuple(includes))


def _blank(match: re.Match[str]) -> str:
    token = match.group()
    return token if token.startswith('"') else " " + "\n" * token.count("\n")


def _include_error(program: str, message: str, file: str, text: str, line: int) -> CompileError:
    return CompileError(program, message, file, line, text.split("\n")[line - 1])


def _digest(files: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name, text in files.items():
        for part in (name.encode(), text.encode()):
            # The length first: otherwise moving text from a name to a content would not change the digest.
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()
