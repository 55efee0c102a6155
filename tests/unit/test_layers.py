"""Imports point down only: the layers of the design, checked in the source."""

import ast
import functools
import os
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import lowlevel_reduce
import lowlevel_reduce.driver
import lowlevel_reduce.operators
from lowlevel_reduce import functions
from lowlevel_reduce.compiler import source_root

PACKAGE = Path(lowlevel_reduce.__file__).parent

# A room is a folder of the package or a module beside them. Each may import from the rooms of lower floors, and from a
# room of its own floor only as PEERS says. Inside a folder, imports make no circle.
FLOORS = [
    ["__main__"],
    ["cli"],
    ["kernel_wheel", "torch", "workbench"],
    ["ladder", "study"],
    ["__init__"],
    ["prebuilding"],
    ["rowops"],
    ["functions", "parts"],
    ["calls"],
    ["plans"],
    ["arrays", "simulator"],
    ["strategy"],
    ["tree", "operators"],
    ["layout"],
    ["dtypes"],
    ["compiler", "driver"],
    ["arguments", "closing", "lazy_names", "texts", "version"],
    ["errors"],
]
PURE = ["strategy", "layout", "tree", "operators", "dtypes"]
PEERS = {("tree", "operators")}


def room(module):
    """Return the room of a module: its folder in the package, or its own name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def sources():
    for path in sorted(PACKAGE.rglob("*.py")):
        relative = path.relative_to(PACKAGE)
        yield relative.parts[0].removesuffix(".py"), path


@functools.cache
def nodes(path):
    """Return what a file consists of, the module first; most tests here look at every file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@functools.cache
