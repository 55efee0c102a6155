"""Pages as a browser shows them: at a width, light or dark, what its console says, and whether they scroll sideways."""

from __future__ import annotations

import contextlib
import functools
import http.server
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

__all__ = ["BROWSER", "Shown", "look", "needs_browser", "run", "served"]

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on PATH")

# A window is at least 500 pixels wide, a frame in it as narrow as one likes. A frame's page prefers the scheme of the
# frame; /wait is answered when the probe is done, and the window is loaded, and so shown, no sooner.
_FRAME = """<!DOCTYPE html><html style="color-scheme: {scheme}"><head><link rel="icon" href="data:,"></head>
<body style="margin: 0"><iframe src="{page}" style="border: 0; width: {width}px; height: {height}px"></iframe>
<img src="/wait" alt=""></body></html>"""
_PROBE = """<script>
const wrong = [];
const told = (event) => wrong.push(String(event.message || event.reason || event.target.src || event.target.href));
addEventListener("error", told, true);
addEventListener("unhandledrejection", told);
console.error = (...words) => wrong.push(words.join(" "));
addEventListener("load", () => setTimeout(() => {
  const said = parent.document.documentElement.dataset, inside = document.documentElement;
  said.ground = getComputedStyle(document.body).backgroundColor;
  said.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  said.over = inside.scrollWidth - inside.clientWidth;
  said.width = innerWidth;
  said.wrong = wrong.join("; ");
  fetch("/done");
}, 300));
</script>"""


class Shown(NamedTuple):
    """How a page was shown.

    Attributes
    ----------
    width : int
        Of the frame that the page had, in pixels.
    over : int
        By how many pixels its content is wider, so that it scrolls sideways.
    wrong : str
        What scripts, resources or the console reported; empty if nothing.
    dark : bool
        Whether it was asked for its dark scheme.
    ground : tuple of int
        The red, green and blue behind its text, 0 to 255.
    picture : Path
        The screenshot.
    """

    width: int
    over: int
    wrong: str
    dark: bool
    ground: tuple[int, int, int]
    picture: Path


class _Server(http.server.SimpleHTTPRequestHandler):
    done = threading.Event()

    def do_GET(self) -> None:
        """Serve a file; ``/wait`` comes once somebody asked for ``/done``."""
        if self.path not in ("/wait", "/done"):
            super().do_GET()
            return
        if self.path == "/done":
            self.done.set()
        elif self.done.wait(60):
            self.done.clear()
        self.send_response(204)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing of requests."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine; yields its address."""
    handler = functools.partial(_Server, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def run(address: str, profile: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the browser on an address: without a window, with a profile of its own, and without a network.

    It has no sandbox, since tests may run as root.
    """
    command = [
        str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--hide-scrollbars", "--enable-logging=stderr", f"--user-data-dir={profile}",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", *arguments, address,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done


def look(address: str, folder: Path, page: str, out: Path, *, width: int, dark: bool, height: int = 900) -> Shown:
    """Show a page and return how it was shown.

    Parameters
    ----------
    address, folder : str, Path
        What `served` yields, and the folder.
    page : str
        The page's file in the folder; copies of it lie beside it for a moment.
    out : Path
        Where the browser's profile and the screenshot go.
    width, height : int
        Of the page's frame, in pixels.
    dark : bool
        Whether the reader prefers a dark scheme.
    """
    probe, frame, picture = folder / f"probe-{page}", folder / f"frame-{page}", out / f"{page}-{width}.png"
    text = (folder / page).read_text(encoding="utf-8")
    probe.write_text(text.replace("<head>", f"<head>{_PROBE}", 1), encoding="utf-8")
    scheme = "dark" if dark else "light"
    frame.write_text(_FRAME.format(scheme=scheme, page=probe.name, width=width, height=height), encoding="utf-8")
    try:
        done = run(
            f"{address}/{frame.name}", out / "profile", f"--blink-settings=preferredColorScheme={0 if dark else 1}",
            f"--window-size={width},{height}", f"--screenshot={picture}", "--dump-dom",
        )  # fmt: skip
    finally:
        probe.unlink()
        frame.unlink()
    top = done.stdout[: done.stdout.index("<head")]
    found = dict(re.findall(r'data-(over|width|wrong|ground|dark)="([^"]*)"', top))
    said = re.findall(r"CONSOLE[^\]]*\] (.*)", done.stderr)
    red, green, blue = map(int, re.findall(r"\d+", found["ground"])[:3])
    wrong = "; ".join(filter(None, [found["wrong"], *said]))
    return Shown(int(found["width"]), int(found["over"]), wrong, found["dark"] == "true", (red, green, blue), picture)
