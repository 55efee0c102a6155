"""Turns a program into a cubin for one architecture: prebuilt or installed, else from the disk cache, else by NVRTC."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple

from lowlevel_reduce.compiler import nvrtc, toolchain
from lowlevel_reduce.compiler.cache import PREBUILT_VARIABLE, DiskCache, Stored, make_key, open_cache, open_prebuilt
from lowlevel_reduce.compiler.images import cubin_kernels, ptx_kernels
from lowlevel_reduce.compiler.installed import installed_kernels, load_installed
from lowlevel_reduce.compiler.resources import Resources, parse_resources
from lowlevel_reduce.compiler.sources import SourceTree, source_tree
from lowlevel_reduce.compiler.toolchain import Toolchain
from lowlevel_reduce.compiler.translation_unit import Program
from lowlevel_reduce.errors import CompileError, NoCompilerError

__all__ = [
    "Cubin",
    "Output",
    "Program",
    "compile_many",
    "compile_program",
    "entry_name",
    "is_known_to_spill",
    "stored_in",
]

Output = Literal["cubin", "ptx"]


@dataclass(frozen=True, eq=False)
class Cubin:
    """Compiled code.

    Attributes
    ----------
    data : bytes
        The cubin, or the text of the PTX if that was requested.
    names : tuple of str
        Names of the kernels in it, sorted.
    kernels : Mapping[str, Resources]
        The resources that each kernel uses. Empty for PTX, which is not assembled yet.
    architecture : str
        The requested architecture, e.g. ``"sm_90"``.
    nvrtc_version : (int, int)
        The version of NVRTC that compiled it.
    log : str
        NVRTC's log: warnings and the resource report.
    program : Program
        The program that was compiled.
    output : {"cubin", "ptx"}
        What `data` is.
    from_cache : bool
        True if it was read from the disk, prebuilt or cached; False if it was compiled now.
    """

    data: bytes = field(repr=False)
    names: tuple[str, ...]
    kernels: Mapping[str, Resources] = field(repr=False)
    architecture: str
    nvrtc_version: tuple[int, int]
    log: str = field(repr=False)
    program: Program = field(repr=False)
    output: Output
    from_cache: bool


class _Job(NamedTuple):
    program: Program
    architecture: str
    output: Output
    digest: str  # of its headers
    files: Mapping[str, str]  # these, or nothing as long as they are not needed


def compile_program(
    program: Program,
    architecture: str,
    *,
    output: Output = "cubin",
    tree: SourceTree | None = None,
    into: DiskCache | None = None,
) -> Cubin:
    """Compile a program, or load its code from the disk. Threads may call this concurrently.

    Parameters
    ----------
    program : Program
        What to compile.
    architecture : str
        ``"sm_90"``, ``"sm_90a"``, ``"sm_121"``, ….
    output : {"cubin", "ptx"}, optional
        Machine code for that architecture, or PTX for the virtual architecture of the same number (``compute_90``).
    tree : SourceTree, optional
        Where headers come from; by default the ``cuda_src`` of this installation.
    into : DiskCache, optional
        A directory of prebuilt kernels, which contains the result after this call. Code that is compiled for it is not
        stored in the cache. Without it, prebuilt kernels are looked up in ``LOWLEVEL_REDUCE_PREBUILT_DIR``.

    Returns
    -------
    Cubin
        The code, its kernels, and the resources that they use.

    Raises
    ------
    ValueError
        If the architecture is not spelled like ``"sm_90"``, or `output` is neither of the two.
    CompileError
        If the program does not compile, includes a missing header, or contains no kernel.
    UnsupportedError
        If NVRTC does not know the architecture.
    NoCompilerError
        If the program has to be compiled and NVRTC is missing.
    CacheError
        If the directory of the cache or of prebuilt kernels is not safe to use, or `into` cannot be written. If the
        cache cannot be, that is a CacheWarning, once for each directory, and the code is kept for this process.
    """
    prebuilt = open_prebuilt() if into is None else into
    job, shipped, cached = _looked_up(
        program, architecture, output, tree, prebuilt=prebuilt, cached=True, installed=into is None
    )
    if shipped is not None:
        return shipped
    if into is None:
        with _told_what_is_prebuilt(job, prebuilt):
            return cached or _compile(job, open_cache())
    cubin = cached or _compile(job, None)
    into.store(_entry_name(job, None), _encode(cubin), cubin.data)
    return cubin


def stored_in(directory: DiskCache, program: Program, architecture: str) -> Cubin | None:
    """Return what a directory of prebuilt kernels has of a program for an architecture; None if that is nothing."""
    return _looked_up(program, architecture, "cubin", None, prebuilt=directory, cached=False, installed=False)[1]


def is_known_to_spill(program: Program, architecture: str) -> bool:
    """Tell whether the installed package says that the program's kernel spills registers: it has another instead."""
    kernels = installed_kernels()
    if kernels is None:
        return False
    return kernels.is_spilled(_entry_name(_likely_job(program, architecture, "cubin", None), None), architecture)


