"""What mkdocs asks when it makes the site: pages from the repository's root, and links that lead out of docs/.

README.md and the others are written once, for the repository; here they become pages, and links between them and
docs/ are turned. A link to a file that is no page, such as a kernel, is to a copy of that file in the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
FROM_ROOT = {
    "README.md": "index.md",
    **{f"{name}.md": f"{name}.md" for name in ("CHANGELOG", "SECURITY", "CONTRIBUTING")},
}
"""Files of the repository's root, and the pages that they are."""

_LINK = re.compile(r"(!?\[[^\]]*\])\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCED = re.compile(r"(^ *```.*?^ *```)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages of the root, and the files of the repository that pages link to."""
    wanted: set[str] = set()
    for name, page in FROM_ROOT.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_turned(text, "", wanted)))
    for file in list(files.documentation_pages()):
        if file.src_uri not in FROM_ROOT.values():
            _turned(Path(file.abs_src_path or "").read_text(encoding="utf-8"), "docs", wanted)
    for name in sorted(wanted):
        files.append(File.generated(config, _copy_of(name), content=(ROOT / name).read_bytes()))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Turn the links of a page of docs/; those of the root are turned already."""
    return markdown if page.file.src_uri in FROM_ROOT.values() else _turned(markdown, "docs", set())


def _copy_of(name: str) -> str:
    # As text, which a browser shows; a page of that name would be rendered.
    return (
        f"files/{name}.txt" if name.endswith((".py", ".cu", ".cuh", ".md", ".jsonl", "Makefile")) else f"files/{name}"
    )


def _turned(text: str, folder: str, wanted: set[str]) -> str:
    """Return a page's text with the links of a file in `folder` as they are in the site; note what files they need."""

    def link(match: re.Match[str]) -> str:
        label, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        name = posixpath.normpath(posixpath.join(folder, target))
        if name in FROM_ROOT:
            return f"{label}({FROM_ROOT[name]}{anchor})"
        if name.startswith("docs/"):
            return f"{label}({name.removeprefix('docs/')}{anchor})"
        if (ROOT / name).is_file():
            wanted.add(name)
            return f"{label}({_copy_of(name)})"
        return label[1:-1] if (ROOT / name).is_dir() else match[0]

    parts = _FENCED.split(text)
    return "".join(part if k % 2 else _LINK.sub(link, part) for k, part in enumerate(parts))
