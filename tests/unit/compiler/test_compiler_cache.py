"""The disk cache: integrity, permissions, eviction, and what enters a key."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lowlevel_reduce.compiler import cache as cache_module
from lowlevel_reduce.compiler.cache import DiskCache, make_key, open_cache, open_prebuilt, prebuilt_at
from lowlevel_reduce.compiler.program import Program, entry_name
from lowlevel_reduce.compiler.toolchain import Toolchain
from lowlevel_reduce.errors import CacheError, CacheWarning, ReduceError
from tests.fuzz.files import open_descriptors

NAME = f"cubin-{'a' * 64}.llr"
OTHER = f"cubin-{'b' * 64}.llr"
posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX ownership and modes")


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "deep" / "cache"))


def path(cache: DiskCache, name: str = NAME) -> Path:
    return Path(cache.directory, name)


def test_round_trip(cache: DiskCache) -> None:
    assert cache.load(NAME) is None
    assert not os.path.exists(cache.directory)  # looking makes nothing
    cache.store(NAME, {"log": "ü", "kernels": {"k": [1, 2]}}, b"\0cubin\xff")
    stored = cache.load(NAME)
    assert stored is not None
    assert (stored.metadata, stored.payload) == ({"log": "ü", "kernels": {"k": [1, 2]}}, b"\0cubin\xff")
    assert cache.load(OTHER) is None


def test_store_replaces(cache: DiskCache) -> None:
    cache.store(NAME, {}, b"old")
    cache.store(NAME, {}, b"new")
    assert cache.load(NAME).payload == b"new"  # type: ignore[union-attr]
    assert os.listdir(cache.directory) == [NAME]  # no temporary file is left


@pytest.mark.parametrize("name", ["x.llr", "../" + NAME, NAME + "2", "toolchain-.llr"])
def test_store_refuses_other_names(cache: DiskCache, name: str) -> None:
    with pytest.raises(ValueError, match="not an entry's name"):
        cache.store(name, {}, b"")


@posix
def test_modes_do_not_depend_on_the_umask(cache: DiskCache) -> None:
    before = os.umask(0)
    try:
        cache.store(NAME, {}, b"x")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(cache.directory).st_mode) == 0o700
    assert stat.S_IMODE(path(cache).stat().st_mode) == 0o600


def flip_each_byte(data: bytes) -> list[bytes]:
    return [data[:i] + bytes([data[i] ^ 0x10]) + data[i + 1 :] for i in range(len(data))]


def test_every_flipped_bit_and_every_truncation_is_a_miss(cache: DiskCache) -> None:
    cache.store(NAME, {"k": 1}, b"payload")
    good = path(cache).read_bytes()
    for bad in [*flip_each_byte(good), *(good[:i] for i in range(len(good))), good + b"x", good + good]:
        path(cache).write_bytes(bad)
        assert cache.load(NAME) is None, bad
    cache.store(NAME, {"k": 1}, b"payload")
    assert cache.load(NAME) is not None


def forged(
    text: bytes, payload: bytes = b"", *, magic: bytes = b"LLRCACHE", schema: int = cache_module.SCHEMA
) -> bytes:
    body = cache_module._HEADER.pack(magic, schema, len(text), len(payload)) + text + payload
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    "data",
    [
        forged(b"not json"),
        forged(b"\xff\xfe"),
        forged(b"[]"),
        forged(b"{}"),
        forged(json.dumps({"name": NAME}).encode()),
        forged(json.dumps({"name": NAME, "metadata": 3}).encode()),
        forged(b'{"name": "' + NAME.encode() + b'", "metadata": {"x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}}"),
        forged(json.dumps({"name": NAME, "metadata": {}}).encode(), magic=b"OTHERAPP"),
        forged(json.dumps({"name": NAME, "metadata": {}}).encode(), schema=cache_module.SCHEMA + 1),
    ],
)
def test_foreign_files_with_an_agreeing_digest_are_misses(cache: DiskCache, data: bytes) -> None:
    cache.store(NAME, {}, b"")
    path(cache).write_bytes(data)
    assert cache.load(NAME) is None


def test_a_forged_file_of_this_format_would_be_read(cache: DiskCache) -> None:
    # So the test above fails for the reason that it names, not because forged() is wrong.
    cache.store(NAME, {}, b"")
    path(cache).write_bytes(forged(json.dumps({"name": NAME, "metadata": {}}).encode(), b"p"))
    assert cache.load(NAME).payload == b"p"  # type: ignore[union-attr]


def test_an_entry_under_another_name_is_a_miss(cache: DiskCache) -> None:
    cache.store(NAME, {}, b"x")
    os.rename(path(cache), path(cache, OTHER))
    assert cache.load(OTHER) is None


@posix
def test_a_symbolic_link_is_a_miss_and_is_replaced(cache: DiskCache, tmp_path: Path) -> None:
    cache.store(NAME, {}, b"x")
    elsewhere = tmp_path / "elsewhere"
    os.rename(path(cache), elsewhere)
    os.symlink(elsewhere, path(cache))
    assert cache.load(NAME) is None
    cache.store(NAME, {}, b"y")
    assert not path(cache).is_symlink()
    assert elsewhere.read_bytes().count(b"x") > 0  # what it pointed to is untouched
    assert cache.load(NAME).payload == b"y"  # type: ignore[union-attr]


@posix
@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo], ids=["directory", "fifo"])
def test_what_is_not_a_file_is_a_miss(cache: DiskCache, make: Callable[[Path], None]) -> None:
    cache.store(OTHER, {}, b"x")
    make(path(cache))
    assert cache.load(NAME) is None


@posix
@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_that_others_may_write_is_a_miss(cache: DiskCache, mode: int) -> None:
    cache.store(NAME, {}, b"x")
    os.chmod(path(cache), mode)
    assert cache.load(NAME) is None
    cache.store(NAME, {}, b"x")
    assert cache.load(NAME) is not None


@posix
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_directory_that_others_may_write_is_refused(cache: DiskCache, mode: int) -> None:
    cache.store(NAME, {}, b"x")
    os.chmod(cache.directory, mode)
    for use in (lambda: cache.load(NAME), lambda: cache.store(NAME, {}, b"x")):
        with pytest.raises(CacheError, match="LOWLEVEL_REDUCE_CACHE_DIR") as caught:
            use()
        assert cache.directory in str(caught.value)


@posix
@pytest.mark.parametrize("what", ["directory", "entry"])
def test_another_owner(cache: DiskCache, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store(NAME, {}, b"x")
    if os.geteuid() == 0:
        os.chown(cache.directory if what == "directory" else path(cache), 12345, -1)
    elif what == "directory":
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    else:
        pytest.skip("only root can give a file away")
    if what == "entry":
        assert cache.load(NAME) is None
    else:
        with pytest.raises(CacheError, match="belongs to another user"):
            cache.load(NAME)


@pytest.mark.parametrize("below", [True, False], ids=["below a file", "a file"])
def test_an_unusable_directory_is_a_miss_and_then_a_clear_error(tmp_path: Path, below: bool) -> None:
    (tmp_path / "file").write_text("")
    cache = DiskCache(str(tmp_path / "file" / "cache" if below else tmp_path / "file"))
    assert cache.load(NAME) is None
    with pytest.raises(CacheError, match="LOWLEVEL_REDUCE_CACHE_DIR") as caught:
        cache.store(NAME, {}, b"x")
    assert cache.directory in str(caught.value)
    assert '"off"' in str(caught.value)
    assert isinstance(caught.value, (ReduceError, OSError))
    assert cache.entries() == []
    assert cache.clear() == 0


def refuse_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def open_(name: Any, flags: int, *rest: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system", name)
        return real(name, flags, *rest, **named)

    def utime(name: Any, *rest: Any, **named: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system", name)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "utime", utime)


def test_a_hit_in_a_read_only_directory(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.store(NAME, {}, b"x")
    refuse_writes(monkeypatch)
    assert cache.load(NAME) is not None
    with pytest.raises(CacheError, match="Read-only"):
        cache.store(OTHER, {}, b"x")


def test_a_failing_write_leaves_the_old_entry_and_no_temporary(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(NAME, {}, b"old")

    monkeypatch.setattr(os, "write", failing(errno.ENOSPC))
    with pytest.raises(CacheError, match="No space left"):
        cache.store(NAME, {}, b"new")
    assert os.listdir(cache.directory) == [NAME]
    assert cache.load(NAME).payload == b"old"  # type: ignore[union-attr]


def failing(code: int) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


@posix
def test_a_failing_close_loses_neither_what_was_read_nor_a_descriptor(
    cache: DiskCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store(NAME, {}, b"x")
    before, real = open_descriptors(), os.close

    def close(descriptor: int) -> None:
        real(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "close", close)
    assert cache.load(NAME).payload == b"x"  # type: ignore[union-attr]
    with pytest.raises(CacheError, match="Input/output error"):
        cache.store(OTHER, {}, b"y")
    monkeypatch.undo()
    assert open_descriptors() == before
    assert os.listdir(cache.directory) == [NAME]


@posix
@pytest.mark.parametrize("operation", ["write", "replace"])
def test_a_failing_write_leaks_no_descriptor(cache: DiskCache, operation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()
    monkeypatch.setattr(os, operation, failing(errno.ENOSPC))
    with pytest.raises(CacheError, match="No space left"):
        cache.store(NAME, {}, b"x")
    monkeypatch.undo()
    assert open_descriptors() == before
    assert os.listdir(cache.directory) == []


def test_a_kernel_does_not_wait_for_the_disk(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync", "sync"):
        monkeypatch.setattr(os, name, lambda *_: pytest.fail("waits for the disk"), raising=False)
    cache.store(NAME, {}, b"x")
    assert cache.load(NAME) is not None
    path(cache).write_bytes(b"")  # what a crash of the system may leave
    assert cache.load(NAME) is None


def test_a_write_may_take_several_calls(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.write, os.read
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    monkeypatch.setattr(os, "read", lambda descriptor, count: read(descriptor, min(count, 5)))
    cache.store(NAME, {"k": 1}, bytes(range(100)))
    assert cache.load(NAME).payload == bytes(range(100))  # type: ignore[union-attr]


def test_what_cannot_be_written_is_kept_and_told_once_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = [DiskCache(str(tmp_path / name)) for name in "ab"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", failing(errno.ENOSPC))
        for cache in caches:
            told = f"in {cache.directory}: .*No space left.*LOWLEVEL_REDUCE_CACHE_DIR"
            with pytest.warns(CacheWarning, match=told):
                cache.keep(NAME, {"of": NAME}, cache.directory.encode())
            cache.keep(OTHER, {"of": OTHER}, cache.directory.encode())  # a second warning would be an error here
        for cache in caches:
            for name in (NAME, OTHER):
                assert DiskCache(cache.directory).load(name) == ({"of": name}, cache.directory.encode())
            assert not os.listdir(cache.directory)
    caches[0].keep(NAME, {}, b"new")
    assert caches[0].load(NAME) == ({}, b"new")
    caches[0].clear()
    assert caches[0].load(NAME) is None
    assert caches[1].load(NAME) is not None


def test_what_is_kept_for_this_process_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "_MOST_UNWRITTEN", 3)
    (tmp_path / "file").touch()
    cache = DiskCache(str(tmp_path / "file"))
    with pytest.warns(CacheWarning):
        cache.keep(names(5)[0], {}, b"x")
    for name in names(5)[1:]:
        cache.keep(name, {}, b"x")
    assert [cache.load(name) is not None for name in names(5)] == [False, False, True, True, True]


def test_a_directory_named_like_an_entry_is_in_nobodys_way(cache: DiskCache) -> None:
    os.makedirs(path(cache))
    os.chmod(cache.directory, 0o700)
    assert cache.load(NAME) is None
    with pytest.raises(CacheError, match="cannot write"):
        cache.store(NAME, {}, b"x")
    with pytest.warns(CacheWarning):
        cache.keep(NAME, {}, b"x")
    assert cache.load(NAME) == ({}, b"x")
    assert os.listdir(cache.directory) == [NAME]


@posix
@pytest.mark.parametrize(("make", "mode"), [(DiskCache, 0o700), (prebuilt_at, 0o755)], ids=["cache", "prebuilt"])
def test_no_directory_that_is_made_can_be_written_by_others(
    tmp_path: Path, make: Callable[[str], DiskCache], mode: int
) -> None:
    """Who may write above a directory could put another in its place."""
    before = os.umask(0)
    try:
        make(str(tmp_path / "a" / "b" / "c")).store(NAME, {}, b"x")
    finally:
        os.umask(before)
    for made in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"):
        assert stat.S_IMODE(made.stat().st_mode) == mode


@posix
def test_where_no_directory_can_be_made_the_cache_does_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under /proc, where the system says that something is missing, though all above is there."""
    real = os.mkdir

    def mkdir(name: str, mode: int) -> None:
        if name.startswith(str(tmp_path / "a")):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        real(name, mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    cache = DiskCache(str(tmp_path / "a" / "b"))
    with pytest.raises(CacheError, match="LOWLEVEL_REDUCE_CACHE_DIR"):
        cache.store(NAME, {}, b"x")
    with pytest.warns(CacheWarning, match="No such file"):
        cache.keep(NAME, {}, b"x")
    assert cache.load(NAME) == ({}, b"x")


@posix
def test_a_shared_directory_is_refused_and_not_only_told(cache: DiskCache) -> None:
    cache.store(NAME, {}, b"x")
    os.chmod(cache.directory, 0o777)
    with pytest.raises(CacheError, match="others may write into it"):
        cache.keep(NAME, {}, b"x")


@posix
def test_a_file_of_a_terabyte_is_a_miss(cache: DiskCache) -> None:
    cache.store(NAME, {}, b"x")
    os.truncate(path(cache), 1 << 40)
    assert cache.load(NAME) is None


def names(count: int) -> list[str]:
    return [f"cubin-{i:064x}.llr" for i in range(count)]


def test_the_least_recently_used_entry_goes_first(cache: DiskCache) -> None:
    a, b, c, d = names(4)
    for age, name in enumerate((c, b, a)):
        cache.store(name, {}, bytes(1000))
        os.utime(path(cache, name), (1000 + age, 1000 + age))
    assert [entry.name for entry in cache.entries()] == [c, b, a]
    assert cache.load(c) is not None  # now b is the oldest
    small = DiskCache(cache.directory, limit_bytes=cache.size_bytes)
    small.store(d, {}, bytes(1000))
    assert {entry.name for entry in cache.entries()} == {a, c, d}
    assert small.size_bytes <= small.limit_bytes


def test_the_new_entry_stays_even_when_it_is_alone_over_the_limit(tmp_path: Path) -> None:
    cache = DiskCache(str(tmp_path / "c"), limit_bytes=10)
    for name in names(3):
        cache.store(name, {}, bytes(100))
        assert [entry.name for entry in cache.entries()] == [name]


def test_clear_and_eviction_touch_only_our_files(cache: DiskCache) -> None:
    cache.store(NAME, {}, b"x")
    cache.store(OTHER, {}, b"x")
    young, old = (Path(cache.directory, f".{digit * 32}.llr-tmp") for digit in "01")
    for file in (young, old, Path(cache.directory, "thesis.txt")):
        file.write_text("")
    os.utime(old, (0, 0))
    assert cache.clear() == 2
    # A young temporary file is another process's, which is about to rename it.
    assert set(os.listdir(cache.directory)) == {"thesis.txt", young.name}


@posix
@pytest.mark.parametrize("old", [False, True])
def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, old: bool) -> None:
    """As in a container that runs as a number without an account."""
    pwd = pytest.importorskip("pwd")

    def no_account(_: int) -> None:
        raise KeyError

    for variable in ("HOME", "XDG_CACHE_HOME", cache_module.VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_account)
    if old:  # what platformdirs 4.2 returns then
        monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_, **__: "~/.cache/lowlevel_reduce")
    cache_module._default_directory.cache_clear()
    try:
        with pytest.raises(CacheError, match=f'HOME is not set.*{cache_module.VARIABLE}.*"off"'):
            open_cache()
    finally:
        cache_module._default_directory.cache_clear()


