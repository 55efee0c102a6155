"""Mutations of PTX texts: whatever is wrong with a text, the simulator runs it or raises an error of its own.

`of_small_kernels` and `of_a_launch` are plain functions of a seed and a count, and return a tally.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import random
import re
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

from lowlevel_reduce.errors import UnsupportedError
from lowlevel_reduce.simulator import SimulatedDriver, machine, ptx
from lowlevel_reduce.simulator.ptx.code import UnknownInstruction
from tests.fuzz.ptx_texts import HEAD, SMALL_KERNELS
from tests.fuzz.tally import Tally

__all__ = ["OWN_ERRORS", "SMALL_KERNELS", "mutated", "of_a_launch", "of_small_kernels"]

OWN_ERRORS = (UnknownInstruction, machine.KernelFault, UnsupportedError)
"""What the simulator may raise for a text; a driver's function may also return the driver's code."""

LIMIT = 1_500
"""Instructions of a mutated kernel: several times as many as the kernels have."""

_NUMBERS: tuple[str, ...] = (
    *("0", "1", "-1", "3", "32", "255", "4096", "2147483648", "4294967295", "18446744073709551615", "0f7FC00000"),
    *("1208925819614629174706176", "0d7FF0000000000000", "-9223372036854775808", "08", "0xFFFFFFFFFFFFFFFFF", "-"),
)
_TYPES: tuple[str, ...] = (
    *("b8", "u8", "b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64", "pred", "f16", "b128"),
    *("f16x2", "bf16", "e4m3x2", "tf32", "u16x2", "f32x2", "x7"),
)
_OPCODES: tuple[str, ...] = (
    *("add", "mul", "mov", "ld", "st", "setp", "selp", "cvt", "bra", "ret", "shfl", "vote", "atom", "red", "bar"),
    *("mad", "fma", "div", "rem", "popc", "call", "mbarrier", "cp", "prmt", "mma", "nosuch", "brx", "match", "elect"),
)
_NUMBER = re.compile(r"(?<![\w%$.])-?(?:0[xXfFdD][0-9a-fA-F]+|\d+)\b")
_REGISTER = re.compile(r"%(?:p|h|r|f|rd|fd)\d+")
_TYPE = re.compile(r"\.(?:pred|[busf]\d+(?:x\d)?)\b")
_LABEL = re.compile(r"\$?\b(?:L__BB\d+_\d+|L\d|loop|folded|done|wait)\b")

Mutation = Callable[[list[str], random.Random], None]


def _note(tally: Tally, what: str, attempt: Callable[[], str]) -> None:
    """Count an attempt, which returns the driver's code, "" if it ran."""
    try:
        code = attempt()
    except OWN_ERRORS as error:
        tally.refuse(error)
    except Exception as error:  # noqa: BLE001 - what is looked for
        where = traceback.extract_tb(error.__traceback__)[-1]
        tally.tried += 1
        tally.lose(f"{what}: {type(error).__name__} in {where.name}: {error}")
    else:
        if code:
            tally.refuse(code)
        else:
            tally.accept()


def mutated(text: str, draw: random.Random) -> str:
    """Return a text with one to three mutations of its lines and tokens."""
    lines = text.splitlines()
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        draw.choice(_MUTATIONS)(lines, draw)
    return "\n".join(lines) + "\n"


def _place(lines: list[str], draw: random.Random) -> int:
    """Return the number of a line that is code."""
    places = [i for i, line in enumerate(lines) if line.strip() and not line.lstrip().startswith(("//", ".target"))]
    return draw.choice(places or [0])


def _delete(lines: list[str], draw: random.Random) -> None:
    if len(lines) > 1:
        del lines[_place(lines, draw)]


def _duplicate(lines: list[str], draw: random.Random) -> None:
    place = _place(lines, draw)
    lines.insert(_place(lines, draw), lines[place])


def _exchange(lines: list[str], draw: random.Random) -> None:
    a, b = _place(lines, draw), _place(lines, draw)
    lines[a], lines[b] = lines[b], lines[a]


def _operands(change: Callable[[list[str], random.Random], None]) -> Mutation:
    """Return the mutation that changes the list of an instruction's operands."""

    def mutate(lines: list[str], draw: random.Random) -> None:
        place = _place(lines, draw)
        head, space, rest = lines[place].rstrip().rstrip(";").partition(" ")
        parts = [part.strip() for part in rest.split(",")]
        change(parts, draw)
        lines[place] = f"{head}{space}{', '.join(parts)};"

    return mutate


