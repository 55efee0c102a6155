"""The site: every link and anchor leads somewhere, every name and rung has its address, and a browser shows it well."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import look, needs_browser

import lowlevel_reduce as lr
from lowlevel_reduce.ladder.registry import RUNGS

PAGES = ("index.html", "reference.html", "lesson.html", "rungs.html", "tree.html")


class Page(HTMLParser):
    """What a page links to, and the anchors that it has."""

    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self.links += [given[name] for name in ("href", "src") if given.get(name)]


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site).as_posix(): Page(path) for path in site.rglob("*.html")}


def test_every_link_of_every_page_leads_somewhere(site, pages):
    assert len(pages) > 20
    missing = []
    for name, page in pages.items():
        if name == "404.html":
            continue  # its links are from wherever it is shown
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or link.startswith(("data:", "javascript:")):
                continue
            target = (site / name).parent / unquote(parts.path) if parts.path else site / name
            if not target.exists():
                missing.append(f"{name}: {link}")
                continue
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target.resolve().relative_to(site.resolve()).as_posix())
            anchor = unquote(parts.fragment)
            if known and anchor and not anchor.startswith("__") and anchor not in known.anchors:
                missing.append(f"{name}: {link}")
    assert not missing


def test_every_public_name_is_documented_in_the_reference(site, pages):
    assert {name.lower() for name in lr.__all__} <= pages["reference.html"].anchors
    text = re.sub(r"<[^>]+>", "", (site / "reference.html").read_text(encoding="utf-8"))
    for sentence in ("Reduce an array over some of its axes", "Return the sum, 0 over no elements", "A loaded cubin."):
        assert sentence in text, f"the docstring that says {sentence!r} is missing"


def test_every_rung_has_its_address(pages):
    assert set(RUNGS) <= pages["rungs.html"].anchors


def test_what_pages_show_of_the_repository_is_there(site):
    assert (site / "files/tests/golden/vectors.jsonl.txt").is_file()
    assert (site / "files/cuda_src/ladder/v5_warp_shuffle.cu.txt").is_file()
    assert (site / "plots/climb.svg").is_file()


@needs_browser
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("page", PAGES)
def test_a_browser_shows_a_page_without_errors_or_sideways_scrolling(address, site, tmp_path, page, width, dark):
    shown = look(address, site, page, tmp_path, width=width, dark=dark)
    assert shown.wrong == ""
    assert shown.width == width
    assert shown.over <= 0, f"{shown.over} pixels too wide"
    assert shown.dark == dark
    assert (sum(shown.ground) < 200) == dark, "the page follows the reader's scheme"
    assert shown.picture.stat().st_size > 5000


def test_the_folder_of_the_site_is_not_left_in_the_repository():
    assert not (Path(lr.__file__).resolve().parents[1] / "site").exists()
