"""Malformed PTX and kernels that never end: the simulator's own errors, which name the line and what is wrong there."""

import time

import numpy as np
import pytest
from ptx_kernel import execute, fault, text

from lowlevel_reduce import simulator
from lowlevel_reduce.simulator import machine, ptx
from lowlevel_reduce.simulator.machine.control import reports
from lowlevel_reduce.simulator.ptx.code import UnknownInstruction
from tests.fuzz import ptx_mutations

ENTRY = ".version 8.8\n.target sm_100\n.visible .entry k(.param .u64 a0)\n"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("@%p9 ret;\nret;", "%p9 is declared as no predicate"),
        ("{ .reg .pred %q; }\n@%q ret;\nret;", "%q is declared as no predicate"),
        (".reg .b32 %k;\n@%k ret;\nret;", "%k is declared as no predicate"),
        (".shared .align 0 .b8 x[4];\nret;", "an alignment is a power of two up to 65536, not 0"),
        (".local .align 3 .b8 x[4];\nret;", "an alignment is a power of two up to 65536, not 3"),
        (".shared .b8 x[99999999999];\nret;", "99999999999 bytes of shared memory are more than 262144"),
        (".shared .b8 x[200000];\n.shared .b8 y[200000];\nret;", "400000 bytes of shared memory"),
        (".local .b8 x[4294967296];\nret;", "4294967296 bytes of local memory are more than 524288"),
        (".reg .b32 %k<4294967295>;\nret;", "4294967295 registers are more than 1048576"),
        (".reg .b32 %k<1000000>;\n.reg .b32 %l<1000000>;\nret;", "2000000 registers are more than"),
        (".reg .b32 %k<;\nret;", "it is no register's name"),
        ("mov.b64 %r1, {%r2;\n}\nret;", "no brace is open"),
    ],
)
def test_what_is_declared_wrongly_is_refused_when_the_text_is_loaded(body, reason):
    begun = time.process_time()
    with pytest.raises(UnknownInstruction, match=rf"^PTX line \d+: .*: {reason}") as caught:
        ptx.parse(f"{ENTRY}{{\n{body}\n}}\n")
    assert caught.value.line in (5, 6)
    assert time.process_time() - begun < 10, "no name was made of billions"


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (ENTRY + "{ ret;", "its braces are not closed"),
        (".target sm_90\n.entry k()\n.maxntid 0, 1, 1\n{ ret; }", "a block has 1 to 1024 threads"),
        (".target sm_90\n.entry k(.param .align 0 .b8 a[4]) { ret; }", "power of two"),
        (".target sm_90\n.entry k(.param .b8 a[99999999]) { ret; }", "99999999 bytes of param memory are more than"),
        (".target sm_90\n.global .align 12 .b8 a[4];\n.entry k() { ret; }", "power of two"),
        (".target sm_90\n.global .b8 a[99999999999];\n.entry k() { ret; }", "99999999999 bytes of global memory"),
        (".target sm_90\n.global .u32 a[2] = {08, 1};\n.entry k() { ret; }", "its initialiser has '08'"),
    ],
)
def test_what_is_wrong_around_a_kernel_is_refused_when_the_text_is_loaded(module, reason):
    with pytest.raises(UnknownInstruction, match=reason):
        ptx.parse(module)


@pytest.mark.parametrize(
    "instruction",
    [
        *("add.s32 %r1, %r2", "mov.u32 %r1", "shfl.sync.bfly.b32 %r1, %r2", "ld.global.u32 %r1", "st.global.u32"),
        *("bar.sync", "vote.sync.any.pred %p1", "mul.lo.s32", "cvt.u32", "selp.b32 %r1, %r2", "atom.global.add.u32"),
        *("redux.sync.add.s32", "elect.sync", "setp.eq.u32 %p1", "lop3.b32 %r1", "cp.async.wait_group", "match"),
    ],
)
def test_operands_that_are_missing_are_named_with_their_line(instruction):
    with pytest.raises(UnknownInstruction, match=r"^PTX line 11: the simulator does not know '.*': .") as caught:
        execute(f"{instruction};", np.zeros(1, np.uint32))
    assert caught.value.text == instruction


class TestEnds:
    """Kernels and functions whose last instruction lets threads go on."""

    @pytest.mark.parametrize(
        "body", ["", "mov.u32 %r1, 0;", "@%p1 ret;", "@!%p1 bra done;\nret;\ndone:", "bra.uni done;\ndone:"]
    )
    def test_kernels(self, body):
        kernel = ptx.parse(text(body).replace("\nret;\n}", "\n}")).kernels["k"]
        memory = machine.GlobalMemory()
        address = memory.allocate(8).to_bytes(8, "little")
        launch = machine.Launch(kernel, (1, 1, 1), (32, 1, 1), None, 0, address, False, 1)
        with pytest.raises(machine.KernelFault, match="goes on behind the last instruction, where no ret is") as caught:
            machine.run(launch, memory)
        assert caught.value.line == text(body).count("\n") - 1

    def test_functions_do_not_run_into_what_stands_behind_them(self):
        error = fault("call f;", np.zeros(1, np.uint32), module=".func f()\n{ .reg .b32 %z;\nmov.u32 %z, 0;\n}")
        assert (error.line, error.reason[:13]) == (7, "it goes on be")

    def test_nothing_is_added_where_the_code_ends(self):
        assert len(ptx.parse(text("bra L;\nL:\nexit;").replace("\nret;\n}", "\n}")).kernels["k"].instructions) == 4


