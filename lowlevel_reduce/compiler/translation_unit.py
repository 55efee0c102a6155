"""A translation unit of CUDA C++ with its options, and which options are none of a program's to choose."""

from __future__ import annotations

from dataclasses import dataclass, field

from lowlevel_reduce.texts import check_text

__all__ = ["Program"]

# Options that this layer decides, or through which a file that the cache key does not cover could enter a cubin: NVRTC
# passes over white space before an option, and macros could ask for a file where the sources do not show it.
_OURS = ("gpu-architecture", "arch", "std", "include", "pre-include", "I", "time", "pch", "create-pch", "use-pch")
_NOWHERE = ("options-file", "-optf", "##", "%:", "__h")


@dataclass(frozen=True)
class Program:
    """One translation unit of CUDA C++.

    Attributes
    ----------
    name : str
        Its name in errors and logs.
    source : str
        The text. It can include headers of ``cuda_src`` by ``#include "x.cuh"``; kernels are ``extern "C"``.
    options : tuple of str
        NVRTC options besides the library's own, one string each, e.g. ``("-fmad=false", "--maxrregcount=64")``.
    """

    name: str
    source: str
    options: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.options, tuple):
            raise TypeError(f"options are a tuple of strings, not {self.options!r}")
        for what, text in (("name", self.name), ("source", self.source), *(("option", each) for each in self.options)):
            check_text(text, f"a program's {what}")
        for option in self.options:
            if _is_refused(option):
                raise ValueError(
                    f"{option!r} is not a program's to choose: this layer sets it, or cannot cache what it does"
                )


def _is_refused(option: str) -> bool:
    begin = option.lstrip()
    name = begin.removeprefix("-").removeprefix("-")
    return (begin != name and name.startswith(_OURS)) or any(each in option for each in _NOWHERE)