def imports(path):
    """Return every module of this package that a file imports, anywhere in it."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lowlevel_reduce"):
            if node.module == "lowlevel_reduce":
                found |= {f"lowlevel_reduce.{alias.name}" for alias in node.names}
            else:
                found.add(node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("lowlevel_reduce")}
    return found


def below(name):
    return next(i for i, floor in enumerate(FLOORS) if name in floor)


def test_every_room_has_a_floor_and_every_floor_has_its_rooms():
    assert {name for name, _ in sources()} == {name for floor in FLOORS for name in floor}


@pytest.mark.parametrize(("top", "suffix"), [("lowlevel_reduce", ".py"), ("cuda_src", ".cuh")])
def test_the_map_for_contributors_has_every_room(top, suffix):
    text = (PACKAGE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = text.split(f"\n{top}/", 1)[1].split("\n", 1)[1]
    told = set(
        re.findall(r"^  (\w+(?:/|\.\w+))", re.split(r"^\w", lines, maxsplit=1, flags=re.MULTILINE)[0], re.MULTILINE)
    )
    folder = PACKAGE.parent / top
    rooms = {f"{path.name}/" for path in folder.iterdir() if any(path.glob("*.*")) and path.name != "__pycache__"}
    rooms |= {path.name for path in folder.glob(f"*{suffix}") if not path.stem.startswith("__")}
    assert told == rooms


def test_arrows_point_down():
    upward = [
        f"{path.name} imports {module}"
        for name, path in sources()
        for module in imports(path)
        if (target := room(module)) != name and below(target) <= below(name) and (name, target) not in PEERS
    ]
    assert upward == []


def loaded_with(path):
    """Return the modules of this package that are imported with a file, not only for types or by a function later."""
    found = set()
    for node in nodes(path)[0].body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("lowlevel_reduce."):
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_no_imports_make_a_circle():
    names = {
        ".".join(("lowlevel_reduce", *path.relative_to(PACKAGE).with_suffix("").parts)): path for _, path in sources()
    }
    order = {name: loaded_with(path) & names.keys() for name, path in names.items()}
    assert tuple(TopologicalSorter(order).static_order())


# What an import of the package leaves to those who use it: what makes plans to the first plan, the compiler to the
# first kernel, types of ml_dtypes to the first array of one.
LATER = [
    "lowlevel_reduce.simulator",
    "lowlevel_reduce.tree",
    "lowlevel_reduce.ladder",
    "lowlevel_reduce.cli",
    "lowlevel_reduce.compiler",
    "lowlevel_reduce.operators",
    "lowlevel_reduce.arrays.capsules",
    "lowlevel_reduce.arrays.indexing",
    "lowlevel_reduce.functions.annotations",
    "lowlevel_reduce.functions.segmented",
    "lowlevel_reduce.plans.addresses",
    "lowlevel_reduce.plans.array",
    "lowlevel_reduce.plans.segments",
    "lowlevel_reduce.plans.mapping",
    "lowlevel_reduce.driver.attribute_values",
    "lowlevel_reduce.driver.bound_kernel",
    "lowlevel_reduce.driver.config",
    "lowlevel_reduce.driver.graph",
    "lowlevel_reduce.driver.nodes",
    "lowlevel_reduce.driver.pool",
    "cuda.bindings",
    "cuda.core",
    "ml_dtypes",
    "platformdirs",
    "importlib.metadata",
    "logging",
]
# What making a plan of a built-in operator does not need either.
SPARED = [
    "simulator",
    "tree",
    "plans.segments",
    "operators.user",
    "driver.attribute_values",
    "driver.graph",
    "driver.pool",
]


def loaded_by(statements, names):
    """Return which of the modules a process has that executes the statements, and that NumPy does not bring."""
    script = (
        f"import sys, numpy; names = [name for name in {names} if name not in sys.modules]; {statements}; "
        "print(*(name for name in names if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_an_import_leaves_to_its_first_use_what_not_everybody_uses():
    assert loaded_by("import lowlevel_reduce", LATER) == []


@pytest.mark.parametrize("first", ["lowlevel_reduce.rowops.meaning", "lowlevel_reduce.tree", "tree"])
def test_the_tree_brings_no_row_operation_whichever_module_is_imported_first(first):
    # The tree finds those by its own names later, and they import it: an import by attribute must not ask for them.
    statement = "from lowlevel_reduce import tree" if first == "tree" else f"import {first}; lowlevel_reduce.tree"
    names = ["lowlevel_reduce.tree", "lowlevel_reduce.rowops.host"]
    assert loaded_by(statement, names) == ["lowlevel_reduce.tree"]


def test_making_an_array_of_a_type_of_numpy_needs_no_other_types():
    names = ["ml_dtypes", *(f"lowlevel_reduce.{name}" for name in SPARED)]
    statements = (
        "import lowlevel_reduce.plans.array; from lowlevel_reduce import dtypes; "
        "[dtypes.element_type(name).dtype for name in ('float16', 'float32', 'int8', 'bool', 'complex64')]"
    )
    assert loaded_by(statements, names) == []
    assert loaded_by(f"{statements}; dtypes.numpy_dtype('bfloat16')", names) == ["ml_dtypes"]


def test_what_is_left_to_its_first_use_is_an_attribute():
    script = (
        "import lowlevel_reduce as lr; "
        "print('tree' in vars(lr), lr.simulator.by_name('T4').key, int(lr.tree.reduce([1, 2])), "
        "hasattr(lr, 'simulators'), 'plan' in vars(lr), lr.plan.__name__, 'plan' in vars(lr))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "T4", "3", "False", "False", "plan", "True"]


@pytest.mark.parametrize("package", ["lowlevel_reduce", "lowlevel_reduce.driver", "lowlevel_reduce.operators"])
def test_an_import_of_a_module_hides_no_name_of_its_package(package):
    folder = PACKAGE.joinpath(*package.split(".")[1:])
    modules = [f"{package}.{path.stem}" for path in sorted(folder.glob("*.py")) if not path.stem.startswith("__")]
    script = (
        f"import importlib, types, {package} as package; unlisted = set(package.__all__) - set(dir(package)); "
        f"[importlib.import_module(name) for name in {modules}]; "
        "hidden = [name for name in package.__all__ if isinstance(getattr(package, name), types.ModuleType)]; "
        "print(*hidden, *unlisted)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"simulator", "tree", "distributed", "vocabulary", "binding", "occupancy"}


@pytest.mark.parametrize("package", [lowlevel_reduce, lowlevel_reduce.driver, lowlevel_reduce.operators])
def test_a_package_has_every_name_that_it_lists(package):
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
    assert set(package.__all__) <= set(package.__dir__())
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
        if name not in ("simulator", "cli", "workbench", "__init__"):
            assert not any(room(module) == "simulator" for module in imports(path)), path.name


def test_pure_modules_import_no_cuda():
    for name, path in sources():
        if name in PURE:
            text = path.read_text(encoding="utf-8")
            assert "cuda.bindings" not in text, f"{path.name} is pure: no driver, no compiler"
            assert "cuda.core" not in text


def test_only_errors_looks_at_result_codes():
    for _, path in sources():
        raised = [
            node
            for node in nodes(path)
            if isinstance(node, ast.Raise)
            and isinstance(node.exc, ast.Call)
            and getattr(node.exc.func, "id", None) == "CudaError"
        ]
        assert not raised or path.name == "errors.py", f"{path.name} raises CudaError by itself"


def test_modules_stay_short():
    long = {path.name: n for _, path in sources() if (n := len(path.read_text(encoding="utf-8").splitlines())) > 400}
    assert not long


def test_cuda_sources_stay_shorter():
    long = {path.name: n for path in source_root().rglob("*.cu*") if (n := len(path.read_text().splitlines())) > 200}
    assert not long