def compile_many(
    requests: Sequence[tuple[Program, str]], *, output: Output = "cubin", tree: SourceTree | None = None
) -> list[Cubin]:
    """Compile several programs in parallel threads, except those whose code can be loaded from the disk.

    Parameters
    ----------
    requests : sequence of (Program, str)
        Programs and architectures; a pair that occurs twice is compiled once.
    output, tree : optional
        As for `compile_program`.

    Returns
    -------
    list of Cubin
        In the order of the requests.

    Raises
    ------
    ReduceError
        What `compile_program` raises, for the first request that fails; requests not yet begun are dropped.
    """
    prebuilt = open_prebuilt()
    found = {
        request: _looked_up(*request, output, tree, prebuilt=prebuilt, cached=True, installed=True)
        for request in dict.fromkeys(requests)
    }
    jobs = {request: job for request, (job, *_) in found.items()}
    done = {request: cubin for request, (_, *cubins) in found.items() for cubin in cubins if cubin is not None}
    missing = [request for request in jobs if request not in done]
    if missing:
        from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 12 ms, and a warm process needs no threads

        cache = open_cache()
        nvrtc.load()  # once, before the threads: a missing compiler is then one error, not one per thread
        with ThreadPoolExecutor(thread_name_prefix="nvrtc") as pool:
            done.update(zip(missing, pool.map(lambda request: _compile(jobs[request], cache), missing), strict=True))
    return [done[request] for request in requests]


def entry_name(
    *,
    name: str,
    source: str,
    headers_digest: str,
    options: Sequence[str],
    architecture: str,
    output: Output,
    compiler: Toolchain | None,
) -> str:
    """Return the file name of compiled code: a digest of everything that determines it.

    With None for the compiler, it is the name of a prebuilt kernel: whoever ships kernels has chosen what compiles
    them, and where they run there may be no compiler to ask for its version.
    """
    # The program's name is included because __FILE__ and -lineinfo write it into the code.
    ingredients = (name, source, headers_digest, architecture, output, str(compiler), *options)
    return f"{output}-{make_key(*ingredients)}.llr"


def _is_architecture(text: str) -> bool:
    number = text.removeprefix("sm_").removesuffix("a").removesuffix("f")
    return text in (f"sm_{number}", f"sm_{number}a", f"sm_{number}f") and number.isdecimal() and len(number) in (2, 3)


def _likely_job(program: Program, architecture: str, output: Output, tree: SourceTree | None) -> _Job:
    """Return what is to be compiled, but for its headers' texts, whose digest is the likely one."""
    if not _is_architecture(architecture):
        raise ValueError(f'an architecture is spelled like "sm_90" or "sm_90a", not {architecture!r}')
    if output not in ("cubin", "ptx"):
        raise ValueError(f'output is "cubin" or "ptx", not {output!r}')
    if tree is None:
        tree = source_tree()
    return _Job(program, architecture, output, tree.likely_digest(program.source), {})


def _job(program: Program, architecture: str, output: Output, tree: SourceTree | None) -> _Job:
    job = _likely_job(program, architecture, output, tree)
    headers = (tree or source_tree()).closure(program.name, program.source)
    return job._replace(digest=headers.digest, files=headers.files)


def _looked_up(
    program: Program,
    architecture: str,
    output: Output,
    tree: SourceTree | None,
    *,
    prebuilt: DiskCache | None,
    cached: bool,
    installed: bool,
) -> tuple[_Job, Cubin | None, Cubin | None]:
    """Return the job, what is shipped of it and what is cached: with headers' texts if neither is anything."""

    def found(job: _Job) -> tuple[_Job, Cubin | None, Cubin | None]:
        shipped = _from_prebuilt(job, prebuilt) or (_from_installed(job) if installed else None)
        if shipped is not None:
            return job, shipped, None
        with contextlib.suppress(NoCompilerError):  # compiling meets it again, after what is wrong with the source
            # Opened no earlier: who has no home for a cache has what is shipped all the same.
            return job, None, _from_cache(job, open_cache() if cached else None)
        return job, None, None

    likely = found(_likely_job(program, architecture, output, tree))
    if any(likely[1:]):
        return likely
    job = _job(program, architecture, output, tree)
    return (job, None, None) if job.digest == likely[0].digest else found(job)


