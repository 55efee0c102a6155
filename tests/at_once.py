"""``--at-once``: what fails is told when it fails, since a run that is stopped tells nothing in the end."""

from __future__ import annotations

from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--at-once", action="store_true", help="tell of each failure when it occurs, for a run that may be stopped"
    )


@pytest.hookimpl(trylast=True)  # pytest's own makes the terminal's
def pytest_configure(config: pytest.Config) -> None:
    terminal = config.pluginmanager.get_plugin("terminalreporter")  # of many processes, only the first has one
    if terminal is not None and config.getoption("at_once"):
        config.pluginmanager.register(_Failures(terminal))


class _Failures:
    """Tells of each failure, in the words of pytest's summary and with all that it says of it in the end."""

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            verdict = "FAILED" if report.when == "call" else "ERROR"
            self._terminal.write_line(f"\n{verdict} {report.nodeid}\n{report.longreprtext}")
            self._terminal.flush()
