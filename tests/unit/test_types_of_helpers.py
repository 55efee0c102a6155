"""What tests share is checked by mypy, which is told so module by module."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_mypy_is_told_of_every_module_that_tests_share():
    """They are named as they are imported: conftest.py by its folder, since there are several, and reliability.py by
    the packages."""
    text = re.search(r"^modules = (\[.*?^\])", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)[1]
    shared = {
        ".".join(path.with_suffix("").parts) if path.stem in ("conftest", "reliability") else path.stem
        for path in (each.relative_to(ROOT) for each in (ROOT / "tests").rglob("*.py"))
        if not path.stem.startswith("test_") and path.parts[1] not in ("mutants", "golden", "fuzz", "soak")  # packages
    }
    assert set(ast.literal_eval(text)) - {"_device"} == shared
