"""The installed package of kernels: found by its name, used before the cache, and what is wrong with it told once."""

import re
import sys
from threading import Event, Thread

import pytest

from lowlevel_reduce.cli import info
from lowlevel_reduce.compiler import (
    Program,
    Resources,
    compile_many,
    compile_program,
    installed,
    nvrtc,
    open_cache,
    program,
    toolchain,
)
from lowlevel_reduce.compiler.cache import encode_entry
from lowlevel_reduce.compiler.pack import PackedEntry, packed
from lowlevel_reduce.errors import CacheError, CacheWarning, ReduceError
from lowlevel_reduce.plans.loading import compile_kernel
from lowlevel_reduce.strategy.stubs import OPTIONS, KernelSource
from lowlevel_reduce.version import __version__

ONE = Program("one", 'extern "C" __global__ void one() {}\n')
TWO = Program("two", 'extern "C" __global__ void two() {}\n')


def entry_of(wanted, architecture="sm_90"):
    name = program._entry_name(program._job(wanted, architecture, "cubin", None), None)
    metadata = {
        "program": wanted.name,
        "architecture": architecture,
        "nvrtc_version": [12, 9],
        "names": [wanted.name],
        "kernels": {wanted.name: Resources(8, 0, 0, 0, 0, None, 0)._asdict()},
        "log": "",
    }
    return PackedEntry(name, encode_entry(name, metadata, b"the cubin of " + wanted.name.encode()))


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that installs a package with ONE for sm_90; there is no cache, and nothing can be compiled."""

    def install(version=__version__, of_pack=__version__, architecture="sm_90", alter=lambda data: data):
        folder = tmp_path / "site" / installed.PACKAGE
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(f'__version__ = "{version}"\n')
        data = packed(architecture, of_pack, [[entry_of(ONE)]])
        (folder / "sm_90.pack").write_bytes(alter(data))
        return folder

    def compile_source(name, *_, **__):
        raise ReduceError(f"{name} would be compiled")

    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "off")
    monkeypatch.delenv("LOWLEVEL_REDUCE_PREBUILT_DIR", raising=False)
    monkeypatch.setattr(nvrtc, "compile_source", compile_source)
    installed.installed_kernels.cache_clear()
    yield install
    installed.installed_kernels.cache_clear()
    sys.modules.pop(installed.PACKAGE, None)


def missed_twice(architecture):
    for _ in range(2):
        with pytest.raises(ReduceError, match="would be compiled"):
            compile_program(ONE, architecture)


def test_what_is_installed_is_used_and_the_compiler_not_asked(package, monkeypatch):
    package()
    monkeypatch.setattr(toolchain, "identify", lambda cache: pytest.fail("asked for the compiler"))
    found = compile_program(ONE, "sm_90")
    assert (found.data, found.from_cache, found.names) == (b"the cubin of one", True, ("one",))
    with pytest.raises(ReduceError, match="would be compiled"):
        compile_program(TWO, "sm_90")


@pytest.mark.parametrize("line", ['#  include "base/types.cuh"', '// #include "base/types.cuh"'])
def test_headers_that_a_glance_mistakes_are_read(line, package):
    folder, odd = package(), Program("odd", f'{line}\nextern "C" __global__ void odd() {{}}\n')
    assert program._likely_job(odd, "sm_90", "cubin", None).digest != program._job(odd, "sm_90", "cubin", None).digest
    (folder / "sm_90.pack").write_bytes(packed("sm_90", __version__, [[entry_of(odd)]]))
    assert compile_program(odd, "sm_90").data == b"the cubin of odd"
    (many,) = compile_many([(odd, "sm_90")])
    assert many.data == b"the cubin of odd"


def test_attempts_that_spill_are_passed_over_and_need_no_compiler(package, monkeypatch):
    folder = package()
    first, second, third = (f'extern "C" __global__ void __launch_bounds__(32, {n}) one() {{}}\n' for n in (3, 2, 1))
    names = [entry_of(Program("one", text, options=OPTIONS)).name for text in (first, second)]
    kept = entry_of(Program("one", third, options=OPTIONS))
    (folder / "sm_90.pack").write_bytes(packed("sm_90", __version__, [[kept]], names))
    assert compile_kernel(KernelSource("one", first, (second, third)), "sm_90").program.source == third
    # Who asks for such a program itself has it compiled; and the last attempt is taken whatever a pack says.
    for source in (KernelSource("one", first), KernelSource("one", second)):
        with pytest.raises(ReduceError, match="would be compiled"):
            compile_kernel(source, "sm_90")
    with pytest.raises(ReduceError, match="would be compiled"):
        compile_kernel(KernelSource("one", first, (third,)), "sm_90", output="ptx")


def test_it_comes_before_the_cache(package, tmp_path, monkeypatch):
    package()
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(toolchain, "identify", lambda cache: toolchain.Toolchain((12, 9), 1))
    name = program._entry_name(program._job(ONE, "sm_90", "cubin", None), toolchain.Toolchain((12, 9), 1))
    held = compile_program(ONE, "sm_90")
    open_cache().store(name, program._encode(held), b"another")
    assert compile_program(ONE, "sm_90").data == b"the cubin of one"


def test_who_has_no_place_for_a_cache_takes_what_is_installed(package, monkeypatch):
    def open_cache():
        raise CacheError("HOME is not set")

    package()
    monkeypatch.setattr(program, "open_cache", open_cache)
    assert compile_program(ONE, "sm_90").from_cache
    assert [cubin.from_cache for cubin in compile_many([(ONE, "sm_90")])] == [True]
    for requested in (lambda: compile_program(TWO, "sm_90"), lambda: compile_many([(TWO, "sm_90")])):
        with pytest.raises(CacheError, match="HOME"):
            requested()


def test_a_simulated_device_takes_nothing_of_it(package):
    package()
    with pytest.raises(ReduceError, match="would be compiled"):
        compile_program(ONE, "sm_90", output="ptx")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"version": "9.9.9", "of_pack": "9.9.9"}, "is for another version of lowlevel-reduce than this"),
        ({"of_pack": "9.9.9"}, "is of version 9.9.9"),
        ({"architecture": "sm_80"}, "for sm_80"),
        ({"alter": lambda data: data[:-20]}, "is truncated"),
        ({"alter": lambda data: data[:100]}, "digest"),
        ({"alter": lambda data: data[:90] + b"\xff" + data[91:]}, "digest"),
        ({"alter": lambda data: data[:-90] + b"\xff\xfe\xfd" + data[-87:]}, "unpacked|whole|digest"),
    ],
)
def test_what_is_wrong_is_a_miss_told_once_and_shown_by_info(arguments, words, package):
    package(**arguments)
    with pytest.warns(CacheWarning, match=words) as told:
        missed_twice("sm_90")
    assert len(told) == 1
    facts = info._installed()
    shown = [facts["unavailable"]] if facts["unavailable"] else [pack["problem"] for pack in facts["packs"]]
    assert re.search(words, shown[0])


def test_an_architecture_that_is_not_in_it_is_told_once(package):
    package()
    with pytest.warns(CacheWarning, match=r"has no kernels for sm_89\.") as told:
        missed_twice("sm_89")
    assert len(told) == 1


# What is left of its only line, or was put there.
@pytest.mark.parametrize("content", ["(", '__version__ = "0.', "__versio", "import no_such_module", "1 / 0", "\0"])
def test_a_package_that_cannot_be_imported_is_told_once_and_shown_by_info(content, package):
    folder = package()
    (folder / "__init__.py").write_text(content)
    with pytest.warns(CacheWarning, match=r"lowlevel-reduce-kernels cannot be imported \(.*Error: .*reinstall") as told:
        missed_twice("sm_90")
    assert len(told) == 1
    facts = info._installed()
    assert (facts["directory"], facts["packs"]) == (None, [])
    assert "cannot be imported" in facts["unavailable"]


def test_nobody_waits_for_a_thread_that_opens_a_pack(package, monkeypatch):
    """Nor does a child that is forked then, in which that thread is not."""
    package()
    kernels, opened, opening, go_on = installed.installed_kernels(), installed._pack_at, Event(), Event()

    def slowly(path, architecture):
        opening.set()
        go_on.wait(30)
        return opened(path, architecture)

    monkeypatch.setattr(installed, "_pack_at", slowly)
    slow = Thread(target=kernels.load, args=(entry_of(ONE).name, "sm_90"))
    slow.start()
    opening.wait(30)
    monkeypatch.setattr(installed, "_pack_at", opened)
    found = []
    other = Thread(target=lambda: found.append(kernels.load(entry_of(ONE).name, "sm_90")))
    other.start()
    other.join(10)
    at_once = list(found)
    go_on.set()
    slow.join()
    other.join()
    assert [stored.payload for stored in at_once] == [b"the cubin of one"]


def test_a_folder_of_that_name_is_none(package):
    (package() / "__init__.py").unlink()
    assert installed.installed_kernels() is None
    assert info._installed() == {"directory": None, "version": None, "unavailable": None, "packs": []}


def test_a_python_without_lzma_is_told_once_and_shown_by_info(package, monkeypatch):
    package()
    monkeypatch.setitem(sys.modules, "lzma", None)
    with pytest.warns(CacheWarning, match="this Python was built without lzma") as told:
        missed_twice("sm_90")
    assert len(told) == 1
    (pack,) = info._installed()["packs"]
    assert "without lzma" in pack["problem"]


def test_info_counts_what_is_there(package):
    folder = package()
    (pack,) = info._installed()["packs"]
    size = (folder / "sm_90.pack").stat().st_size
    assert pack == {"architecture": "sm_90", "kernels": 1, "size_bytes": size, "problem": None}