def _swap(parts: list[str], draw: random.Random) -> None:
    draw.shuffle(parts)


def _drop(parts: list[str], draw: random.Random) -> None:
    del parts[draw.randrange(len(parts))]


def _add(parts: list[str], draw: random.Random) -> None:
    parts.insert(
        draw.randrange(len(parts) + 1), draw.choice(("%r1", "%p1", "%rd1", "7", "{%r1, %r2}", "[%rd1]", "%r1|%p1"))
    )


def _tokens(pattern: re.Pattern[str], replacement: Callable[[str, random.Random], str]) -> Mutation:
    """Return the mutation that replaces one token."""

    def mutate(lines: list[str], draw: random.Random) -> None:
        found = [(i, match) for i, line in enumerate(lines) for match in pattern.finditer(line)]
        found = [(i, match) for i, match in found if not lines[i].startswith((".version", ".target", ".address"))]
        if found:
            i, match = draw.choice(found)
            lines[i] = lines[i][: match.start()] + replacement(match[0], draw) + lines[i][match.end() :]

    return mutate


def _register(old: str, draw: random.Random) -> str:
    name, number = re.sub(r"\d+", "", old), draw.choice((0, 1, 2, 3, 5, 99, 10**9))
    return draw.choice(
        (f"{name}{number}", f"{name}{number}", f"%{draw.choice(('p', 'h', 'r', 'f', 'rd', 'fd'))}1", "_", "!%p1")
    )


def _characters(lines: list[str], draw: random.Random) -> None:
    place = _place(lines, draw)
    line, at = lines[place], draw.randrange(len(lines[place]) + 1)
    lines[place] = (
        line[:at] + draw.choice(("", ";", "{", "}", "[", "]", ".", ",", "@", ":", "<", "\x0b")) + line[at + 1 :]
    )


def _guard(lines: list[str], draw: random.Random) -> None:
    place = _place(lines, draw)
    lines[place] = draw.choice(("@%p1 ", "@!%p0 ", "@%p77 ", "@%r1 ", "@", "@! ")) + lines[place].lstrip(
        "@!%p0123456789 "
    )


def _opcode(lines: list[str], draw: random.Random) -> None:
    place = _place(lines, draw)
    lines[place] = re.sub(r"^(\s*(?:@!?%p\d+\s+)?)\w+", lambda found: found[1] + draw.choice(_OPCODES), lines[place])


def _modifiers(lines: list[str], draw: random.Random) -> None:
    place = _place(lines, draw)
    head, space, rest = lines[place].partition(" ")
    parts = head.split(".")
    if draw.random() < 0.5 and len(parts) > 1:
        del parts[draw.randrange(1, len(parts))]
    else:
        parts.insert(
            draw.randrange(1, len(parts) + 1),
            draw.choice(("sync", "v2", "v4", "shared", "async", "gpu", "sat", "cc", "wide")),
        )
    lines[place] = f"{'.'.join(parts)}{space}{rest}"


def _number(_: str, draw: random.Random) -> str:
    return draw.choice(_NUMBERS)


_MUTATIONS: tuple[Mutation, ...] = (
    *(_delete, _duplicate, _exchange, _characters, _guard, _opcode, _modifiers),
    *(_operands(_swap), _operands(_drop), _operands(_add)),
    *(_tokens(_REGISTER, _register), _tokens(_NUMBER, _number)),
    _tokens(_TYPE, lambda _, draw: f".{draw.choice(_TYPES)}"),
    _tokens(_LABEL, lambda _, draw: draw.choice(("$loop", "L1", "nowhere", "k", "$done"))),
)


