"""What ranks must agree about, and how they find out: each tells all others before any of them reduces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from lowlevel_reduce.arguments import shown
from lowlevel_reduce.errors import GroupError
from lowlevel_reduce.parts.fold import TAG_BYTES

if TYPE_CHECKING:
    from lowlevel_reduce.parts.groups import Group

__all__ = ["MARK_END", "MESSAGE_BYTES", "OWN", "agree", "agreed", "another_call", "digest", "together"]

_T = TypeVar("_T")

MESSAGE_BYTES = 4096
"""What each rank sends: engines gather the same number of bytes from every rank."""

OWN = "~"
"""What names of facts begin with that are each rank's own, and not compared."""

MARK_END = b"\x01"
"""What every digest ends with."""

_MOST_SHOWN = 240
"""Letters of one value that are sent; what differs behind them shows in its digest."""


def digest(facts: dict[str, Any]) -> bytes:
    """Return what stands for the facts in every share: 16 bytes, never all of them 255."""
    text = json.dumps(facts, sort_keys=True, default=str).encode()
    return hashlib.blake2b(text, digest_size=TAG_BYTES - len(MARK_END)).digest() + MARK_END


def another_call(rank: int) -> GroupError:
    """Return what is raised where another rank's bytes are not of the call that this one makes."""
    return GroupError(
        f"rank {rank} makes another reduction than this rank: all make the same calls in the same order, with a length "
        "or without"
    )


def agree(group: Group, facts: dict[str, Any], error: BaseException | None = None) -> list[dict[str, str]]:
    """Tell all ranks what this one is about to do, or that it cannot, and return what each of them told.

    Parameters
    ----------
    group : Group
        The ranks, all of which call this.
    facts : dict
        By the name of each: what must be the same on every rank. Values are compared as text.
    error : BaseException, optional
        Why this rank cannot take part.

    Raises
    ------
    BaseException
        `error`, once all ranks have been told.
    GroupError
        If another rank could not take part, or the facts are not the same on all: alike on every rank.
    """
    told = {"error": f"{type(error).__name__}: {error}"} if error is not None else {k: str(v) for k, v in facts.items()}
    short = {name: text if len(text) <= _MOST_SHOWN else _shortened(text) for name, text in told.items()}
    message = json.dumps(short).encode()
    if len(message) > MESSAGE_BYTES:  # of letters that JSON writes as six each
        message = json.dumps({name: ascii(text)[:60] + _mark(text) for name, text in short.items()}).encode()
    messages = group.exchange(message.ljust(MESSAGE_BYTES))
    if error is not None:
        raise error
    found = [_facts_of(rank, each) for rank, each in enumerate(messages)]
    failed = [(rank, each["error"]) for rank, each in enumerate(found) if "error" in each]
    if failed:
        raise GroupError("; ".join(f"rank {rank} cannot take part: {text}" for rank, text in failed[:3]))
    for name in (each for each in found[0] if not each.startswith(OWN)):
        for rank, each in enumerate(found):
            if each.get(name) != found[0][name]:
                raise GroupError(
                    f"the ranks disagree about the {name}: on rank 0 it is {found[0][name]}, "
                    f"on rank {rank} {shown(each.get(name))}"
                )
    return found


def together(group: Group, what: str, work: Callable[[], _T]) -> _T:
    """Do what may fail on one rank alone, and raise on every rank if it did; raises as `agree`."""
    error: Exception | None = None
    try:
        result = work()
    except Exception as caught:  # noqa: BLE001 - it is raised again, once all ranks have been told
        error = caught
    agree(group, {"stage": what}, error)
    return result


def agreed(group: Group, describe: Callable[[], tuple[dict[str, Any], _T]]) -> tuple[_T, list[dict[str, str]]]:
    """Describe what this rank is about to do; return what goes with the description, and what all ranks told.

    Raises as `agree`, also if they do not say the same.
    """
    error: Exception | None = None
    facts: dict[str, Any] = {}
    try:
        facts, result = describe()
    except Exception as caught:  # noqa: BLE001 - it is raised again, once all ranks have been told
        error = caught
    found = agree(group, facts, error)
    return result, found


def _facts_of(rank: int, message: bytes) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads(message.rstrip(b" "))
    except ValueError as error:  # a share of partials that has as many bytes
        raise another_call(rank) from error
    return found


def _shortened(text: str) -> str:
    return text[: _MOST_SHOWN - 40] + _mark(text)


def _mark(text: str) -> str:
    return f"... ({hashlib.blake2b(text.encode(errors='replace'), digest_size=8).hexdigest()})"
