"""docs/reliability.md has several writers: each replaces its own section, between marks, and leaves the others'."""

from __future__ import annotations

from pathlib import Path

__all__ = ["write_section"]

_HEAD = """\
# Reliability

What is known of the tests themselves: how much of what could be wrong with the code they would see, and what has been
tried to break it.
"""


def write_section(page: Path, name: str, section: str) -> None:
    """Write a section of the page in the place of the one of that name; behind all others, if there is none yet."""
    text = page.read_text(encoding="utf-8") if page.exists() else _HEAD
    begin, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->\n"
    if begin in text:
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
    else:
        before, after = f"{text}\n", ""
    page.write_text(f"{before}{begin}{section}{end}{after}", encoding="utf-8")