class _Device:
    """A simulated device with two arrays, for kernels that take these and a number."""

    def __init__(self, seed: int) -> None:
        self.driver = SimulatedDriver("B200", seed=seed, instructions=LIMIT)
        self._good(self.driver.cuInit(0))
        context = self._good(self.driver.cuDevicePrimaryCtxRetain(0))
        self._good(self.driver.cuCtxSetCurrent(context))
        self._arrays = [self._good(self.driver.cuMemAlloc(1024)) for _ in range(2)]
        # Room for parameters of any size, and for more of them than there are.
        self._room = [ctypes.create_string_buffer(1 << 15) for _ in range(3)]
        addresses = [ctypes.addressof(room) for room in self._room]
        self._table = (ctypes.c_void_p * 4096)(*(addresses[min(i, 2)] for i in range(4096)))
        for room, value in zip(self._room, [*map(int, self._arrays), 96], strict=True):
            ctypes.memmove(room, value.to_bytes(8, "little"), 8)

    @staticmethod
    def _good(answer: Any) -> Any:
        code, *values = answer
        assert not code, code
        return values[0] if values else None

    def run(self, text: str, threads: int) -> str:
        """Load a text, launch its kernel, and unload it; return the driver's code, "" if all was right."""
        driver = self.driver
        for array in self._arrays:
            self._good(driver.cuMemsetD8Async(array, 0, 1024, 0))
        code, library = driver.cuLibraryLoadData(text.encode(), None, None, 0, None, None, 0)
        if code:
            return str(code.name)
        try:
            code, kernel = driver.cuLibraryGetKernel(library, b"k")
            if code:
                return str(code.name)
            config = cu.CUlaunchConfig()
            config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimY = config.blockDimZ = 1
            config.blockDimX, config.sharedMemBytes = threads, 256
            (code,) = driver.cuLaunchKernelEx(config, cu.CUfunction(int(kernel)), ctypes.addressof(self._table), 0)
            return str(code.name) if code else ""
        finally:
            self._good(driver.cuLibraryUnload(library))

    def contents(self) -> bytes:
        """Return what the arrays hold."""
        found = ctypes.create_string_buffer(2048)
        for i, array in enumerate(self._arrays):
            self._good(self.driver.cuMemcpyDtoHAsync(ctypes.addressof(found) + 1024 * i, array, 1024, 0))
        return found.raw


def of_small_kernels(seed: int, count: int) -> Tally:
    """Mutate kernels of `SMALL_KERNELS` that often, and run each text on one simulated device.

    Every fifty mutations the kernels as they are must give what they gave at first.

    Returns
    -------
    Tally
        Accepted are texts that ran, and refused those with an error or a code of the driver's.
    """
    device, tally = _Device(seed), Tally("mutated PTX", seed)
    right: dict[str, bytes] = {}

    def control(where: str) -> None:
        for name, (body, threads) in SMALL_KERNELS.items():
            code = device.run(HEAD + body, threads)
            if code or right.setdefault(name, device.contents()) != device.contents():
                tally.lose(f"{where}: kernel {name!r} as it is gives {code or 'another result'}")

    control("at first")
    for i in range(count):
        draw = random.Random(f"{seed} {i}")
        name = draw.choice(list(SMALL_KERNELS))
        body, threads = SMALL_KERNELS[name]
        text = mutated(HEAD + body, draw)
        _note(tally, f"seed {seed}, mutation {i} of {name!r}", functools.partial(device.run, text, threads))
        if (i + 1) % 50 == 0:
            control(f"seed {seed}, after mutation {i}")
    control("at the end")
    return tally


def of_a_launch(text: str, launch: Any, memory: Any, seed: int, count: int) -> Tally:
    """Mutate the text of a kernel that is about to run, and run each text in its place, by the machine alone.

    Parameters
    ----------
    text : str
        The module.
    launch, memory : Launch, GlobalMemory
        What the machine was to run; the memory is afterwards as it was.
    seed, count : int
        What to draw, and how often.

    Returns
    -------
    Tally
        As `of_small_kernels` does.
    """
    tally, name = Tally("mutated PTX", seed), launch.kernel.name
    storages = [allocation.storage for allocation in memory._index.allocations if allocation.storage is not None]
    before = [(storage.data.copy(), storage.written.copy(), storage._complete) for storage in storages]

    def attempt(changed: str) -> str:
        kernel = ptx.parse(changed).kernels.get(name)
        if kernel is None or int(np.prod(launch.block)) > kernel.max_threads:
            return "no such launch"
        shared = kernel.static_shared_bytes + launch.dynamic_shared_bytes
        if shared > 1 << 18 or kernel.module_variables.keys() - (launch.addresses or {}).keys():
            return "no such launch"
        arguments = launch.arguments.ljust(kernel.parameter_bytes, b"\0")
        machine.run(
            dataclasses.replace(launch, kernel=kernel, arguments=arguments, instructions=LIMIT, trace=None), memory
        )
        return ""

    for i in range(count):
        draw = random.Random(f"{seed} {i}")
        _note(tally, f"seed {seed}, mutation {i} of {name}", lambda: attempt(mutated(text, draw)))  # noqa: B023
        for storage, (data, written, complete) in zip(storages, before, strict=True):
            storage.data[:], storage.written[:], storage._complete = data, written, complete
    return tally
