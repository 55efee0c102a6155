"""One's own source as a loaded kernel: compiled with a table of its lines, and its parameters understood."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from lowlevel_reduce.compiler import Program, compile_program
from lowlevel_reduce.compiler.images import ptx_kernels
from lowlevel_reduce.compiler.sources import SourceTree, source_root
from lowlevel_reduce.errors import CompileError, UnsupportedError
from lowlevel_reduce.workbench.convention import Convention, base_name, convention_of, declared_types, mangled_types

__all__ = ["OPTIONS", "OwnKernel", "OwnSource", "read_source", "text_of"]

OPTIONS = ("-lineinfo",)
"""The line table, and otherwise the compiler's defaults, which are nvcc's: products and sums may be fused."""

_HINT = (
    "(NVRTC compiles for the device and has no headers of the host or the toolkit: put what only nvcc needs between "
    "#ifndef __CUDACC_RTC__ and #endif, or give the PTX of nvcc -ptx -lineinfo)"
)


@dataclass(frozen=True)
class OwnKernel:
    """One kernel of a source: its name there, its name in the code, and what its parameters mean."""

    name: str
    entry: str
    convention: Convention


@dataclass(frozen=True)
class OwnSource:
    """A user's file, compiled.

    Attributes
    ----------
    path : Path
        The file.
    text : str
        CUDA C++, or PTX if the file is that.
    image : bytes
        PTX or a cubin.
    entries : tuple of str
        Names of the kernels in the code.
    """

    path: Path
    text: str
    image: bytes = field(repr=False)
    entries: tuple[str, ...]

    @property
    def is_ptx(self) -> bool:
        """Whether the file is PTX, and not CUDA C++."""
        return self.path.suffix == ".ptx"

    def kernel(self, name: str | None, signature: str | None = None) -> OwnKernel:
        """Return the kernel of that name, or the only one.

        Parameters
        ----------
        name : str, optional
            As the source or the code has it.
        signature : str, optional
            The types of its parameters, separated by commas, where they cannot be read.

        Raises
        ------
        UnsupportedError
            If there is no such kernel, if there are several and none is named, or if its parameters fit no convention.
        """
        named = [entry for entry in self.entries if name in (None, entry, base_name(entry))]
        if len(named) != 1:
            there = ", ".join(dict.fromkeys(base_name(entry) for entry in self.entries))
            what = f"no kernel {name!r}" if name and not named else "more than one kernel"
            raise UnsupportedError(f"{self.path} has {what}: it has {there}; name one by --entry")
        (entry,) = named
        types = self._types(entry, signature)
        return OwnKernel(base_name(entry), entry, convention_of(base_name(entry), types))

    def line(self, number: int) -> str:
        """Return a line of the source, without the blanks around it; nothing where there is none."""
        lines = self.text.split("\n")
        return lines[number - 1].strip() if 0 < number <= len(lines) else ""

    def _types(self, entry: str, signature: str | None) -> list[str]:
        if signature is not None:
            return [text.strip() for text in signature.split(",")]
        types = mangled_types(entry)
        if types is None and not self.is_ptx:
            types = declared_types(self.text, base_name(entry))
        if types is None:
            raise UnsupportedError(
                f"the types of {base_name(entry)}'s parameters cannot be read: name them, for example "
                '--signature "const float*, float*, int"'
            )
        return types


class _OwnTree(SourceTree):
    """Headers beside one's own source, and then those of ``cuda_src``."""

    def _path(self, name: str) -> Path:
        path = super()._path(name)
        return path if path.is_file() else SourceTree(source_root())._path(name)


def read_source(path: Path, architecture: str, *, output: str = "ptx", options: Sequence[str] = OPTIONS) -> OwnSource:
    """Read and compile a file.

    Parameters
    ----------
    path : Path
        CUDA C++ (``.cu``), whose headers are beside it or in ``cuda_src``, or PTX (``.ptx``), which is taken as it is.
    architecture : str
        What to compile for, e.g. ``"sm_90"``.
    output : {"ptx", "cubin"}, optional
        PTX for the simulator, machine code for a GPU. A GPU's driver would compile PTX itself: not supported.
    options : sequence of str, optional
        NVRTC options.

    Raises
    ------
    UnsupportedError
        If the file is neither, PTX for a GPU, or not in UTF-8.
    CompileError, OSError
        If it does not compile, or cannot be read.
    """
    if path.suffix not in (".cu", ".ptx"):
        raise UnsupportedError(f"{path} is neither CUDA C++ (.cu) nor PTX (.ptx)")
    text = text_of(path)
    if path.suffix == ".ptx":
        if output != "ptx":
            raise UnsupportedError(f"{path} is PTX, which runs on the simulator: --device simulator")
        image = text.encode()
        return OwnSource(path, text, image, ptx_kernels(image))
    program = Program(path.name, text, options=tuple(options))
    try:
        cubin = compile_program(program, architecture, output=output, tree=_OwnTree(path.parent))  # type: ignore[arg-type]
    except CompileError as error:
        _refuse_templates(path, text, error)
        hint = f" {_HINT}" if re.search(r"is not a header|could not open source|<<<|main", str(error)) else ""
        raise CompileError(path.name, f"{error.log}{hint}", error.file, error.line, error.source_line) from None
    return OwnSource(path, text, cubin.data, cubin.names)


def text_of(path: Path) -> str:
    """Return the text of a file; raises UnsupportedError, which names the file, if it is not in UTF-8, or OSError."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UnsupportedError(f"{path} is not text in UTF-8, also in its comments: {error}") from None


def _refuse_templates(path: Path, text: str, error: CompileError) -> None:
    if "holds no kernel" in str(error) and re.search(r"template\s*<", text):
        raise UnsupportedError(
            f"{path} has templates of kernels and no instance: add a line such as "
            "template __global__ void kernel<float>(const float*, float*, int);"
        ) from None