def test_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for value in ("off", "OFF", "0"):
        monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", value)
        assert open_cache() is None
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", str(tmp_path))
    assert open_cache().directory == str(tmp_path)  # type: ignore[union-attr]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", "relative")
    assert open_cache().directory == str(tmp_path / "relative")  # type: ignore[union-attr]
    defaults = set()
    for value in ("", None):
        if value is None:
            monkeypatch.delenv("LOWLEVEL_REDUCE_CACHE_DIR")
        else:
            monkeypatch.setenv("LOWLEVEL_REDUCE_CACHE_DIR", value)
        defaults.add(open_cache().directory)  # type: ignore[union-attr]
    (default,) = defaults
    assert os.path.isabs(default)
    assert "lowlevel_reduce" in default


INGREDIENTS: dict[str, Any] = {
    "name": "k",
    "source": "s",
    "headers_digest": "d",
    "options": ("-a", "-b"),
    "architecture": "sm_90",
    "output": "cubin",
    "compiler": Toolchain((12, 9), 100),
}


@pytest.mark.parametrize(
    ("ingredient", "value"),
    [
        ("name", "k2"),
        ("source", "s "),
        ("headers_digest", "e"),
        ("options", ("-a",)),
        ("options", ("-b", "-a")),
        ("options", ("-a-b",)),
        ("options", ("-a", "-b", "")),
        ("architecture", "sm_90a"),
        ("output", "ptx"),
        ("compiler", Toolchain((12, 8), 100)),
        ("compiler", Toolchain((13, 9), 100)),
        ("compiler", Toolchain((12, 9), 101)),
        ("compiler", None),
    ],
)
def test_every_ingredient_changes_the_key(ingredient: str, value: Any) -> None:
    before = entry_name(**INGREDIENTS)
    assert entry_name(**INGREDIENTS) == before
    assert entry_name(**{**INGREDIENTS, ingredient: value}).split("-")[1] != before.split("-")[1]


