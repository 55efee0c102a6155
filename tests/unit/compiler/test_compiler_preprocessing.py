"""What a text could make NVRTC open: every way that was found, texts that only look so, and texts made at random."""

from __future__ import annotations

from pathlib import Path

import pytest
from include_forms import AMBIGUOUS, OPENED, UNOPENED, filled

from lowlevel_reduce.compiler.preprocessing import RefusedTextError, read
from lowlevel_reduce.compiler.sources import SourceTree, source_root
from lowlevel_reduce.errors import CompileError
from lowlevel_reduce.operators import Operator
from lowlevel_reduce.strategy.family import family_of
from tests.fuzz.sources import read_soups

OUTSIDE = "/tmp/outside.cuh"


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    (tmp_path / "leaf.cuh").write_text("#pragma once\n")
    return SourceTree(tmp_path)


def refusal(tree: SourceTree, text: str) -> str:
    """Return what the tree says against a text, or nothing."""
    try:
        tree.closure("k", text)
    except CompileError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("form", [*OPENED, *AMBIGUOUS])
def test_what_could_open_another_file_is_refused(tree: SourceTree, form: str) -> None:
    text = filled({**OPENED, **AMBIGUOUS}[form], OUTSIDE, "N")
    assert refusal(tree, f'#include "leaf.cuh"\nint x;\n{text}').startswith("k does not compile\nk:")
    assert not refusal(tree, '#include "leaf.cuh"\nint x;\n')


@pytest.mark.parametrize("form", UNOPENED)
def test_what_only_looks_so_is_not(tree: SourceTree, form: str) -> None:
    text = filled(UNOPENED[form], OUTSIDE, "N")
    assert [include.name for include in read(f'{text}#include "leaf.cuh"\n').includes] == ["leaf.cuh"]
    assert not refusal(tree, text)


@pytest.mark.parametrize(
    "text",
    [
        "#include <leaf.cuh>",
        "%:/**/include\v<leaf.cuh> // .",
        '#inc\\\nlude "leaf.\\\ncuh"',
        '#if __has_include("leaf.cuh")\n#endif',
        "#define A __has_include ( <leaf.cuh> /**/ )",
    ],
)
def test_headers_of_the_tree_are_included_in_any_form(tree: SourceTree, text: str) -> None:
    assert list(tree.closure("k", text).files) == ["leaf.cuh"]


def test_pieces_are_refused_where_any_header_can_join_them(tree: SourceTree) -> None:
    assert not tree.closure("k", "#define F(_) _\n").files
    (tree.root / "join.cuh").write_text("#define JOIN(a, b) a##b\n")
    with pytest.raises(CompileError, match="_ is a piece of __has_include") as caught:
        tree.closure("k", '#include "join.cuh"\nint y;\n#define F(_) _\n')
    assert caught.value.line == 3
    assert list(tree.closure("k", '#include "join.cuh"\n#define F(_x) _x\n').files) == ["join.cuh"]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("int a;\n\n@", 3),
        ("int \\\na;\n/*\n*/ @", 4),
        ('R"(\n\\\n)" "\\\n"\n@', 5),
        ('#line 20 "other"\n\n@', 21),
        ('#define A \\\n 1\n#line 20 "other"\n#line 7\n@', 7),
        ("#line 9999999999999999999999999999\n@", 2),
        ('# 5 "a\\"b"\n@', 5),
    ],
)
def test_the_line_is_the_compilers(text: str, line: int) -> None:
    (include,) = read(text.replace("@", "#include <x>")).includes
    assert include.place.presumed == line
    assert include.place.line == text[: text.index("@")].count("\n") + 1
    with pytest.raises(RefusedTextError) as caught:
        read(text.replace("@", "#include X"))
    assert caught.value.place == include.place


@pytest.mark.parametrize("where", ["preamble", "map", "combine", "identity", "finish", "accumulator"])
def test_an_operators_text_is_named_with_its_line(where: str) -> None:
    texts = {"combine": "a + b", "identity": "0.f", "finish": "a", "map": "x"}
    texts[where] = "\n#include </tmp/x.cuh>\n" + texts.get(where, "")
    if where == "accumulator":
        texts |= {where: f"struct {{{texts[where]}float v; }}", "map": "return {x};", "identity": "return {0.f};"}
    own = Operator("own", **texts, accumulator_bytes=4 if where == "accumulator" else None)  # type: ignore[arg-type]
    source, *_ = family_of(own, dtype="float32", compute_capability=(9, 0))
    with pytest.raises(CompileError) as caught:
        SourceTree(source_root()).closure("k", source.text)
    error = caught.value
    assert (error.file, error.line) == (f"{where} of Operator 'own'", 2)
    assert error.source_line == "#include </tmp/x.cuh>"
    assert f"{where} of Operator 'own':2: #include </tmp/x.cuh>" in str(error)


def test_texts_made_at_random_are_read_as_they_were_made() -> None:
    tally = read_soups(seed=1, count=600)
    tally.check()
    assert 100 < tally.refused.total() < 300
