"""Imports point down only: the layers of the design, checked in the source."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lowlevel_reduce
import lowlevel_reduce.driver
import lowlevel_reduce.operators
from lowlevel_reduce import functions

PACKAGE = Path(lowlevel_reduce.__file__).parent

# Each layer may import from those below it; a line's modules may import each other only where PEERS says so.
LAYERS = [
    ["__main__"],
    ["cli"],
    ["ladder", "study"],
    ["__init__"],
    ["functions"],
    ["api", "segments"],
    ["quick"],
    ["oneshot"],
    ["plan", "interop"],
    ["base_plan"],
    ["mapping", "producers", "slots", "allocator"],
    ["bound", "loading", "simulator"],
    ["kernels"],
    ["row_policy"],
    ["policy", "layout", "tree", "operators", "dtypes", "compiler", "driver"],
    ["errors", "closing", "later"],
]
PURE = ["kernels", "row_policy", "policy", "layout", "tree", "operators", "dtypes"]
PEERS = {
    ("tree", "operators"),
    ("tree", "dtypes"),
    ("operators", "dtypes"),
}


def unit(module):
    """Return the layer's unit of a module: its name, or its package's."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def sources():
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        yield relative.parts[0].removesuffix(".py"), path


def imports(path):
    """Return every module of this package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lowlevel_reduce"):
            if node.module == "lowlevel_reduce":
                found |= {f"lowlevel_reduce.{alias.name}" for alias in node.names}
            else:
                found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("lowlevel_reduce")}
    return found


def level(name):
    return next(i for i, layer in enumerate(LAYERS) if name in layer)


def test_every_module_has_a_layer():
    known = {name for layer in LAYERS for name in layer}
    assert {name for name, _ in sources()} <= known


@pytest.mark.parametrize(("name", "path"), list(sources()), ids=lambda value: getattr(value, "name", value))
def test_arrows_point_down(name, path):
    for module in imports(path):
        target = unit(module)
        if target == name:
            continue
        allowed = level(target) > level(name) or (name, target) in PEERS
        assert allowed, f"{path.name} imports {module}: an arrow that points up"


# What an import of the package leaves to those who use it; the compiler to the first kernel.
LATER = [
    "simulator",
    "tree",
    "ladder",
    "cli",
    "compiler",
    "operators.user",
    "driver.graph",
    "driver.nodes",
    "driver.pool",
]


def test_what_is_not_everybodys_is_an_attribute_that_nobody_pays_for():
    script = (
        "import sys, lowlevel_reduce as lr; "
        f"print([name for name in {LATER} if f'lowlevel_reduce.{{name}}' in sys.modules], "
        "lr.simulator.by_name('T4').key, int(lr.tree.reduce([1, 2])), hasattr(lr, 'simulators'))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["[]", "T4", "3", "False"]


@pytest.mark.parametrize("package", [lowlevel_reduce, lowlevel_reduce.driver, lowlevel_reduce.operators])
def test_a_package_has_every_name_that_it_lists(package):
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert set(lowlevel_reduce.__all__) <= set(dir(lowlevel_reduce))
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'nothing'"):
        _ = package.nothing


def test_the_variable_finds_the_simulator_without_an_import():
    script = (
        "import sys, lowlevel_reduce as lr; first = 'lowlevel_reduce.simulator' in sys.modules; "
        "name = lr.Device(0).name.replace(' ', '_'); "
        "print(first, name, lr.simulator.selected().device.key, 'cuInit' in lr.simulator.selected().calls)"
    )
    variables = {"LOWLEVEL_REDUCE_DRIVER": "simulator", "LOWLEVEL_REDUCE_SIMULATED_DEVICE": "T4"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **variables})
    assert done.stdout.split() == ["False", "Tesla_T4", "T4", "True"]


def test_every_function_is_a_name_of_the_package():
    assert set(functions.__all__) < set(lowlevel_reduce.__all__)
    assert len(set(lowlevel_reduce.__all__)) == len(lowlevel_reduce.__all__)
    assert all(getattr(lowlevel_reduce, name) is getattr(functions, name) for name in functions.__all__)


def test_production_code_imports_nothing_of_the_simulator():
    for name, path in sources():
        # The command line may fall back to it, and says so; the package hands it to who names it.
        if name not in ("simulator", "cli", "__init__"):
            assert not any(unit(module) == "simulator" for module in imports(path)), path.name


def test_pure_modules_import_no_cuda():
    for name, path in sources():
        if name in PURE:
            text = path.read_text(encoding="utf-8")
            assert "cuda.bindings" not in text, f"{path.name} is pure: no driver, no compiler"
            assert "cuda.core" not in text


def test_only_errors_looks_at_result_codes():
    for _, path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        raised = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and getattr(node.exc.func, "id", None) == "CudaError"
        ]
        assert not raised or path.name == "errors.py", f"{path.name} raises CudaError by itself"


def test_modules_stay_short():
    long = {path.name: n for _, path in sources() if (n := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert not long
