"""Contexts: borrowed, retained, created or green, and pushed for the length of a block."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from lowlevel_reduce.arguments import handle_of, instance, integer
from lowlevel_reduce.driver import binding, meanwhile, turns
from lowlevel_reduce.driver.current import Pushed, current_handle
from lowlevel_reduce.driver.device import Device
from lowlevel_reduce.driver.green import create_green, green_of_current
from lowlevel_reduce.driver.handle import Handle, Life, Release, User
from lowlevel_reduce.driver.held import Held, for_a_while
from lowlevel_reduce.driver.turns import Reason
from lowlevel_reduce.errors import CudaError, ReduceError, UnsupportedError

__all__ = ["Context"]


class Context(Handle):
    """A CUDA context. Make one with `current`, `primary`, `create`, `green` or `from_handle`.

    Making one never changes which context is current; `pushed` does, for the length of a ``with`` block. A ``with``
    block over the context itself closes it, as with every handle.

    Close what was made in a context before the context. What is still open ends with a context of `create` or `green`;
    with a primary context, it ends when nobody retains that any more, except for graphs.
    """

    __slots__ = ("_device", "_ends_here", "_green", "_identity", "_lender", "_life", "_primary")

    _noun = "context"
    _makers = ("current", "primary", "create", "green", "from_handle")

    _device: Device | None
    _ends_here: bool
    _green: int | None
    _identity: int
    _lender: Callable[[], Context | None]
    _life: Life
    _primary: int | None

    @classmethod
    def current(cls) -> Context | None:
        """Return the calling thread's current context, borrowed, or None."""
        handle = current_handle()
        return cls.from_handle(handle) if handle else None

    @classmethod
    def current_or_primary(cls, device: Device | int = 0) -> Context:
        """Return the current context, borrowed; without one, the primary context of `device`, retained until closed."""
        return cls.current() or cls.primary(device)

    @classmethod
    def of(cls, context: Context | None) -> Context:
        """Return `context`, or for None what `current_or_primary` returns; raises TypeError if it is no Context."""
        if context is None:
            return cls.current_or_primary()
        instance(context, cls, "the context")
        return context

    @classmethod
    def primary(cls, device: Device | int = 0) -> Context:
        """Retain the primary context of `device`, the one that the CUDA runtime uses; ``close()`` releases it."""
        with meanwhile.begun():
            device = Device.of(device)
            held, life = Held(binding.selected()), Life()
            release = functools.partial(_release_primary, held, life, device.handle)
            self = cls._of(None, (held, release), None, life, device)
            self._become(int(held.take("cuDevicePrimaryCtxRetain", device.handle)))
        return self

    @classmethod
    def create(cls, device: Device | int = 0, *, flags: int = 0) -> Context:
        """Create a new context on `device`, current on no thread; ``close()`` destroys it and what was made in it.

        Parameters
        ----------
        device : Device or int
            Where.
        flags : int
            Bits of ``CUctx_flags``, for example how a thread waits.
        """
        device, flags = Device.of(device), integer(flags, "flags is an integer")
        if not 0 <= flags < 1 << 32:
            raise ValueError(f"flags has 32 bits, and is not negative: {flags}")
        held = Held(binding.selected())
        self = cls._ending("cuCtxDestroy", held, device)
        try:
            handle = int(_create(held, flags, device.handle))
            popped = int(binding.call("cuCtxPopCurrent"))
        except BaseException:  # at once, for it may be current
            if held.handle is not None:
                held.give_back("cuCtxDestroy", held.handle)
            raise
        if popped != handle:
            raise ReduceError(f"cuCtxCreate made {handle:#x}, but {popped:#x} was current after it")
        self._begin(handle)
        return self

    @classmethod
    def green(cls, device: Device | int, sm_count: int) -> Context:
        """Create a green context: a share of the multiprocessors of `device`, and the memory of its primary context.

        It is current on no thread when it is made, and may be current on only one thread at a time. ``close()``
        destroys it and what was made in it. The driver retains the primary context for as long as the green one lives.

        Parameters
        ----------
        device : Device or int
            Where.
        sm_count : int
            The minimum number of multiprocessors. The driver rounds it up to what it can set apart (on compute
            capability 9.0 to a multiple of 8): see `multiprocessor_count`. The shares of two calls may overlap.

        Raises
        ------
        TypeError, ValueError
            If `sm_count` is not a positive integer.
        UnsupportedError
            If the device has fewer multiprocessors or no green contexts, or the driver is older than CUDA 12.4.
        """
        device = Device.of(device)
        held = Held(binding.selected())
        self = cls._ending("cuGreenCtxDestroy", held, device)
        self._green, handle = create_green(device, sm_count, held)
        self._begin(handle)
        return self

    @classmethod
    def from_handle(cls, handle: int, owner: Any = None) -> Context:
        """Borrow somebody's ``CUcontext``; `owner` is kept alive, and the context is never destroyed here.

        If the context was made by `create` or `green`, closing the object that these returned also ends what was made
        through this one.
        """
        handle = handle_of(handle, "context")
        if not handle:
            raise ValueError("a null handle is no context")
        lender = _contexts_of_ours().get(handle)
        if lender is None or lender._handle != handle:
            return cls._of(handle, None, owner, Life(borrowed=True), None)
        self = cls._of(handle, None, owner, lender._life, lender._device)
        self._ends_here, self._green, self._lender = True, lender._green, weakref.ref(lender)
        return self

    @classmethod
    def _ending(cls, name: str, held: Held, device: Device) -> Context:
        """Own a context that is about to be made, and whose end is the driver's call `name` of what is held."""
        life = Life()
        self = cls._of(None, (held, functools.partial(_end, held, life, name)), None, life, device)
        self._ends_here = True
        return self

    def _become(self, handle: int) -> None:
        self._handle = self._identity = handle

    def _begin(self, handle: int) -> None:
        self._become(handle)
        _contexts_of_ours()[handle] = self

    @classmethod
    def _of(cls, handle: int | None, release: Any, owner: Any, life: Life, device: Device | None) -> Context:
        self = cls.__new__(cls)
        self._life = life
        self._ends_here = False
        self._identity = handle or 0
        self._device = device
        self._green = None if release is None else 0  # of a borrowed one the driver is asked, when it matters
        self._primary = None
        self._lender = _nobody
        self._adopt(handle, release, owner)
        return self

    @property
    def handle(self) -> int:
        """As of every handle; a ValueError also if another object has ended it, as a driver may crash on it then."""
        if self._handle is None or turns.exiting:
            return super().handle
        if self._life.over:
            raise ValueError(f"the context {self._handle:#x} has ended")
        return self._handle

    @property
    def life(self) -> Life:
        """State that says whether the context still lives; the release of everything made in it checks this first."""
        return self._life

    @property
    def has_ended(self) -> bool:
        """Whether it is gone, whoever ended it; the driver is asked for a borrowed one in which something was made."""
        return self._life.ended(binding.selected(), self._identity)

    @property
    def holder(self) -> Context:
        """The context with which things made in this one end: this one, or for a borrowed green one the primary one.

        Ask for it before anything is made: it notes the context's number, by which its end is recognised later.
        """
        # The driver ends neither streams nor memory with a green context. One that we own ends them itself.
        holder = self if self._ends_here or not self.is_green else Context.from_handle(self._primary_handle())
        holder._life.note(binding.selected(), holder.handle)
        _ = holder.home  # which is asked for once
        return holder

    def serve(self, user: User) -> None:
        """Tell whoever ends this context of a user, as `Handle.serve` does: nobody, if that is not this process."""
        if not self.is_borrowed:
            super().serve(user)
        elif (lender := self._lender()) is not None:
            lender.serve(user)

    def _keep(self, reason: Reason) -> None:
        if not self.is_borrowed:  # else nobody is served here
            self._life.closed = reason  # users may keep an object that borrows from this one, and not this one

    def releasing(self, name: str, held: Held, *, outlives: bool = False, inside: bool = False) -> tuple[Held, Release]:
        """Return what is about to be made in this context, a `holder`, and its release, for `Handle._adopt`.

        Parameters
        ----------
        name, held : str, Held
            The driver's call that releases it, and what that is given.
        outlives : bool
            Whether it ends with no context, whichever kind: graphs do not.
        inside : bool
            Whether the call needs this context to be current.
        """
        leaves = self._ends_here and (outlives or bool(self._green))
        within = self.home if inside else None
        return held, Release(self._life, self.handle, name, held, leaves=leaves, asks=not outlives, within=within)

    @property
    def home(self) -> int:
        """The context that owns this one's memory: itself, or for a green one made here the primary one.

        It is made current to release memory, on whichever thread the garbage collector runs; a green context cannot be,
        since it may be current on only one thread at a time.
        """
        return self._primary_handle() if self._green else self.handle

    @property
    def id(self) -> int:
        """The driver's number of this context, never used again in this process, unlike its handle."""
        return int(binding.call("cuCtxGetId", self.handle))

    @property
    def device(self) -> Device:
        """The device of this context."""
        if self._device is None:
            with self.pushed():
                # A CUdevice is the device's ordinal.
                self._device = Device(int(binding.call("cuCtxGetDevice")))
        return self._device

    @property
    def multiprocessor_count(self) -> int:
        """Multiprocessors that this context may use: fewer than the device's in a green context."""
        handle, kind = self.handle, binding.native().CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
        try:
            return int(binding.call("cuCtxGetDevResource", handle, kind).sm.smCount)
        except UnsupportedError:  # before CUDA 12.4 there was neither the call nor a green context
            return self.device.multiprocessor_count
        except CudaError as error:  # the device has no resources to split (old, or under MPS): the context has it all
            if error.name not in ("CUDA_ERROR_NOT_SUPPORTED", "CUDA_ERROR_INVALID_RESOURCE_TYPE"):
                raise
            return self.device.multiprocessor_count

    @property
    def green_handle(self) -> int:
        """The ``CUgreenCtx`` that this context stands for; 0 for any other context."""
        if self._green is None:
            with self.pushed():
                self._green = green_of_current()
        return self._green

    @property
    def is_green(self) -> bool:
        """Whether it is a green context, no matter who made it."""
        return bool(self.green_handle)

    def reaches(self, context_handle: int) -> bool:
        """Tell whether memory of the context `context_handle` can be used in this one without a copy.

        That is so for the same context and, if this is a green one, for the primary context of its device, whose memory
        it shares.
        """
        if context_handle == self.handle:
            return True
        return self.is_green and context_handle == self._primary_handle()

    def _primary_handle(self) -> int:
        if self._primary is None:
            # A green context keeps the primary one alive, so retaining it for a moment creates and ends nothing.
            device = self.device.handle
            taking, giving = ("cuDevicePrimaryCtxRetain", device), ("cuDevicePrimaryCtxRelease", device)
            self._primary = for_a_while(binding.selected(), taking, lambda _: giving, lambda retained: retained.handle)
        return self._primary

    def check_priority(self, priority: int) -> None:
        """Refuse a priority that no stream and no launch of this context has.

        Raises
        ------
        ValueError
            Naming the device's range; the driver would silently clamp the priority to it.
        """
        integer(priority, "a priority is an integer")
        with self.pushed():
            least, greatest = binding.call("cuCtxGetStreamPriorityRange")
        if not greatest <= priority <= least:
            raise ValueError(f"priority {priority} is outside this device's range, {greatest} (greatest) to {least}")

    def synchronize(self) -> None:
        """Block until all work of this context is done."""
        with self.pushed():
            binding.call("cuCtxSynchronize")

    def pushed(self) -> Pushed:
        """Make this context the calling thread's current one for the length of a ``with`` block.

        What was current before is current afterwards, also when the block raises. The block keeps this object alive.
        Only where an exception of a signal's handler comes as the end of the outermost such block begins, before its
        first line, this context stays current until the traceback goes, as it does at the end of an ``except`` clause.

        Raises
        ------
        ReduceError
            At the end, if the block left the context stack unbalanced, or ends after one around it; the stack is
            restored first. At the beginning, if what this returned is entered while a block of it is in progress.
        """
        return Pushed(self.handle, self)

    def __repr__(self) -> str:
        described = super().__repr__()
        return f"{described[:-1]} ended>" if self._life.over and not self.is_closed else described

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Context):
            return NotImplemented
        return self is other or (self._handle is not None and self._handle == other._handle)

    def __hash__(self) -> int:
        return hash((Context, self._identity))  # not the handle: a hash must outlive close()


