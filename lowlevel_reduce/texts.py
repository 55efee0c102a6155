"""Checks of texts for a compiler, apart from other checks because the compiler layer does without NumPy."""

from __future__ import annotations

from typing import Any

__all__ = ["check_text"]


def check_text(text: Any, what: str) -> None:
    """Refuse a text that no compiler can be given; `what` names it in the message.

    Raises
    ------
    TypeError
        If it is not a string.
    ValueError
        If it holds a NUL, where the compiler would stop reading, or a lone surrogate, which has no encoding.
    """
    if not isinstance(text, str):
        raise TypeError(f"{what} is text, not {text!r}")
    for place, sign in enumerate(text if "\0" in text or not text.isascii() else ""):
        if sign == "\0" or "\ud800" <= sign <= "\udfff":
            held = "a NUL, where a compiler stops reading" if sign == "\0" else "half of a surrogate pair"
            raise ValueError(f"{what} holds {held}, at index {place}: leave {sign!r} out")
