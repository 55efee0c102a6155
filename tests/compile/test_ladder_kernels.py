"""Every rung of the ladder, in each of its forms, for old and new architectures: compiles, and stays in registers."""

import re

import pytest
from kept import listing

from lowlevel_reduce.compiler import Program, compile_many, compile_program, supported_architectures
from lowlevel_reduce.errors import NoCompilerError
from lowlevel_reduce.ladder import RUNGS
from lowlevel_reduce.ladder.plans import Production
from lowlevel_reduce.ladder.program import kernel_source
from lowlevel_reduce.ladder.registry import VERSION_VARIABLE, as_switched
from lowlevel_reduce.strategy.stubs import OPTIONS

try:
    KNOWN = supported_architectures()
except NoCompilerError as error:
    pytest.skip(str(error), allow_module_level=True)

ARCHITECTURES = [name for name in ("sm_75", "sm_80", "sm_90", "sm_100") if name in KNOWN]
SINCE = {"cluster": 90, "tensor_cores": 80, "cooperative": 60}
OWN = [rung for rung in RUNGS.values() if not isinstance(rung.plan, Production)]


def programs(rung, block):
    for dtype in rung.dtypes:
        for entry in rung.entries:
            source = kernel_source(rung, entry, dtype, rung.block or block)
            yield Program(entry, source.text, options=OPTIONS)


def runs_on(rung, architecture):
    return all(int(architecture[3:]) >= SINCE[need] for need in rung.needs)


@pytest.mark.parametrize("block", [32, 256, 1024])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_no_rung_leaves_its_registers(architecture, block, few):
    requests = [
        (program, architecture) for rung in OWN if runs_on(rung, architecture) for program in programs(rung, block)
    ]
    for cubin in compile_many(few(requests, 30)):
        use = cubin.kernels[cubin.program.name]
        assert use.stack_bytes == use.spill_store_bytes == use.spill_load_bytes == 0, cubin.program.name
        assert "warning" not in cubin.log.lower(), cubin.log


@pytest.mark.parametrize("version", ["v1", "v2", "v3"])
def test_every_version_of_the_switched_rung(version, monkeypatch):
    monkeypatch.setenv(VERSION_VARIABLE, version)
    (program,) = programs(as_switched(RUNGS["switched"]), 256)
    assert compile_program(program, "sm_90").kernels["switched"].spill_store_bytes == 0


@pytest.mark.parametrize("rung", OWN, ids=lambda rung: rung.id)
def test_a_file_compiles_as_it_stands(rung):
    program = Program(rung.id, rung.source.read_text(encoding="utf-8"))
    assert set(compile_program(program, "sm_90").names) == set(rung.entries)


def code_of(rung):
    (program,) = programs(rung, 256)
    return listing(compile_program(program, "sm_90").data)


@pytest.mark.parametrize("name", ["v4_float4", "v5_warp_shuffle", "v6_block_atomic", "v7_cluster"])
def test_all_loads_of_a_tuned_form_are_on_their_way_before_the_first_addition(name):
    text = code_of(RUNGS[f"{name}_tuned"])
    order = "".join("L" if "LDG" in word else "+" for word in re.findall(r"\bLDG\.E\.(?:\w+\.)?128|\bFADD\b", text))
    assert "L" * 8 + "+" in order, order


def test_the_tensor_cores_multiply():
    assert len(re.findall(r"\bHMMA\.16816\.F32\b", code_of(RUNGS["tcu_reduce16"]))) == 1
    assert len(re.findall(r"\bHMMA\.16816\.F32\b", code_of(RUNGS["tcu_reduce256"]))) == 4


def test_no_atomic_is_a_loop_but_where_it_is_meant_to_be():
    assert re.search(r"\bREDG?\.E\.ADD", code_of(RUNGS["v0_atomic"]))
    ordered = code_of(RUNGS["v0_atomic_max_ordered"])
    assert "MAX.S32" in ordered
    assert "CAS" not in ordered
    assert "CAS" in code_of(RUNGS["v0_atomic_max_cas"])