class TestLimit:
    LOOP = "L0:\nred.global.add.u32 [%rd0], 1;\nbra.uni L0;"

    COUNTS = "L0:\nst.global.u32 [%rd0], %r1;\nadd.u32 %r1, %r1, 1;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra L0;"
    NESTED = (
        "L0:\nmov.u32 %r1, 3;\nL1:\nsub.u32 %r1, %r1, 1;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra L1;\n"
        "red.global.add.u32 [%rd0], 1;\nbra L0;"
    )

    def run(self, body, limit, **options):
        return execute(body, np.zeros(4, np.uint32), instructions=limit, **options)

    @pytest.mark.parametrize(
        ("body", "lines"),
        [
            (LOOP, "12 to 13"),
            (COUNTS, "12 to 15"),
            (NESTED, "12 to 18|14 to 16"),
        ],
    )
    @pytest.mark.parametrize("seed", [None, 3])
    def test_a_loop_that_changes_memory_ends_there_and_is_named(self, body, lines, seed):
        with pytest.raises(machine.KernelFault, match=f"in the loop of PTX lines ({lines})[;,]") as caught:
            self.run(body, 500, seed=seed)
        assert "after 500 instructions" in caught.value.reason
        assert "instructions= of simulator.use, or by LOWLEVEL_REDUCE_SIMULATED_INSTRUCTIONS" in caught.value.reason

    def test_the_smallest_loop_is_named(self):
        body = "L0:\nL1:\nred.global.add.u32 [%rd0], 1;\nsetp.eq.u32 %p1, %r0, 99;\n@!%p1 bra L1;\nbra L0;"
        with pytest.raises(machine.KernelFault, match="in the loop of PTX lines 13 to 15"):
            self.run(body, 500)

    def test_the_loop_that_calls_a_function_is_found_around_it(self):
        function = ".func f()\n{\n.reg .b32 %z<40>;\n" + "mov.u32 %z1, 0;\n" * 40 + "ret;\n}"
        with pytest.raises(machine.KernelFault, match=r"in the loop of PTX lines \d+ to \d+;"):
            self.run("L0:\nred.global.add.u32 [%rd0], 1;\ncall f;\nbra.uni L0;", 500, module=function)

    def test_the_source_is_named_where_the_text_has_a_table_of_lines(self):
        body = ".loc 1 7 3\nmov.u32 %r2, 0;\n.loc 1 33 5\n" + self.LOOP
        with pytest.raises(machine.KernelFault, match=r"PTX lines 15 to 16, compiled from /src/sum.cuh:33;"):
            self.run(body, 200, module='.file 1 "/src/sum.cuh"')
        kernel = ptx.parse(text(body, module='.file 1 "/src/sum.cuh"')).kernels["k"]
        assert kernel.source_of(1) == ""
        sources = [kernel.source_of(line) for line in (10, 11, 12, 13, 15)]
        assert sources == ["", *["/src/sum.cuh:7"] * 2, *["/src/sum.cuh:33"] * 2]

    def test_what_ends_within_its_limit_is_not_touched(self):
        for limit in (4, 3):  # with its last instruction it has ended, whatever the limit
            (found,), _ = self.run("red.global.add.u32 [%rd0], 1;", limit)
            assert found[0] == 32
        with pytest.raises(machine.KernelFault, match="no loop was met"):
            self.run("red.global.add.u32 [%rd0], 1;\nbar.sync 0;\nmov.u32 %r1, 0;\nbar.sync 0;", 2)

    def test_the_limit_has_a_default(self, monkeypatch):
        monkeypatch.setattr("lowlevel_reduce.simulator.machine.control.engine.INSTRUCTIONS", 300)
        assert "after 300 instructions" in fault(self.LOOP, np.zeros(4, np.uint32)).reason
        assert reports.INSTRUCTIONS == 10_000_000

    @pytest.mark.parametrize(
        ("option", "written", "limit"),
        [("environment", "77", 77), ("environment", "", None), (5, "77", 5), (None, "77", None)],
    )
    def test_a_driver_has_it_from_its_maker_or_from_the_environment(self, monkeypatch, option, written, limit):
        monkeypatch.setenv(simulator.INSTRUCTIONS_VARIABLE, written)
        with simulator.use(instructions=option) as driver:
            assert driver._state.limit_of_launch() == limit

    def test_a_limit_that_is_no_number(self, monkeypatch):
        monkeypatch.setenv(simulator.INSTRUCTIONS_VARIABLE, "many")
        with pytest.raises(ValueError, match="SIMULATED_INSTRUCTIONS is 'many', not an integer of 0 or more"):
            simulator.SimulatedDriver()._state.limit_of_launch()


def check(tally, tried):
    tally.check()
    assert tally.tried == tried
    assert tally.accepted > tried // 10, "most mutations break the texts altogether"
    assert tally.refused["KernelFault"] > tried // 50
    assert tally.refused["UnknownInstruction"] > tried // 4


@pytest.mark.slow
def test_mutated_texts_run_or_are_refused(request):
    check(ptx_mutations.of_small_kernels(request.config.option.seed, 250), 250)