def _nobody() -> None:
    """Return nobody, who lent a context that is not ours."""


def _contexts_of_ours() -> weakref.WeakValueDictionary[int, Context]:
    """Return the open contexts that end with an object of this process, by their handles."""
    found: weakref.WeakValueDictionary[int, Context] = binding.selected().kept.setdefault(
        "contexts of ours", weakref.WeakValueDictionary()
    )
    return found


def _create(held: Held, flags: int, device: int) -> Any:
    import cuda.bindings  # noqa: PLC0415 - creating a context is rare

    # Bindings 13 put the creation parameters first; 12.9 takes only flags and device.
    parameters = () if int(cuda.bindings.__version__.split(".", 1)[0]) < 13 else (None,)
    return held.take("cuCtxCreate", *parameters, flags, device)


def _end(held: Held, life: Life, name: str) -> None:
    # Not after an interrupt: what the context leaves is released when this is tried again.
    try:
        life.end()
    except CudaError:
        _end_now(held, life, name)
        raise
    _end_now(held, life, name)


def _end_now(held: Held, life: Life, name: str) -> None:
    life.over = True
    held.give_back(name, held.handle)


def _release_primary(held: Held, life: Life, device: int) -> None:
    # Others may retain it too, as the CUDA runtime does; then it lives on, and what was made in it is still to release,
    # unless they have ended it by then: from now on it is as if it were borrowed. So it is where the driver refuses to
    # say, or to let go of it. Its number is asked for while it surely lives.
    implementation = held.implementation
    life.borrowed = True
    try:
        life.note(implementation, held.handle)
    except CudaError:
        held.give_back("cuDevicePrimaryCtxRelease", device)
        raise
    held.give_back("cuDevicePrimaryCtxRelease", device)
    _, active = implementation.call("cuDevicePrimaryCtxGetState", device)
    life.over = not active