def _entry_name(job: _Job, compiler: Toolchain | None) -> str:
    return entry_name(
        name=job.program.name,
        source=job.program.source,
        headers_digest=job.digest,
        options=(*nvrtc.DEFAULT_OPTIONS, *job.program.options),
        architecture=job.architecture,
        output=job.output,
        compiler=compiler,
    )


def _from_prebuilt(job: _Job, prebuilt: DiskCache | None) -> Cubin | None:
    stored = None if prebuilt is None else prebuilt.load(_entry_name(job, None))
    return None if stored is None else _decode(job, stored)


def _from_installed(job: _Job) -> Cubin | None:
    stored = load_installed(_entry_name(job, None), job.architecture) if job.output == "cubin" else None
    return None if stored is None else _decode(job, stored)


@contextlib.contextmanager
def _told_what_is_prebuilt(job: _Job, prebuilt: DiskCache | None) -> Iterator[None]:
    """If the compiler is missing, add to the error that the directory of prebuilt kernels lacks the kernel as well."""
    try:
        yield
    except NoCompilerError as error:
        if prebuilt is None:
            raise
        raise NoCompilerError(
            f"{prebuilt.directory}, which {PREBUILT_VARIABLE} names, holds no {job.program.name} for "
            f"{job.architecture} of this version of the library, and {error}"
        ) from error


def _from_cache(job: _Job, cache: DiskCache | None) -> Cubin | None:
    if cache is None:
        return None
    believed = toolchain.identify(cache)
    stored = cache.load(_entry_name(job, believed))
    if stored is None and not nvrtc.is_loaded():
        # A miss needs the compiler anyway, so ask it for its version: the record may be out of date in a way that its
        # fingerprint does not show.
        actual = toolchain.ask(cache)
        if actual != believed:
            stored = cache.load(_entry_name(job, actual))
    return None if stored is None else _decode(job, stored)


def _compile(job: _Job, cache: DiskCache | None) -> Cubin:
    program = job.program
    data, log = nvrtc.compile_source(
        program.name,
        program.source,
        job.architecture,
        headers=job.files,
        options=program.options,
        output=job.output,
    )
    names = cubin_kernels(data) if job.output == "cubin" else ptx_kernels(data)
    if not names:
        raise CompileError(
            program.name, 'the program holds no kernel (extern "C" __global__ void ...)', None, None, None
        )
    kernels = parse_resources(log, names) if job.output == "cubin" else {}
    cubin = Cubin(
        data=data,
        names=names,
        kernels=MappingProxyType(kernels),
        architecture=job.architecture,
        nvrtc_version=nvrtc.version(),
        log=log,
        program=program,
        output=job.output,
        from_cache=False,
    )
    if cache is not None:
        cache.keep(_entry_name(job, toolchain.ask(cache)), _encode(cubin), data)
    return cubin


def _encode(cubin: Cubin) -> dict[str, Any]:
    return {
        "program": cubin.program.name,
        "architecture": cubin.architecture,
        "nvrtc_version": list(cubin.nvrtc_version),
        "names": list(cubin.names),
        "kernels": {name: resources._asdict() for name, resources in cubin.kernels.items()},
        "log": cubin.log,
    }


def _decode(job: _Job, stored: Stored) -> Cubin | None:
    try:
        return _rebuild(job, stored.metadata, stored.payload)
    except (KeyError, TypeError, ValueError):  # complete, and of the right name, but not written by this code
        return None


def _rebuild(job: _Job, held: Mapping[str, Any], data: bytes) -> Cubin:
    major, minor = (_of(int, number) for number in held["nvrtc_version"])
    if (held["program"], held["architecture"]) != (job.program.name, job.architecture):
        raise ValueError("an entry of another program")
    names = tuple(_of(str, name) for name in _of(list, held["names"]))
    kernels = {name: _resources(values) for name, values in _of(dict, held["kernels"]).items()}
    if not names or kernels.keys() != (set(names) if job.output == "cubin" else set()):
        raise ValueError("an entry that lacks kernels")
    return Cubin(
        data=data,
        names=names,
        kernels=MappingProxyType(kernels),
        architecture=job.architecture,
        nvrtc_version=(major, minor),
        log=_of(str, held["log"]),
        program=job.program,
        output=job.output,
        from_cache=True,
    )


def _resources(values: Any) -> Resources:
    for value in _of(dict, values).values():
        _of((int, NoneType), value)
    return Resources(**values)


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind}")
    return value
