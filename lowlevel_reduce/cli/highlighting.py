"""CUDA C++ in colours for a page: lines of a source with what changed marked, by Pygments, which the extra brings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["marked_html", "style_sheet"]

_LIGHT, _DARK = "default", "native"


def marked_html(lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return lines with their markers as HTML, in which each token has a class.

    Parameters
    ----------
    lines : sequence of (str, str)
        Marker and line, as `ladder.source_diff` returns them.
    """
    # Two texts: what is there, and what was. Each is read as a whole, since comments may go over several lines.
    there = iter(_highlighted([line for marker, line in lines if marker != "-"]))
    gone = iter(_highlighted([line for marker, line in lines if marker == "-"]))
    return [(marker, next(gone if marker == "-" else there)) for marker, _ in lines]


def style_sheet(selector: str) -> str:
    """Return the classes' colours below a selector, for light and for dark pages."""
    light, dark = (_styles(name, selector) for name in (_LIGHT, _DARK))
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}"


def _highlighted(lines: Sequence[str]) -> Iterator[str]:
    from pygments import lex  # noqa: PLC0415 - the extra may not be installed
    from pygments.formatters import HtmlFormatter  # noqa: PLC0415
    from pygments.lexers import CudaLexer  # noqa: PLC0415

    # The lexer would drop blank lines at the ends of a text, and lines would no longer stand beside their markers.
    tokens = lex("\n".join(lines), CudaLexer(stripnl=False, ensurenl=False))
    pieces: list[str] = []
    formatter = HtmlFormatter(nowrap=True)

    class _Out:
        def write(self, text: str) -> None:
            pieces.append(text)

    formatter.format(tokens, _Out())
    html = "".join(pieces).split("\n")
    return iter((html + [""] * len(lines))[: len(lines)])


def _styles(name: str, selector: str) -> str:
    from pygments.formatters import HtmlFormatter  # noqa: PLC0415

    text = HtmlFormatter(style=name, nobackground=True).get_style_defs(selector)
    kept = [line for line in text.split("\n") if line.startswith(f"{selector} .")]
    return "\n".join(line for line in kept if "background" not in line)
