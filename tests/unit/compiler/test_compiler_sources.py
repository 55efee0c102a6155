"""The include closure: what is found, what it is called, and what the digest notices."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from in_threads import in_threads

from lowlevel_reduce.compiler import sources
from lowlevel_reduce.compiler.sources import SourceTree, source_tree
from lowlevel_reduce.errors import CompileError
from lowlevel_reduce.rowops.family import row_family
from lowlevel_reduce.strategy.family import family_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ladder").mkdir()
    (tmp_path / "a.cuh").write_text('#pragma once\n#include "b.cuh"\n')
    (tmp_path / "b.cuh").write_text('#pragma once\n#include "a.cuh"\nint b;\n')
    (tmp_path / "ladder" / "c.cuh").write_text('  #  include   "b.cuh"   // the warp level\n')
    return tmp_path


def test_programs_that_include_the_same_share_their_headers(root: Path) -> None:
    tree = SourceTree(root)
    headers = tree.closure("k", '#include "a.cuh"\n')
    assert tree.closure("other", '// a comment\n#include "a.cuh"\n') is headers
    rest = tree.closure("k", "int x;")
    assert rest.files != headers.files
    assert rest.digest != headers.digest


def test_closure_is_recursive_and_ends_at_cycles(root: Path) -> None:
    headers = SourceTree(root).closure("k", '#include "ladder/c.cuh"\n')
    assert list(headers.files) == ["a.cuh", "b.cuh", "ladder/c.cuh"]
    assert headers.files["b.cuh"] == (root / "b.cuh").read_text(encoding="utf-8")


def test_a_source_without_includes_has_no_headers(root: Path) -> None:
    assert not SourceTree(root).closure("k", "int x;").files


@pytest.mark.parametrize(
    "text",
    [
        '// #include "nope.cuh"',
        '/* one\n#include "nope.cuh"\n*/',
        'const char* s = "/*";\n//#include "nope.cuh"\n',
    ],
)
def test_what_comments_name_is_not_included(root: Path, text: str) -> None:
    assert not SourceTree(root).closure("k", text).files


def test_a_glance_finds_the_headers_of_the_kernels() -> None:
    tree = source_tree()
    kernels = [
        *family_of("sum", dtype="float32", compute_capability=(9, 0)),
        *family_of("argmax", dtype="float16", compute_capability=(9, 0)),
        *row_family("softmax", dtype="bfloat16"),
    ]
    digests = {tree.likely_digest(each.text) for each in kernels}
    assert digests == {tree.closure(each.entry, each.text).digest for each in kernels}
    assert len(digests) > 5


def test_a_glance_sees_that_a_header_of_a_header_changed(root: Path) -> None:
    before = SourceTree(root).likely_digest('#include "a.cuh"\n')
    (root / "b.cuh").write_text("int another;\n")
    after = SourceTree(root)
    assert after.likely_digest('#include "a.cuh"\n') != before
    assert after.likely_digest('#include "a.cuh"\n') == after.closure("k", '#include "a.cuh"\n').digest


@pytest.mark.parametrize("name", ["nope.cuh", "/etc/passwd", "../a.cuh", "ladder", ""])
def test_a_glance_passes_over_what_is_no_header(root: Path, name: str) -> None:
    nothing = SourceTree(root).closure("k", "").digest
    assert SourceTree(root).likely_digest(f'// #include "{name}"\n') == nothing


def test_a_comment_opener_in_a_string_hides_nothing(root: Path) -> None:
    assert "a.cuh" in SourceTree(root).closure("k", 'const char* s = "/*";\n#include "a.cuh"\n').files


def test_a_signals_handler_may_read_while_a_header_is_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs in the thread that reads: a lock that it had to wait for would never be free."""
    tree, read, due = SourceTree(root), Path.read_text, [signal.SIGUSR1]
    found = []

    def interrupted(path: Path, *args: Any, **options: Any) -> str:
        text = read(path, *args, **options)
        if due:
            signal.raise_signal(due.pop())
        return text

    monkeypatch.setattr(Path, "read_text", interrupted)
    before = signal.signal(signal.SIGUSR1, lambda *_: found.append(tree.closure("handler", '#include "a.cuh"\n')))
    try:
        found.append(tree.closure("k", '#include "a.cuh"\n'))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found[0].files == found[1].files


