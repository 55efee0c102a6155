"""Building the wheel: kernels compiled in processes and packed by architecture; hatchling writes the file."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from lowlevel_reduce import operators
from lowlevel_reduce.compiler import Cubin, DiskCache, prebuilt_at
from lowlevel_reduce.compiler.cache import encode_entry
from lowlevel_reduce.compiler.files import write_file
from lowlevel_reduce.compiler.installed import DISTRIBUTION, PACKAGE, SUFFIX
from lowlevel_reduce.compiler.pack import Pack, PackedEntry, packed
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import ReduceError
from lowlevel_reduce.kernel_wheel.compiling import compile_beside, is_compiled
from lowlevel_reduce.kernel_wheel.manifest import MadeKernel, manifest_of
from lowlevel_reduce.operators import Reduction, Types
from lowlevel_reduce.plans.loading import compile_kernel, processors
from lowlevel_reduce.prebuilding import capability_of
from lowlevel_reduce.rowops.family import BUILT_IN, row_family
from lowlevel_reduce.strategy.family import family
from lowlevel_reduce.strategy.stubs import ANYWHERE, KernelSource
from lowlevel_reduce.version import __version__

__all__ = ["WheelReport", "build_wheel"]


_ALIKE = (
    *(("sum", "mean"), ("max", "min"), ("argmax", "argmin"), ("any", "all"), ("var", "std")),
    ("softmax", "log_softmax"),
)
"""Operators whose kernels of one type differ little. Those of other operators do so for bfloat16 and float16."""


class WheelReport(NamedTuple):
    """What was built: the wheel, its bytes, and by architecture the kernels and the bytes of their pack."""

    wheel: Path
    size_bytes: int
    kernels: Mapping[str, int]
    pack_bytes: Mapping[str, int]


class _Member(NamedTuple):
    """A kernel to be compiled, and of what: an operator's with its types, or a row operation's (None)."""

    label: str
    element: str
    reduction: Reduction | None
    types: Types | None
    source: KernelSource


class _Noting(DiskCache):
    """The directory of compiled kernels, noting which entries one kernel's compilation reads and writes, in order.

    A kernel whose first attempt spills has several: the pack has the last one, and the names of those before it, since
    a process makes the same attempts again.
    """

    def __init__(self, directory: DiskCache) -> None:
        super().__init__(directory.directory, limit_bytes=directory.limit_bytes, _use=directory._use)
        self.names: dict[str, None] = {}

    def load(self, name: str) -> Any:
        self.names[name] = None
        return super().load(name)


def build_wheel(
    into: str | os.PathLike[str],
    architectures: Sequence[str],
    choice: Iterable[tuple[str, str]],
    *,
    kernels_in: str | os.PathLike[str] | None = None,
    each: Callable[[int], None] | None = None,
) -> WheelReport:
    """Write the wheel of kernels.

    Parameters
    ----------
    into : path
        The directory for the wheel; it is created if needed.
    architectures : sequence of str
        What to compile for, e.g. ``("sm_80", "sm_90")``.
    choice : iterable of (str, str)
        Operators, or row operations, and types of elements.
    kernels_in : path, optional
        A directory of prebuilt kernels, where compiled ones are kept, so that a build that was stopped goes on. By
        default they are compiled for this build alone.
    each : callable, optional
        Called with the number of kernels in all, as soon as one of them is done.

    Raises
    ------
    ValueError, UnsupportedError
        If an architecture or a type is none that kernels are compiled for, or nothing was chosen.
    ReduceError
        If hatchling, which builds the wheel, is not installed or fails, or `kernels_in` has another NVRTC's kernels.
    CompileError, NoCompilerError, CacheError, OSError
        If a kernel cannot be compiled or stored.
    """
    architectures, pairs = tuple(dict.fromkeys(architectures)), tuple(dict.fromkeys(choice))
    if not architectures or not pairs:
        raise ValueError("a wheel of kernels has an architecture and an operator, or more")
    if importlib.util.find_spec("hatchling") is None:
        raise ReduceError("hatchling builds the wheel, and is not installed: pip install hatchling")
    members = {architecture: _members(pairs, architecture) for architecture in architectures}
    target = Path(into)
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        project = Path(temporary) / "project"
        package = project / PACKAGE
        package.mkdir(parents=True)
        directory = prebuilt_at(os.fspath(kernels_in) if kernels_in is not None else str(Path(temporary) / "kernels"))
        total = sum(map(len, members.values()))
        _compile(members, directory, lambda: each and each(total))
        sizes = {
            architecture: _write_pack(package, architecture, of_it, directory)
            for architecture, of_it in members.items()
        }
        _write_project(project, package, architectures, pairs)
        wheel = _built(project, target)
    counts = {architecture: len(of_it) for architecture, of_it in members.items()}
    return WheelReport(wheel, wheel.stat().st_size, counts, sizes)


def _members(pairs: Sequence[tuple[str, str]], architecture: str) -> list[_Member]:
    """Return the kernels for an architecture, those of an operator and a type behind each other."""
    capability = capability_of(architecture)
    found: dict[str, _Member] = {}
    for op, dtype in pairs:
        if op in BUILT_IN:
            for source in row_family(op, dtype=dtype):
                found.setdefault(source.text, _Member(op, dtype, None, None, source))
            continue
        reduction = operators.resolve(op)
        types = reduction.types(element_type(dtype), None, None)
        for source in family(reduction, types, capability):
            found.setdefault(source.text, _Member(reduction.label, types.element.name, reduction, types, source))
    return list(found.values())


def _compile(members: Mapping[str, Sequence[_Member]], directory: DiskCache, each: Callable[[], Any]) -> None:
    """Compile what the directory lacks, the architectures one after the other."""
    missing = []
    for architecture, of_it in members.items():
        for member in of_it:
            if is_compiled(member.source, architecture, directory):
                each()
            else:
                missing.append((member.source, architecture))
    compile_beside(missing, directory, each, most=processors())


def _write_pack(package: Path, architecture: str, members: Sequence[_Member], directory: DiskCache) -> int:
    """Write the pack of kernels that the directory has, and its manifest, and return the pack's bytes."""

    def made(member: _Member) -> tuple[Cubin, tuple[str, ...]]:
        noting = _Noting(directory)
        return compile_kernel(member.source, architecture, into=noting), tuple(noting.names)

    results = [made(member) for member in members]
    families: dict[Any, dict[Any, list[tuple[str, PackedEntry]]]] = {}
    for member, (_, names) in zip(members, results, strict=True):
        alike = families.setdefault(_resemblance(member), {})
        entry = PackedEntry(names[-1], _entry(directory, names[-1]))
        alike.setdefault((member.label, member.element), []).append((member.source.entry, entry))
    groups = [_in_turns(alike.values()) for alike in families.values()]
    path = package / f"{architecture}{SUFFIX}"
    spilled = [name for _, names in results for name in names[:-1]]
    path.write_bytes(packed(architecture, __version__, groups, spilled))
    kernels = [
        MadeKernel(member.reduction, member.types, member.source, cubin, names[-1])
        for member, (cubin, names) in zip(members, results, strict=True)
        # Row operations are for programs with the library: how rows are mapped is no rule that a manifest could state.
        if member.reduction is not None and member.types is not None
    ]
    manifest = manifest_of(__version__, Pack(str(path)), path.name, kernels)
    text = json.dumps(manifest, indent=None, separators=(",", ":")) + "\n"
    path.with_suffix(".json").write_text(text, encoding="utf-8")
    return path.stat().st_size


