"""Compiling kernels before they are needed, on any machine: which ones a reduction uses, and where they are stored."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from lowlevel_reduce import operators
from lowlevel_reduce.arguments import shown
from lowlevel_reduce.compiler import DiskCache, Output, Resources, open_cache, prebuilt_at
from lowlevel_reduce.driver import Context, binding
from lowlevel_reduce.dtypes import element_type
from lowlevel_reduce.errors import CacheError, UnsupportedError
from lowlevel_reduce.operators import Reduction
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.plans.segments import OFFSETS, WARP_GROUPS
from lowlevel_reduce.rowops.family import BUILT_IN, row_family
from lowlevel_reduce.rowops.operation import RowOperation
from lowlevel_reduce.strategy.family import OLDEST_CAPABILITY, family_of
from lowlevel_reduce.strategy.selection import operator_text
from lowlevel_reduce.strategy.stubs import KernelSource, segment_kernel_sources

__all__ = [
    "BuildTarget",
    "PrebuiltKernel",
    "build_kernels",
    "capability_of",
    "kernels_of_calls",
    "kernels_of_segments",
    "prebuild",
]


_OF_A_PLAN = frozenset(
    ("shape", "axis", "keepdims", "strides_bytes", "second_strides_bytes", "strategy", "cluster", "block_threads")
)


class BuildTarget(NamedTuple):
    """The GPUs that kernels are compiled for.

    Attributes
    ----------
    architecture : str
        The architecture, e.g. ``"sm_90"``.
    output : {"cubin", "ptx"}
        What to compile to: machine code, or PTX for a simulated device.
    """

    architecture: str
    output: Output = "cubin"

    @property
    def compute_capability(self) -> tuple[int, int]:
        """Major and minor."""
        return capability_of(self.architecture)

    @classmethod
    def of_context(cls, context: Context | None = None) -> BuildTarget:
        """Return the GPU of a context as a target; by default of the current context, else the primary one of device 0.

        Raises
        ------
        NoDriverError
            If there is no driver or no GPU.
        """
        context = Context.of(context)
        return cls(context.device.architecture, "ptx" if binding.selected().image == "ptx" else "cubin")

    @classmethod
    def of_architecture(cls, architecture: str) -> BuildTarget:
        """Return the GPUs of an architecture, spelled like ``"sm_90"``, as a target; this machine needs no GPU.

        Raises
        ------
        TypeError, ValueError
            If the architecture is not spelled like ``"sm_90"``.
        UnsupportedError
            If it is older than compute capability 7.5, which the kernels need.
        """
        capability_of(architecture)
        return cls(architecture)


def capability_of(architecture: str) -> tuple[int, int]:
    """Return the compute capability of an architecture; raises what `BuildTarget.of_architecture` raises."""
    if not isinstance(architecture, str):
        raise TypeError(f"an architecture is a string, not {shown(architecture)}")
    found = re.fullmatch(r"sm_(\d{1,2})(\d)", architecture)
    if found is None:
        raise ValueError(f'a GPU\'s architecture is spelled like "sm_90", not {architecture!r}')
    capability = int(found[1]), int(found[2])
    if capability < OLDEST_CAPABILITY:
        raise UnsupportedError(f"the kernels need compute capability 7.5 or newer, and {architecture} is older")
    return capability


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
    op: str | Reduction | RowOperation = "sum",
    *,
    dtype: Any,
    segmented: bool = False,
    target: BuildTarget | Context | None = None,
    into: str | os.PathLike[str] | None = None,
    **options: Any,
) -> tuple[PrebuiltKernel, ...]:
    """Compile the whole family of an operator and a type now, so that no call on a GPU compiles anything.

    These are the kernels that arrays of any shape, strides and address meet, on any GPU of the architecture: some 25.
    Kernels are compiled in parallel threads. At run time a process loads them from the directory that the environment
    variable ``LOWLEVEL_REDUCE_PREBUILT_DIR`` names, whichever compiler it has, and even without one. Prebuilt kernels
    belong to this version of the library: another version does not find them and compiles its own.

    Parameters
    ----------
    op : str, Operator or RowOperation
        The operator, or its name; or a row operation, or the name of a built-in one, as ``"rms_norm"``: with weights
        and biases of the elements' type, and targets of int64. Options go with operators alone.
    dtype : dtype
        Type of the elements.
    segmented : bool
        Instead, compile the kernels of `segmented_reduce`, which serve any number of segments and elements.
    target : BuildTarget or Context, optional
        The GPUs to compile for; by default that of the current context, else device 0.
    into : path, optional
        A directory to store the kernels in; it is created if needed, and kernels in it are kept. Without it, they go to
        this user's cache.
    **options
        As for `lowlevel_reduce.plan`: `accumulate`, `result_dtype`, `where`, `initial`, `nan`, `ddof`, `last`, `map`.

    Returns
    -------
    tuple of PrebuiltKernel
        Each kernel once.

    Raises
    ------
    TypeError, ValueError, UnsupportedError
        As `lowlevel_reduce.plan`; or if `into` is not a path.
    CompileError, NoCompilerError, CacheError
        If a kernel cannot be compiled or stored, also in the cache, or if that is off and no directory is given.
    NoDriverError
        If there is neither a target nor a GPU.
    """
    of_a_plan = ", ".join(sorted(_OF_A_PLAN & options.keys()))
    if of_a_plan:
        raise TypeError(f"the kernels of all shapes are compiled: {of_a_plan} goes with a plan")
    if not isinstance(target, BuildTarget):
        target = BuildTarget.of_context(target)
    return build_kernels(kernels_of_calls(op, dtype, target, segmented=segmented, **options), target, into=into)


def kernels_of_calls(
    op: str | Reduction | RowOperation, dtype: Any, target: BuildTarget, *, segmented: bool = False, **options: Any
) -> tuple[KernelSource, ...]:
    """Return the kernels that `prebuild` compiles, each once; raises what it raises for these arguments."""
    if isinstance(op, RowOperation) or (isinstance(op, str) and op in BUILT_IN):
        if segmented or options:
            raise TypeError(
                f"a row operation is compiled for all its calls, without {', '.join(options) or 'segments'}"
            )
        return row_family(op, dtype=dtype)
    if segmented:
        return kernels_of_segments(op, dtype=dtype, **options)
    return family_of(op, dtype=dtype, compute_capability=target.compute_capability, **options)


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
        CacheError if no directory is given and the cache is off or cannot be written.
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
            built = tuple(future.result() for future in futures)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    cache = open_cache() if directory is None else None
    if cache is not None:  # what a call need not mind is what this was for
        cache.check_kept()
    return built


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
