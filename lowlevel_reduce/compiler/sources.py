"""Finds the CUDA C++ sources, and reads the headers that a program includes from them.

A program can ``#include "x.cuh"`` files of ``cuda_src``. The name is always relative to its root, even inside a
subfolder: NVRTC looks headers up by that literal name. Conditions are not evaluated: a header behind ``#if`` counts as
included, so that the digest covers too much rather than too little.

Reading texts as NVRTC would takes some 10 ms for a kernel's headers, and only what is compiled needs it. What was
compiled before is looked up by the headers that a glance finds.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from lowlevel_reduce.errors import CompileError

if TYPE_CHECKING:
    from lowlevel_reduce.compiler.preprocessing import Include, Place, Reading

__all__ = ["Headers", "SourceTree", "source_root", "source_tree"]


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
    name: str
    text: str
    reading: Reading


class SourceTree:
    """The files below one directory, read when they are first needed and kept for the life of the process.

    Parameters
    ----------
    root : Path
        The directory that ``#include`` names are relative to.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._texts: dict[str, str] = {}
        self._files: dict[str, _File] = {}
        self._closures: dict[tuple[str, ...], Headers] = {}
        self._glances: dict[str, tuple[str, ...]] = {}
        self._likely: dict[tuple[str, ...], str] = {}

    def likely_digest(self, source: str) -> str:
        """Return the digest that `closure` most likely has, without reading the texts as NVRTC would.

        Where it is wrong, it is the digest of nothing that was ever compiled: if it is that of an earlier closure, this
        source and these headers, whose names and contents it covers, are what that closure was found from.
        """
        found: set[str] = set()
        pending = [*_glance(source)]
        while pending:
            name = pending.pop()
            if name in found:
                continue
            if name not in self._glances:
                try:
                    self._glances[name] = _glance(self._text(name))
                except (OSError, ValueError):  # of a comment, or an error that `closure` raises
                    continue
            found.add(name)
            pending += self._glances[name]
        names = tuple(sorted(found))
        if names not in self._likely:
            self._likely[names] = _digest({name: self._texts[name] for name in names})
        return self._likely[names]

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
            If a header is missing, or if a text could make NVRTC open another file; the error shows the line.
        """
        found: dict[str, _File] = {}
        own = _parse(program, program, source)
        pending = [own]
        while pending:
            file = pending.pop()
            for include in file.reading.includes:
                if include.name not in found:
                    found[include.name] = self._read(program, include, file)
                    pending.append(found[include.name])
        _check_pieces(program, [own, *found.values()])
        names = tuple(sorted(found))
        if names not in self._closures:  # the digest takes most of the time, and related kernels include the same files
            files = {name: found[name].text for name in names}
            self._closures[names] = Headers(MappingProxyType(files), _digest(files))
        return self._closures[names]

    def _read(self, program: str, include: Include, includer: _File) -> _File:
        name = include.name
        found = self._files.get(name)
        if found is None:
            try:
                content = self._text(name)
            except (OSError, ValueError) as error:
                raise _error(
                    program,
                    f"{name!r} is not a header of {self.root}: {error}",
                    includer.name,
                    includer.text,
                    include.place,
                ) from error
            # No lock, since a signal handler might wait for it: if threads read the same file, one result is kept.
            found = self._files.setdefault(name, _parse(program, name, content))
        return found

    def _text(self, name: str) -> str:
        text = self._texts.get(name)
        if text is None:
            text = self._texts.setdefault(name, self._path(name).read_text(encoding="utf-8"))
        return text

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


def _glance(text: str) -> tuple[str, ...]:
    return tuple(piece.partition('"')[0] for piece in text.split('#include "')[1:])


def _parse(program: str, name: str, text: str) -> _File:
    from lowlevel_reduce.compiler.preprocessing import RefusedTextError, read  # noqa: PLC0415 - 2 ms, to compile

    try:
        return _File(name, text, read(text))
    except RefusedTextError as error:
        raise _error(program, str(error), name, text, error.place) from None


def _check_pieces(program: str, files: Sequence[_File]) -> None:
    """Refuse a program that could put the name of a question for files together from pieces."""
    if any(file.reading.pastes for file in files):
        for file in files:
            if file.reading.piece is not None:
                raise _error(program, str(file.reading.piece), file.name, file.text, file.reading.piece.place)


def _error(program: str, message: str, name: str, text: str, place: Place) -> CompileError:
    file = place.file or name
    log = f"{file}({place.presumed}): error: {message}"
    return CompileError(program, log, file, place.presumed, text.split("\n")[place.line - 1])


def _digest(files: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name, text in files.items():
        for part in (name.encode(), text.encode()):
            # The length first: otherwise moving text from a name to a content would not change the digest.
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
    return digest.hexdigest()
