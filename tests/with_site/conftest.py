"""The site as make docs makes it, in a temporary folder, and a server for a browser; mkdocs must be installed."""

import functools
import http.server
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site; a warning is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


_done = threading.Event()


class _Server(http.server.SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        """Serve a file; ``/wait`` comes once somebody asked for ``/done``, and a page with it is loaded no sooner."""
        if self.path in ("/wait", "/done"):
            if self.path == "/done":
                _done.set()
            elif _done.wait(60):
                _done.clear()
            self.send_response(204)
            self.end_headers()
        else:
            super().do_GET()

    def log_message(self, *arguments: object) -> None:
        """Say nothing of requests."""


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    """Where a browser finds the site."""
    handler = functools.partial(_Server, directory=str(site))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()