def _in_turns(families: Iterable[Sequence[tuple[str, PackedEntry]]]) -> list[PackedEntry]:
    """Return the entries of families by turns, so that what first calls need, whole arrays' kernels, comes first.

    Twins, which few first calls need, come last: that of whole arrays is as large as the kernels for aligned ones.
    """
    turns = [each for turn in zip_longest(*families) for each in turn if each]
    return [entry for _, entry in sorted(turns, key=lambda each: each[0].endswith(ANYWHERE))]


def _resemblance(member: _Member) -> tuple[Any, str]:
    """Return what the families share whose kernels resemble each other: in one block they take 0.75 of the space."""
    for alike in _ALIKE:
        if member.label in alike:
            return alike, member.element
    return member.label, "16 bits" if member.element in ("bfloat16", "float16") else member.element


def _entry(directory: DiskCache, name: str) -> bytes:
    stored = directory.load(name)
    if stored is None:
        raise ReduceError(f"{directory.directory} no longer has {name}, which was compiled just now")
    return encode_entry(name, stored.metadata, stored.payload)


def _write_project(
    project: Path, package: Path, architectures: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> None:
    """Write what hatchling makes the wheel from."""
    of_types: dict[str, list[str]] = {}
    for op, dtype in pairs:
        of_types.setdefault(op, []).append(dtype)
    listed = "\n".join(f"- `{op}`: {', '.join(dtypes)}" for op, dtypes in of_types.items())
    (project / "README.md").write_text(
        f"""# Kernels of lowlevel-reduce

Compiled kernels of lowlevel-reduce {__version__}: data alone, for
{", ".join(architectures)}.
Where it is installed, that version of the library needs no compiler on these GPUs, for arrays of any shape:

{listed}

Each `.pack` has a manifest beside it, a `.json` by which a runtime without Python loads and launches the same kernels.
""",
        encoding="utf-8",
    )
    (package / "__init__.py").write_text(
        f'"""Compiled kernels of lowlevel-reduce: data alone, which the library finds by this package\'s name."""\n\n'
        f'__version__ = "{__version__}"\n',
        encoding="utf-8",
    )
    (project / "pyproject.toml").write_text(
        f"""[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{DISTRIBUTION}"
version = "{__version__}"
description = "Compiled kernels of lowlevel-reduce {__version__}"
readme = "README.md"
license = "Apache-2.0"
requires-python = ">=3.10"

# A .gitignore above the directory for temporary files is none of this wheel's: it could take the packs out.
[tool.hatch.build.targets.wheel]
packages = ["{PACKAGE}"]
ignore-vcs = true
""",
        encoding="utf-8",
    )


def _built(project: Path, target: Path) -> Path:
    """Build the wheel, and return its path: on a full disk what was there before stays, and no part of a wheel."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    wheel = f"{PACKAGE}-{__version__}-py3-none-any.whl"
    built = project / "dist" / wheel
    if done.returncode != 0 or not built.is_file():
        raise ReduceError(f"hatchling did not build the wheel: {(done.stderr.strip() or 'silently').splitlines()[-1]}")
    write_file(str(target / wheel), built.read_bytes(), temporary=str(target / f".{wheel}.{os.getpid()}"), mode=0o644)
    return target / wheel
