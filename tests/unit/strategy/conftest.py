"""What tests of how problems are mapped share."""

import pytest

from lowlevel_reduce.strategy import elements, rows


@pytest.fixture
def without_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small columns and short rows be mapped as large ones are."""
    for module in (elements, rows):
        monkeypatch.setattr(module, "faster_elements", lambda *_: None)