def test_a_missing_header_names_who_asked_for_it(root: Path) -> None:
    (root / "b.cuh").write_text('/* two\n   lines */\n#include "nope.cuh"\n')
    with pytest.raises(CompileError, match=r"'nope\.cuh' is not a header of") as caught:
        SourceTree(root).closure("sum", '#include "a.cuh"\n')
    error = caught.value
    assert (error.program, error.file, error.line) == ("sum", "b.cuh", 3)
    assert error.source_line == '#include "nope.cuh"'


def test_a_header_of_nobodys_is_refused(root: Path) -> None:
    """NVRTC has no header of its own, and no folder to look into: it would only say so later."""
    with pytest.raises(CompileError, match=r"'cuda_fp16\.h' is not a header of") as caught:
        SourceTree(root).closure("k", "int x;\n#include <cuda_fp16.h>\n")
    assert (caught.value.line, caught.value.source_line) == (2, "#include <cuda_fp16.h>")


@pytest.mark.parametrize("name", ["../a.cuh", "/etc/hosts", "./a.cuh", "ladder/../a.cuh", "ladder\\c.cuh", "c:a.cuh"])
def test_a_name_that_leaves_the_root_or_has_two_spellings_is_refused(root: Path, name: str) -> None:
    (root.parent / "a.cuh").write_text("int outside;")
    with pytest.raises(CompileError, match="plain path"):
        SourceTree(root).closure("k", f'#include "{name}"\n')


def test_an_include_through_a_macro_is_refused(root: Path) -> None:
    with pytest.raises(CompileError, match="write the name in quotes") as caught:
        SourceTree(root).closure("k", "int x;\n#include HEADER\n")
    assert caught.value.line == 2


def test_digest_sees_names_and_contents(root: Path) -> None:
    def digest(source: str) -> str:
        return SourceTree(root).closure("k", source).digest

    before = digest('#include "a.cuh"\n')
    assert digest('#include "a.cuh"\nint other_source;') == before  # the source itself is another ingredient of the key
    (root / "b2.cuh").write_text((root / "b.cuh").read_text(encoding="utf-8"))
    (root / "a.cuh").write_text('#pragma once\n#include "b2.cuh"\n')
    renamed = digest('#include "a.cuh"\n')
    (root / "b2.cuh").write_text("int changed;")
    assert len({before, renamed, digest('#include "a.cuh"\n')}) == 3


def test_digest_keeps_names_and_contents_apart() -> None:
    assert sources._digest({"a": "bc"}) != sources._digest({"ab": "c"})
    assert sources._digest({"a": "b", "c": "d"}) != sources._digest({"a": "bcd"})
    assert sources._digest({"a": "b"}) != sources._digest({"c": "b"})


def test_files_are_read_once_a_tree_and_afresh_by_the_next(root: Path) -> None:
    tree = SourceTree(root)
    before = tree.closure("k", '#include "b.cuh"\n')
    (root / "b.cuh").write_text("int changed;")
    assert tree.closure("k", '#include "b.cuh"\n') == before
    assert SourceTree(root).closure("k", '#include "b.cuh"\n') != before


def test_threads_read_the_same(root: Path) -> None:
    tree = SourceTree(root)
    digests = in_threads(*[lambda: tree.closure("k", '#include "ladder/c.cuh"\n').digest] * 16)
    assert len(set(digests)) == 1


def test_source_root_prefers_the_copy_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = tmp_path / "lowlevel_reduce" / "compiler" / "sources.py"
    module.parent.mkdir(parents=True)
    monkeypatch.setattr(sources, "__file__", str(module))
    with pytest.raises(CompileError, match="reinstall"):
        sources.source_root()
    (tmp_path / "cuda_src").mkdir()
    assert sources.source_root() == tmp_path / "cuda_src"
    (tmp_path / "lowlevel_reduce" / "cuda_src").mkdir()
    assert sources.source_root() == tmp_path / "lowlevel_reduce" / "cuda_src"