def test_the_schema_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make_key("x")
    monkeypatch.setattr(cache_module, "SCHEMA", cache_module.SCHEMA + 1)
    assert make_key("x") != before


def test_ingredients_do_not_run_together() -> None:
    assert len({make_key("ab", "c"), make_key("a", "bc"), make_key("abc"), make_key("abc", "")}) == 4


def test_program_refuses_what_the_key_cannot_cover() -> None:
    for option in (
        "-I/usr/include",
        "--include-path=x",
        "-arch=sm_80",
        "--gpu-architecture=sm_80",
        "--pre-include=x",
        "--pch",
        "--std=c++14",
        "-std=c++20",
        " -I/usr/include",
        "\t-I/usr/include",
        "--ptxas-options=--options-file=x",
        "-Xptxas=-optf=x",
        "-DJOIN(a,b)=a##b",
        "-DJOIN(a,b)=a%:%:b",
        "-DASK=__has_include",
    ):
        with pytest.raises(ValueError, match="not a program's to choose"):
            Program("k", "", options=(option,))
    with pytest.raises(TypeError, match="tuple"):
        Program("k", "", options="-lineinfo")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a program's option is text, not 3"):
        Program("k", "", options=(3,))  # type: ignore[arg-type]
    Program("k", "", options=("-fmad=false", "--maxrregcount=32", "-lineinfo", "-default-device"))


