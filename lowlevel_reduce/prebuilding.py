"""Compiling kernels before they are needed, on any machine: which ones a reduction uses, and where they are stored."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from lowlevel_reduce import operators
from lowlevel_reduce.arguments import integer
from lowlevel_reduce.compiler import DiskCache, Output, Resources, open_cache, prebuilt_at
from lowlevel_reduce.driver import Context, binding
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import CacheError, UnsupportedError
from lowlevel_reduce.layout import MAX_BYTES
from lowlevel_reduce.operators import Reduction
from lowlevel_reduce.plans.array import default_strategy
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.plans.mapping import facts_of
from lowlevel_reduce.plans.segments import OFFSETS, WARP_GROUPS
from lowlevel_reduce.strategy.selection import choices, operator_text, request_of, select
from lowlevel_reduce.strategy.stubs import KernelSource, segment_kernel_sources, with_twins
from lowlevel_reduce.strategy.whole import DeviceFacts

__all__ = ["BuildTarget", "PrebuiltKernel", "build_kernels", "kernels_of", "kernels_of_segments", "prebuild"]


class BuildTarget(NamedTuple):
    """The GPUs that kernels are compiled for.

    Attributes
    ----------
    architecture : str
        The architecture, e.g. ``"sm_90"``.
    facts : DeviceFacts
        The properties of the GPUs that decide which kernels are used.
    output : {"cubin", "ptx"}
        What to compile to: machine code, or PTX for a simulated device.
    """

    architecture: str
    facts: DeviceFacts
    output: Output = "cubin"

    @classmethod
    def of_context(cls, context: Context | None = None) -> BuildTarget:
        """Return the GPU of a context as a target; by default of the current context, else the primary one of device 0.

        Raises
        ------
        NoDriverError
            If there is no driver or no GPU.
        """
        context = Context.of(context)
        output: Output = "ptx" if binding.selected().image == "ptx" else "cubin"
        return cls(context.device.architecture, facts_of(context), output)

    @classmethod
    def of_architecture(cls, architecture: str, multiprocessors: int) -> BuildTarget:
        """Return the GPUs of an architecture and a number of multiprocessors as a target; this machine needs no GPU.

        Parameters
        ----------
        architecture : str
            Spelled like ``"sm_90"``.
        multiprocessors : int
            How many multiprocessors those GPUs have.

        Raises
        ------
        TypeError
            If the number is not an integer.
        ValueError
            If the architecture is not spelled like ``"sm_90"``, or the number is not positive.
        UnsupportedError
            If the architecture is older than compute capability 7.5, which the kernels need.
        """
        found = re.fullmatch(r"sm_(\d{1,2})(\d)", architecture)
        if found is None:
            raise ValueError(f'a GPU\'s architecture is spelled like "sm_90", not {architecture!r}')
        multiprocessors = integer(multiprocessors, "multiprocessors is an integer")
        if multiprocessors < 1:
            raise ValueError(f"a GPU has a multiprocessor or more, not {multiprocessors}")
        capability = int(found[1]), int(found[2])
        if capability < (7, 5):
            raise UnsupportedError(f"the kernels need compute capability 7.5 or newer, and {architecture} is older")
        return cls(architecture, DeviceFacts(capability, multiprocessors, capability >= (9, 0), cooperative=True))


class PrebuiltKernel(NamedTuple):
    """One kernel that `prebuild` compiled or found.

    Attributes
    ----------
    name, architecture : str
        The kernel's name, and the architecture that it is compiled for.
    resources : Resources or None
        The registers, memory and barriers that it uses; None for PTX.
    compiled : bool
        True if it was compiled now, False if it was already in the directory or in the cache.
    """

    name: str
    architecture: str
    resources: Resources | None
    compiled: bool


def prebuild(
    op: str | Reduction = "sum",
    *,
    dtype: Any,
    shape: int | Sequence[int] | None = None,
    segmented: bool = False,
    target: BuildTarget | Context | None = None,
    into: str | os.PathLike[str] | None = None,
    **options: Any,
) -> tuple[PrebuiltKernel, ...]:
    """Compile the kernels of a reduction now, so that its first call on a GPU compiles nothing.

    Kernels are compiled in parallel threads. At run time a process loads them from the directory that the environment
    variable ``LOWLEVEL_REDUCE_PREBUILT_DIR`` names, whichever compiler it has, and even without one. Prebuilt kernels
    belong to this version of the library: another version does not find them and compiles its own.

    Parameters
    ----------
    op : str or Operator
        The operator, or its name.
    dtype : dtype
        Type of the elements.
    shape : int or sequence of int, optional
        Shape of the arrays. Without it, the kernels for whole contiguous arrays of every length are compiled.
    segmented : bool
        Instead, compile the kernels of `segmented_reduce`, which serve any number of segments and elements.
    target : BuildTarget or Context, optional
        The GPUs to compile for; by default that of the current context, else device 0.
    into : path, optional
        A directory to store the kernels in; it is created if needed, and kernels in it are kept. Without it, they go to
        this user's cache.
    **options
        As for `lowlevel_reduce.plan`: `axis`, `strides_bytes`, `second_strides_bytes`, `accumulate`, `result_dtype`,
        `where`, `initial`, `strategy`, `cluster`, `block_threads`, `nan`, `ddof`, `last`, `map`.

    Returns
    -------
    tuple of PrebuiltKernel
        Each kernel once.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `lowlevel_reduce.plan`; or if an option needs a shape and none is given; or if a shape is given together with
        ``segmented=True``.
    CompileError, NoCompilerError, CacheError
        If a kernel cannot be compiled or stored, or if the cache is off and no directory is given.
    NoDriverError
        If there is neither a target nor a GPU.
    """
    if not isinstance(target, BuildTarget):
        target = BuildTarget.of_context(target)
    if segmented and shape is not None:
        raise ValueError("kernels of segments are the same for every shape: none goes with segmented=True")
    if segmented:
        return build_kernels(kernels_of_segments(op, dtype=dtype, **options), target, into=into)
    return build_kernels(kernels_of(op, target, shape=shape, dtype=dtype, **options), target, into=into)


def kernels_of(
    op: str | Reduction,
    target: BuildTarget,
    *,
    shape: int | Sequence[int] | None = None,
    dtype: Any,
    strategy: str | None = None,
    cluster: int | None = None,
    block_threads: int | None = None,
    **options: Any,
) -> tuple[KernelSource, ...]:
    """Return the kernels that a reduction uses on a GPU, each once; without a shape, those for all whole arrays."""
    if shape is None:
        of_a_shape = sorted({"axis", "keepdims", "strides_bytes", "second_strides_bytes"} & options.keys())
        if of_a_shape:
            raise ValueError(f"{' and '.join(of_a_shape)} goes with a shape, and none is given")
    strategy, cluster, block_threads = choices(strategy, cluster, block_threads)
    sources: dict[KernelSource, None] = {}
    for lengths in [shape] if shape is not None else _lengths(element_type(dtype).itemsize):
        request = request_of(op, shape=lengths, dtype=dtype, **options)
        selected = select(
            request,
            target.facts,
            strategy=strategy or default_strategy(request),
            cluster=cluster,
            block_threads=block_threads,
        )
        sources.update(dict.fromkeys(with_twins(selected.sources)))
    return tuple(sources)


def _lengths(itemsize: int) -> Iterator[int]:
    """Yield lengths such that every strategy that `policy.choose` may choose is chosen for at least one of them."""
    length = 1
    while 2 * length * itemsize <= MAX_BYTES:
        yield from (length, length * 3 // 2)
        length *= 2


def kernels_of_segments(
    op: str | Reduction,
    *,
    dtype: Any,
    accumulate: str | None = None,
    result_dtype: Any = None,
    initial: bool = False,
    **options: Any,
) -> tuple[KernelSource, ...]:
    """Return the kernels that segmented reductions use, for every type of offsets, each once."""
    reduction = operators.resolve(op, initial=initial, **options)
    if reduction.second is not None:
        raise UnsupportedError(f"{reduction.name} takes two arrays; segments are of one")
    text = operator_text(reduction, reduction.types(element_type(dtype), accumulate, result_dtype))
    every = [segment_kernel_sources(text, offsets, groups) for offsets in OFFSETS for groups in WARP_GROUPS]
    return tuple(dict.fromkeys(source for sources in every for source in sources))


def build_kernels(
    sources: Iterable[KernelSource],
    target: BuildTarget,
    *,
    into: str | os.PathLike[str] | None = None,
    each: Callable[[PrebuiltKernel], None] | None = None,
) -> tuple[PrebuiltKernel, ...]:
    """Compile those kernels that do not exist yet, in parallel threads.

    Parameters
    ----------
    sources : iterable of KernelSource
        The kernels.
    target : BuildTarget
        The GPUs to compile for.
    into : path, optional
        The directory to store them in; without it, this user's cache.
    each : callable, optional
        Called with every kernel as soon as it is done, in the thread that compiled it.

    Returns
    -------
    tuple of PrebuiltKernel
        The kernels in the order of `sources`.

    Raises
    ------
    TypeError
        If `into` is not a path.
    ReduceError
        What `loading.compile_kernel` raises, for the first kernel that fails; kernels not yet begun are not compiled.
        CacheError if the cache is off and no directory is given.
    """
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - 12 ms that only this needs

    directory = _directory(into)

    def build(source: KernelSource) -> PrebuiltKernel:
        cubin = compile_kernel(source, target.architecture, output=target.output, into=directory)
        done = PrebuiltKernel(source.entry, target.architecture, cubin.kernels.get(source.entry), not cubin.from_cache)
        if each is not None:
            each(done)
        return done

    with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="prebuild") as pool:
        futures = [pool.submit(build, source) for source in sources]
        try:
            return tuple(future.result() for future in futures)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _directory(into: str | os.PathLike[str] | None) -> DiskCache | None:
    if into is not None:
        path = os.fspath(into) if isinstance(into, os.PathLike) else into
        if not isinstance(path, str):
            raise TypeError(f"into is the path of a directory, not {into!r}")
        if not path:
            raise ValueError("into is the path of a directory, and this one is empty")
        return prebuilt_at(path)
    if open_cache() is None:
        raise CacheError("the cache of compiled code is off: name a directory for the kernels with into=")
    return None
