"""Every block of code in README.md and docs/ runs on a simulated GPU and prints what the page says, or says why not."""

import contextlib
import io
import os
import subprocess
import sys

import numpy as np
import pytest
from documented import PAGES, ROOT, Block, blocks, commands, matches

import lowlevel_reduce as lr

BLOCKS = {page: blocks(page) for page in PAGES}
WITH_PYTHON = [page for page, found in BLOCKS.items() if any(each.language == "python" for each in found)]
CONSOLES = [each for found in BLOCKS.values() for each in found if each.language == "console" and not each.reason]


def is_run(block):
    return block.language in ("python", "console") or block.is_output


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_says_why_not(page):
    for block in BLOCKS[page]:
        if block.language == "text":
            continue
        assert is_run(block) != bool(block.reason) or (block.language in ("python", "console") and block.reason), (
            f"{block.place}: neither run nor said why not, by <!-- not run: … -->"
        )
        assert not block.reason or len(block.reason.split()) >= 3, f"{block.place}: that is no reason"


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python(page, tmp_path, monkeypatch):
    """The blocks of a page run in one namespace, one after the other."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "documented", "np": np, "lr": lr}
    printed = ""
    with lr.simulator.use("H200"):
        for block in BLOCKS[page]:
            if block.is_output:
                assert matches(block.code, printed), f"{block.place}: it prints\n{printed}"
            if block.language != "python" or block.reason:
                continue
            with contextlib.redirect_stdout(io.StringIO()) as stream:
                if block.setup:
                    exec(compile(block.setup, f"{block.place}, with", "exec"), names)
                # Lines are counted as on the page, so that a traceback names them.
                exec(compile("\n" * (block.line - 1) + block.code, str(ROOT / page), "exec"), names)
            printed = stream.getvalue()


@pytest.mark.parametrize("block", CONSOLES, ids=lambda block: block.place)
def test_console(block, tmp_path):
    environment = {
        **os.environ,
        "LOWLEVEL_REDUCE_DRIVER": "simulator",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "COLUMNS": "80",
    }
    environment.pop("LOWLEVEL_REDUCE_SIMULATED_SEED", None)
    if block.setup:
        exec(
            compile(block.setup, f"{block.place}, with", "exec"), {"np": np, "lr": lr, "folder": tmp_path, "root": ROOT}
        )
    for command in commands(block.code):
        done = subprocess.run(
            ["bash", "-c", command.text], check=False, capture_output=True, text=True, timeout=300,
            env=environment, cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0, f"{block.place}: {command.text}\n{done.stdout}{done.stderr}"
        if command.output.strip():
            assert matches(command.output, done.stdout), f"{block.place}: {command.text} prints\n{done.stdout}"


def test_a_block_is_found_with_what_is_said_of_it(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text(
        "Text.\n\n<!-- with: x = 1 -->\n<!-- not run: a reason\nof two lines -->\n\n```python\nprint(x)\n```\n\n"
        "<!-- output -->\n```\n1\n```\n\n1. A list:\n\n   ```console\n   $ echo a \\\n       b\n   a b\n   ```\n"
    )
    monkeypatch.setattr("documented.ROOT", tmp_path)
    first, second, third = blocks("page.md")
    assert first == Block("page.md", 8, "python", "print(x)\n", "x = 1", reason="a reason of two lines")
    assert (second.is_output, second.code) == (True, "1\n")
    assert commands(third.code) == [("echo a b", "a b\n")]
    for text, words in (
        ("```\nno end\n", "1 fences"),
        ("~~~python\nx = 1\n~~~\n", "2 fences and 0 blocks"),
        ("Text:\n\n    x = 1\n", "'x = 1' is code by its indent"),
    ):
        page.write_text(text)
        with pytest.raises(ValueError, match=words):
            blocks("page.md")
    page.write_text("- An item.\n\n    Of two paragraphs.\n")
    assert blocks("page.md") == []


@pytest.mark.parametrize(
    ("told", "printed", "same"),
    [("a …\nc", "a b\nb\nc\n", True), ("a…c", "a\nd", False), ("a.c", "abc", False), ("a  \nb", "a\nb\n", True)],
)
def test_an_output_matches_what_is_told(told, printed, same):
    assert matches(told, printed) is same