@pytest.mark.parametrize("sign", ["\0", "\ud800"])
def test_program_refuses_text_that_nvrtc_cannot_be_given(sign: str) -> None:
    for name, source, options in ((f"k{sign}", "", ()), ("k", f"// é\n{sign}", ()), ("k", "", (f"-DX={sign}",))):
        with pytest.raises(ValueError, match="a program's (name|source|option) holds") as caught:
            Program(name, source, options=options)
        assert repr(sign) in str(caught.value)
    assert Program("ü", "// é \U0001f600").source


# -- prebuilt kernels -------------------------------------------------------------------------------------------------


@posix
@pytest.mark.parametrize(
    ("owner", "mode", "own", "prebuilt"),
    [
        ("me", 0o700, True, True),
        ("me", 0o755, True, True),
        ("me", 0o775, False, False),
        ("me", 0o757, False, False),
        ("root", 0o755, False, True),
        ("root", 0o775, False, False),
        ("root", 0o777, False, False),
        ("another", 0o755, False, False),
        ("another", 0o700, False, False),
    ],
)
def test_whose_directories_are_trusted(
    owner: str, mode: int, own: bool, prebuilt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    DiskCache(str(tmp_path)).store(NAME, {}, b"x")
    os.chmod(path(DiskCache(str(tmp_path))), mode & 0o666)
    os.chmod(tmp_path, mode)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    user = {"me": 1000, "root": 0, "another": 1001}[owner]
    for name in ("stat", "fstat"):
        real = getattr(os, name)

        def owned(what: Any, real: Any = real, **options: Any) -> os.stat_result:
            info = real(what, **options)
            return os.stat_result((*info[:4], user, *info[5:]))

        monkeypatch.setattr(os, name, owned)
    for cache, trusted in ((DiskCache(str(tmp_path)), own), (prebuilt_at(str(tmp_path)), prebuilt)):
        if trusted:
            assert cache.load(NAME) is not None
        else:
            with pytest.raises(CacheError, match="belongs to another user, or others may write into it"):
                cache.load(NAME)


def test_nothing_of_what_is_prebuilt_is_evicted_or_touched(tmp_path: Path) -> None:
    prebuilt = prebuilt_at(str(tmp_path))
    prebuilt.store(NAME, {}, b"x")
    os.utime(path(prebuilt), (1, 1))
    assert prebuilt.load(NAME) is not None
    assert path(prebuilt).stat().st_mtime == 1
    assert prebuilt.limit_bytes is None
    prebuilt.store(OTHER, {}, bytes(1000))
    assert {entry.name for entry in prebuilt.entries()} == {NAME, OTHER}


def test_the_environment_names_prebuilt_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOWLEVEL_REDUCE_PREBUILT_DIR", raising=False)
    assert open_prebuilt() is None
    monkeypatch.setenv("LOWLEVEL_REDUCE_PREBUILT_DIR", "")
    assert open_prebuilt() is None
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOWLEVEL_REDUCE_PREBUILT_DIR", "~/kernels")
    with pytest.raises(CacheError, match=r"LOWLEVEL_REDUCE_PREBUILT_DIR names .*kernels, which is no directory"):
        open_prebuilt()
    (tmp_path / "kernels").mkdir()
    found = open_prebuilt()
    assert found is not None
    assert found.directory == str(tmp_path / "kernels")


def test_what_cannot_be_prebuilt_says_where(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CacheError, match="cannot write to the directory of prebuilt kernels in .*file") as caught:
        prebuilt_at(str(tmp_path / "file")).store(NAME, {}, b"")
    assert "CACHE_DIR" not in str(caught.value)


@pytest.mark.slow
def test_two_processes_store_at_once(tmp_path: Path) -> None:
    # Both rewrite the same entries while this process reads them: it may see either version, never a mixture.
    script = (
        "import sys; from lowlevel_reduce.compiler.cache import DiskCache\n"
        "cache = DiskCache(sys.argv[1], limit_bytes=30_000)\n"
        "for i in range(100):\n"
        "    cache.store(f'cubin-{i % 5:064x}.llr', {'who': sys.argv[2]}, sys.argv[2].encode() * 10_000)\n"
    )
    directory = str(tmp_path / "cache")
    processes = [subprocess.Popen([sys.executable, "-c", script, directory, who], env=environment()) for who in "ab"]
    cache, seen = DiskCache(directory), set()
    while any(process.poll() is None for process in processes):
        for i in range(5):
            stored = cache.load(f"cubin-{i:064x}.llr")
            if stored is not None:
                assert stored.payload == stored.metadata["who"].encode() * 10_000
                seen.add(stored.metadata["who"])
    assert [process.wait() for process in processes] == [0, 0]
    assert seen
    assert not [name for name in os.listdir(directory) if name.endswith("-tmp")]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
