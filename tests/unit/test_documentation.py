"""The pages hold together: links and anchors lead somewhere, generated parts are current, every name has its place."""

import ast
import re

import pytest
from documented import PAGES, ROOT, blocks

import lowlevel_reduce as lr
from benchmarks.pages import lesson_doc, roofline, rungs_doc
from benchmarks.pages.ladder_doc import COLUMNS
from lowlevel_reduce.ladder.registry import RUNGS, SYSTEMS
from lowlevel_reduce.simulator.machine import Counters

ALL = [*PAGES, "CHANGELOG.md", "CONTRIBUTING.md"]
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```", re.DOTALL | re.MULTILINE)


def text_of(page):
    return FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))


def anchors(page):
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    found = []
    for title in re.findall(r"^#{1,6} (.+?) *$", text_of(page), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "").lower()
        found.append(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return set(found)


@pytest.mark.parametrize("page", ALL)
def test_every_link_leads_somewhere(page):
    missing = []
    for link in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent.joinpath(path).resolve() if path else ROOT / page
        name = target.relative_to(ROOT).as_posix()
        if not target.exists() or (anchor and anchor not in anchors(name)):
            missing.append(link)
    assert not missing


def test_every_page_is_in_the_site_and_in_the_readme():
    told = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w-]+\.md", told))
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    assert named == pages | {"index.md", "CHANGELOG.md", "SECURITY.md", "CONTRIBUTING.md"}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert {page for page in pages if f"(docs/{page}" not in readme} == {"release.md"}


@pytest.mark.parametrize("command", [rungs_doc, lesson_doc, roofline], ids=lambda module: module.__name__)
def test_what_is_generated_is_current(command, capsys):
    assert command.main(["--check"]) == 0, capsys.readouterr().err


def test_a_page_that_differs_is_reported_and_mended(tmp_path, capsys):
    page = tmp_path / "rungs.md"
    page.write_text(rungs_doc.PAGE.read_text(encoding="utf-8").replace("v5_warp_shuffle", "v5"), encoding="utf-8")
    assert rungs_doc.main(["--check", "--page", str(page)]) == 1
    assert "python -m benchmarks.pages.rungs_doc" in capsys.readouterr().err
    assert rungs_doc.main(["--page", str(page)]) == 0
    assert page.read_bytes() == rungs_doc.PAGE.read_bytes()


def test_the_roofs_are_those_of_the_records():
    """A GPU's clock and bandwidth are what its driver reported where the ladder was measured, or the suites."""
    from benchmarks.measure.records import read

    files = {
        "H100 SXM": ("2026-11-26-h100-suites-1.jsonl", "suites"),
        "H200": ("2026-11-26-h200-ladder-a-1e8.jsonl", "ladder"),
    }
    for gpu in roofline.GPUS:
        name, kind = files[gpu.name]
        at = read(roofline.RESULTS / name, kind).conditions
        assert (gpu.multiprocessors, gpu.gb_per_s) == (at["multiprocessors"], at["peak_bandwidth_gb_per_s"])
        assert f"{1000 * gpu.clock_ghz:.0f} MHz" in at["nvidia_smi"]


def test_every_rung_has_an_address_and_every_counter_an_entry():
    assert set(RUNGS) <= anchors("docs/rungs.md")
    glossary = anchors("docs/glossary.md")
    assert {name.replace(" ", "-") for name in COLUMNS} <= glossary
    # The simulator's own names, whose entries are called as the tables call them.
    called = {
        "instructions_by_class": "instructions", "global_loads": "load-requests", "global_stores": "store-requests",
        "global_load_sectors": "sectors", "global_store_sectors": "sectors", "shared_requests": "shared-wavefronts",
        "bytes_read": "bytes-read-and-written", "bytes_written": "bytes-read-and-written",
    }  # fmt: skip
    for field in Counters.__dataclass_fields__:
        assert called.get(field, field.replace("_", "-")) in glossary, field


def test_the_reference_has_every_public_name_with_an_example():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: lowlevel_reduce\.(\w+)$", page, re.MULTILINE)
    assert sorted(named) == sorted(lr.__all__)
    assert len(named) == len(set(named))
    for part in page.split("\n### ")[1:]:
        name = part.partition("\n")[0]
        assert f"::: lowlevel_reduce.{name}\n" in part
        assert "```python\n" in part, f"{name} has no example"
        (code,) = re.findall(r"```python\n(.*?)```", part, re.DOTALL)
        assert ast.parse(code).body, name


def test_the_table_of_other_libraries_names_functions_that_are_there():
    page = (ROOT / "docs" / "from-others.md").read_text(encoding="utf-8")
    named = set(re.findall(r"lr\.(\w+)", page))
    assert named <= {*lr.__all__, "plan"}
    from lowlevel_reduce import functions

    assert set(functions.__all__) <= named


TABLES = text_of("docs/sources.md").partition("\n## A")[2]
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| (.*?) ?\|$", TABLES, re.MULTILINE)
CLAIMS = [row for row in ROWS if row[0] not in ("what it says", "---")]


def test_every_claim_of_the_sources_has_a_place_that_exists():
    assert len(CLAIMS) > 100
    for claim, places, _ in CLAIMS:
        links, tests = LINK.findall(places), re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", places)
        assert links or tests, f"{claim}: no place"
        for link in links:
            path, _, anchor = link.partition("#")
            target = (ROOT / "docs" / path).resolve()
            assert anchor, f"{claim}: {link} names a page and no place in it" if path != "rungs.md" else ""
            assert anchor in anchors(target.relative_to(ROOT).as_posix()), f"{claim}: {link}"
        for file, name in tests:
            body = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
            assert name in {node.name for node in body if isinstance(node, ast.FunctionDef)}, f"{claim}: {file}::{name}"


def test_the_sources_are_called_by_their_names_everywhere():
    """A report tells of each system's text, and docs/sources.md of its title and its GPU."""
    page = text_of("docs/sources.md")
    assert sorted(SYSTEMS) == sorted({rung.system for rung in RUNGS.values()})
    for letter, system in SYSTEMS.items():
        title = system.source.partition(",")[0]
        (row,) = re.findall(rf"^\| {letter} \| .*$", page, re.MULTILINE)
        assert title in row
        assert f"| {system.gpu} |" in row


def test_every_rung_of_a_system_is_named_by_its_source():
    """But what is ours: tuned forms, maxima, and the library's own kernel."""
    named = {link.partition("#")[2] for _, places, _ in CLAIMS for link in LINK.findall(places) if "rungs.md#" in link}
    ours = {name for name in RUNGS if name.endswith("_tuned") or "_max_" in name or name.startswith("v3_")}
    assert set(RUNGS) - ours - named == set()


def test_no_page_is_empty_and_every_block_has_a_language_or_a_reason():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert text.startswith("# "), page
        for block in blocks(page):
            assert block.language in ("python", "console", "text") or block.reason or block.is_output, block.place


def test_the_documentation_says_nothing_of_other_machines():
    for page in PAGES:
        assert not re.search(r"/work/|/root/|/home/\w", (ROOT / page).read_text(encoding="utf-8")), page
