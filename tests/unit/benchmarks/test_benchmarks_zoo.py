"""The list of the kernels that random shapes meet: its form, its seed, and what is compiled."""

import json
from types import SimpleNamespace

import numpy as np

from benchmarks import zoo
from benchmarks.measure import selected
from benchmarks.measure.problems import Case
from benchmarks.measure.selected import sources_of
from benchmarks.resources import H200
from lowlevel_reduce import ReduceError


def listed(tmp_path, *arguments):
    file = tmp_path / "zoo.json"
    assert zoo.main(["--json", str(file), "--type", "float32", "--op", "sum", *arguments]) == 0
    return json.loads(file.read_text())


def test_every_operator_has_a_row_for_every_type(tmp_path, capsys):
    file = tmp_path / "zoo.json"
    assert zoo.main(["--seed", "3", "--shapes", "2", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())
    assert [(row["operator"], row["dtype"]) for row in rows] == [(o, t) for o in zoo.OPERATORS for t in zoo.TYPES]
    assert all(1 <= row["kernels"] <= 4 for row in rows)
    assert len(capsys.readouterr().out.splitlines()) == len(rows)


def test_the_seed_says_which_shapes(tmp_path):
    first, again, other = (listed(tmp_path, "--seed", seed, "--shapes", "40") for seed in ("3", "3", "4"))
    assert first == again == [{"operator": "sum", "dtype": "float32", "kernels": first[0]["kernels"],
                               "twins": first[0]["twins"], "seed": 3, "shapes": 40}]  # fmt: skip
    assert first[0]["kernels"] + first[0]["twins"] == len(zoo.met("sum", "float32", 3, 40)) > 10
    assert first[0]["twins"] > 1
    texts = [{source.text for _, source in zoo.met("sum", "float32", seed, 40)} for seed in (3, 4)]
    assert texts[0] != texts[1]
    assert other[0]["seed"] == 4


def test_what_is_compiled_is_listed_by_kernel(tmp_path, monkeypatch):
    sizes = iter([100, 300, 200])

    def compiled(source, architecture):
        assert architecture == "sm_90"
        use = SimpleNamespace(registers=40, spill_store_bytes=8)
        return SimpleNamespace(data=next(sizes), kernels={source.entry: use})

    kernels = zoo.met("sum", "float32", 3, 40)[:3]
    monkeypatch.setattr(zoo, "met", lambda *_: kernels)
    monkeypatch.setattr(zoo, "compile_kernel", compiled)
    monkeypatch.setattr(zoo, "kernel_code", lambda data, entry: b"x" * data)
    monkeypatch.setattr(zoo.os, "cpu_count", lambda: 1)
    (row,) = listed(tmp_path, "--seed", "3", "--compile")
    assert (row["kernels"] + row["twins"], row["code_bytes"], row["registers"], row["spills"]) == (3, 300, 40, 8)
    entries = [(source.entry, role) for role, source in kernels]
    assert [(member["entry"], member["role"]) for member in row["members"]] == entries
    assert set(row["members"][0]) == {"entry", "role", "code_bytes", "registers", "spills"}


def test_a_kernel_is_named_by_its_role():
    assert list(sources_of(Case("sum", (1 << 24,)), H200)) == ["tiles", "whole_anywhere"]
    strided = Case("dot", (64, 64, 64), (0, 2), strides=(1, 64, 4096))
    ((role, source),) = sources_of(strided, H200).items()
    assert source.entry == f"dot_float32_float64_float32_{role}"


def test_what_a_run_needs_is_compiled_once_and_who_fails_there_ends_nothing(monkeypatch):
    compiled = []

    def compile_kernel(source, architecture):
        compiled.append(source.text)
        raise ReduceError("no room for the cache")

    monkeypatch.setattr(selected, "compile_kernel", compile_kernel)
    monkeypatch.setattr(selected, "facts_of", lambda context: H200)
    cases = [Case("sum", (1 << 24,)), Case("sum", (1 << 25,)), Case("max", (1 << 20, 8), 1)]
    context = SimpleNamespace(device=SimpleNamespace(architecture="sm_90"))
    selected.compile_ahead([*cases, Case("sum", (9,), offsets=np.asarray([0, 9]))], context)
    assert sorted(compiled) == sorted({source.text for case in cases for source in sources_of(case, H200).values()})
    assert len(compiled) == 4
