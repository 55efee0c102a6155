"""The suites of whole arrays, types, axes, operators and segments: device time, beside every competitor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.figures import Row
from benchmarks.problems import Case
from benchmarks.suites.setting import Setting
from lowlevel_reduce.dtypes import ELEMENT_TYPES

__all__ = ["axes", "flat", "segments", "stats", "types"]

ODD_LENGTHS = (1000, 99_999, 1_000_003, 12_345_678, 100_000_000, 999_999_999)
COMPILED_LENGTHS = (1 << 20, 1 << 28)
"""Where torch.compile and Numba are timed too: a compile takes seconds."""

TYPE_LENGTHS = (1 << 20, 1 << 24, 1 << 28, 1 << 30)
COLUMNS = (2, 3, 5, 8, 10, 12, 14, 16, 18, 20, 23, 26)
"""Powers of two of columns, of 2^28 elements."""


def flat(setting: Setting) -> Iterator[Row]:
    """Yield the sums of float32 arrays from 2^8 to 2^31 elements."""
    lengths = sorted([*(1 << power for power in range(8, 32)), *ODD_LENGTHS])
    lengths = [256, 1 << 16, 1 << 20, 100_000_000] if setting.quick else lengths
    peers = setting.peers("CUB", "cuda.compute", "CuPy", "torch", "Triton")
    extra = setting.peers("torch.compile", "Numba")
    cases = [Case("sum", (n,)) for n in lengths]
    _prefetch(setting, cases[:1])
    for case in cases:
        all_peers = [*peers, *extra] if case.size in COMPILED_LENGTHS else peers
        yield setting.harness.compare(name_of(case.size), case, all_peers)


def types(setting: Setting) -> Iterator[Row]:
    """Yield the sums of every type."""
    peers = setting.peers("CUB", "CuPy", "torch")
    names = [entry.name for entry in ELEMENT_TYPES]
    names = ["float32", "float16", "uint8"] if setting.quick else names
    lengths = setting.some(TYPE_LENGTHS, (0, 2))
    _prefetch(setting, [Case("sum", (1,), dtype=name) for name in names])
    for name in names:
        for n in lengths:
            yield setting.harness.compare(f"{name} {name_of(n)}", Case("sum", (n,), dtype=name), peers)


def axes(setting: Setting) -> Iterator[Row]:
    """Yield the sums along either axis of matrices of 2^28 elements, of others, and along middle axes."""
    matrices = [(1 << 28 - power, 1 << power) for power in setting.some(COLUMNS, (0, 3))]
    if not setting.quick:
        matrices += [(1343693, 99), (100_000, 1000), (4096, 4096), (256, 256)]
    cases = [Case("sum", shape, axis) for axis in (1, 0) for shape in matrices]
    cases += [Case("sum", shape, 1) for shape in ((64, 4096, 512), (4096, 64, 512), (4, 1 << 20, 16))]
    yield from _compared(setting, cases, compiled=[Case("sum", (1 << 20, 256), 1), Case("sum", (1 << 20, 256), 0)])


def stats(setting: Setting) -> Iterator[Row]:
    """Yield argmax, mean_var, logsumexp, norm and minmax."""
    square, wide, narrow = (16384, 16384), (1 << 20, 256), (1 << 22, 32)
    cases = [Case("argmax", (n,)) for n in (1 << 20, 100_000_000, 1 << 28)]
    cases += [Case("argmax", wide, 1)]
    cases += [Case("mean_var", shape, 1) for shape in (square, wide, narrow)]
    cases += [Case("mean_var", (1 << 28,))]
    cases += [Case("logsumexp", shape, 1) for shape in (square, narrow)]
    cases += [Case("logsumexp", (1 << 28,)), Case("norm2", (1 << 28,)), Case("minmax", (1 << 28,))]
    cases += [Case("max", square, 1), Case("max", (1 << 28,))]
    cases = [cases[i] for i in (2, 5, 8)] if setting.quick else cases
    compiled = [Case("logsumexp", square, 1), Case("mean_var", wide, 1)]
    yield from _compared(setting, cases, compiled=compiled)


def segments(setting: Setting) -> Iterator[Row]:
    """Yield the sums of segments by their borders: many, few, tiny, and mixed ones."""
    rng = np.random.default_rng(3)
    lengths = {
        "1,000,000 of about 100": rng.poisson(100, 1_000_000),
        "8 of 2^25": np.full(8, 1 << 25),
        "10,000,000 of about 4": rng.poisson(4, 10_000_000),
        "mixed": np.concatenate([rng.poisson(3, 1_000_000), np.full(4, 1 << 24), rng.poisson(1000, 50_000)]),
    }
    peers = setting.peers("CUB", "torch")
    for name in list(lengths)[: 1 if setting.quick else None]:
        offsets = np.concatenate([[0], np.cumsum(lengths[name])]).astype(np.int64)
        yield setting.harness.compare(name, Case("sum", (int(offsets[-1]),), offsets=offsets), peers)


def _compared(setting: Setting, cases: Sequence[Case], *, compiled: Sequence[Case]) -> Iterator[Row]:
    peers = setting.peers("CUB", "CuPy", "torch")
    extra = [] if setting.quick else setting.peers("torch.compile")
    _prefetch(setting, cases)
    for case in cases:
        shape = " x ".join(name_of(size) for size in case.shape)
        where = "" if case.axis is None else f", axis {case.axis}"
        yield setting.harness.compare(
            f"{case.op} {shape}{where}", case, [*peers, *extra] if case in compiled else peers
        )


def _prefetch(setting: Setting, cases: Sequence[Case]) -> None:
    """Begin to compile what CUB needs."""
    cub = setting.peer("CUB")
    if cub is not None:
        cub.prefetch(cases)


def name_of(n: int) -> str:
    """Return a number as people write it: ``2^20``, ``1,000,003``."""
    power = n.bit_length() - 1
    return f"2^{power}" if n == 1 << power and n >= 256 else f"{n:,}"
