"""The site: every link and anchor leads somewhere, every name and rung has its address, and a browser shows it well."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import lowlevel_reduce as lr
from lowlevel_reduce.ladder.registry import RUNGS

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
PAGES = ("index.html", "reference.html", "lesson.html", "rungs.html", "tree.html")

PROBE = """<script>
const wrong = [];
addEventListener("error", (event) => wrong.push(String(event.message || event.target.src || event.target.href)), true);
console.error = (...words) => wrong.push(words.join(" "));
addEventListener("load", () => setTimeout(() => {
  const dark = new URLSearchParams(location.search).has("dark");
  document.body.dataset.mdColorScheme = dark ? "slate" : "default";
  const said = parent.document.documentElement.dataset;
  said.ground = getComputedStyle(document.body).backgroundColor;
  said.over = document.documentElement.scrollWidth - innerWidth;
  said.width = innerWidth;
  said.wrong = wrong.join("; ");
  fetch("/done");
}, 300));
</script>"""
FRAME = """<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head><body style="margin: 0">
<iframe src="{page}" style="border: 0; width: {width}px; height: 900px"></iframe><img src="/wait" alt="">
</body></html>"""
"""A window is at least 500 pixels wide, a frame in it as narrow as one likes; it is shown when the probe is done."""


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


def shown(address, site, page, tmp_path, *, width, dark):
    """Return what the probe in a copy of a page says in a browser, and its screenshot."""
    probe, frame = site / f"probe-{page}", site / f"frame-{page}"
    text = (site / page).read_text(encoding="utf-8")
    probe.write_text(text.replace("<head>", f"<head>{PROBE}", 1), encoding="utf-8")
    frame.write_text(FRAME.format(page=f"{probe.name}{'?dark' if dark else ''}", width=width), encoding="utf-8")
    picture = tmp_path / f"{page}-{width}.png"
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--hide-scrollbars", f"--user-data-dir={tmp_path / 'profile'}",
        f"--window-size={width},900", f"--screenshot={picture}", "--dump-dom",
        f"{address}/{frame.name}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    probe.unlink()
    frame.unlink()
    assert done.returncode == 0, done.stderr[-2000:]
    found = dict(re.findall(r'data-(over|width|wrong|ground)="([^"]*)"', done.stdout[: done.stdout.index("<head")]))
    return found, picture


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on PATH")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("page", PAGES)
def test_a_browser_shows_a_page_without_errors_or_sideways_scrolling(address, site, tmp_path, page, width, dark):
    found, picture = shown(address, site, page, tmp_path, width=width, dark=dark)
    assert found["wrong"] == ""
    red, green, blue = map(int, re.findall(r"\d+", found["ground"])[:3])
    assert (red + green + blue < 200) == dark
    assert int(found["width"]) == width
    assert int(found["over"]) <= 0, f"{found['over']} pixels too wide"
    assert picture.stat().st_size > 5000


def test_the_folder_of_the_site_is_not_left_in_the_repository():
    assert not (Path(lr.__file__).resolve().parents[1] / "site").exists()
