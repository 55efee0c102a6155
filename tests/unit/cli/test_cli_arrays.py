"""The ``reduce`` command's arrays: archives, standard input, options, result files, and damage told in words."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import lowlevel_reduce as lr
from lowlevel_reduce import tree
from lowlevel_reduce.cli import app, arrays
from lowlevel_reduce.cli import reduce as command

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4) / 8


def run(*arguments, data=None):
    return CliRunner().invoke(app.app, [str(argument) for argument in arguments], input=data)


def saved(values, name="x"):
    stream = io.BytesIO()
    np.savez(stream, **{name: values})
    return stream.getvalue()


def as_npy(values):
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


@pytest.fixture
def answered(monkeypatch):
    """Replace the reduction; the test sees what it was asked."""
    asked = []

    class Answer:
        def __init__(self, value):
            self.value = value

        def numpy(self):
            return np.asarray(self.value)

    def reduce(x, op, **options):
        for name in ("stream", "progress", "max_device_bytes"):
            options.pop(name, None)
        asked.append((np.load(x) if isinstance(x, Path) else np.asarray(x), op, options))
        return Answer(np.float32(7))

    monkeypatch.setattr(command.lr, "reduce", reduce)
    monkeypatch.setattr(command.lr, "reduce_large", reduce)
    return asked


@pytest.mark.parametrize("how", ["npz", "npz of several", "npy on stdin", "npz on stdin"])
def test_where_an_array_may_come_from(tmp_path, answered, how):
    file, more, data = tmp_path / "x.npz", [], None
    if how == "npz":
        file.write_bytes(saved(VALUES))
    elif how == "npz of several":
        np.savez(file, other=np.ones(2), mine=VALUES)
        more = ["--key", "mine"]
    else:
        file, data = "-", as_npy(VALUES) if how.startswith("npy") else saved(VALUES)
    done = run("reduce", file, "--device", "simulator", *more, data=data)
    assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(answered[0][0], VALUES)


def test_every_option_reaches_the_reduction(tmp_path, answered):
    np.save(tmp_path / "x.npy", VALUES)
    np.save(tmp_path / "mask.npy", VALUES > 1)
    np.save(tmp_path / "y.npy", VALUES)
    more = ["--op", "max", "--axis", "0", "--keepdims", "--nan", "ignore", "--ddof", "1", "--last", "--map", "x * x",
            "--strategy", "two_pass", "--initial", "-3", "--where", tmp_path / "mask.npy"]  # fmt: skip
    assert run("reduce", tmp_path / "x.npy", "--device", "simulator", *more).exit_code == 0
    _, op, options = answered[0]
    mask = options.pop("where")
    assert op == "max"
    np.testing.assert_array_equal(mask, VALUES > 1)
    assert options == {"axis": 0, "keepdims": True, "nan": "ignore", "ddof": 1.0, "last": True, "map": "x * x",
                       "strategy": "two_pass", "initial": -3}  # fmt: skip
    assert run("reduce", tmp_path / "x.npy", "--second", tmp_path / "y.npy", "--device", "simulator").exit_code == 0
    np.testing.assert_array_equal(answered[1][2]["second"], VALUES)
    assert run("reduce", tmp_path / "x.npy", "--device", "simulator").exit_code == 0
    assert answered[2][2] == {}, "what was not asked for is not passed"


def test_files_of_whole_arrays_are_read_without_their_mapping(tmp_path, answered, monkeypatch):
    """Somebody may cut them short, and a mapping would then end the process."""
    np.save(tmp_path / "x.npy", np.asfortranarray(VALUES))
    np.save(tmp_path / "mask.npy", VALUES > 1)
    reduce, mapped = command.lr.reduce, []

    def watched(x, op, **options):
        mapped.extend(isinstance(each, np.memmap) for each in (x, options["where"]))
        return reduce(x, op, **options)

    monkeypatch.setattr(command.lr, "reduce", watched)
    done = run("reduce", tmp_path / "x.npy", "--where", tmp_path / "mask.npy", "--device", "simulator")
    assert done.exit_code == 0, done.output
    assert mapped == [False, False]
    np.testing.assert_array_equal(answered[0][0], VALUES)
    np.testing.assert_array_equal(answered[0][2]["where"], VALUES > 1)


@pytest.mark.parametrize("pieces", ["several files", "a limit"])
@pytest.mark.parametrize("option", ["where", "second", "strategy"])
def test_what_needs_the_whole_array_is_not_dropped_for_pieces(tmp_path, answered, option, pieces):
    file, value = tmp_path / "x.npy", tmp_path / "y.npy"
    np.save(file, VALUES)
    np.save(value, VALUES > 1)
    more = [file] if pieces == "several files" else ["--max-device-bytes", "64000"]
    given = "two_pass" if option == "strategy" else value
    done = run("reduce", file, *more, f"--{option}", given, "--device", "simulator")
    assert done.exit_code == 2
    assert f"--{option} goes with one array that is reduced as a whole, not with pieces of it" in done.stderr
    assert answered == []


def test_a_file_an_archive_and_standard_input_are_one_array(tmp_path):
    np.save(tmp_path / "x.npy", VALUES)
    (tmp_path / "x.npz").write_bytes(saved(2 * VALUES))
    done = run("reduce", tmp_path / "x.npy", tmp_path / "x.npz", "-", "--device", "simulator", data=as_npy(4 * VALUES))
    assert done.exit_code == 0, done.stderr
    expected = tree.reduce(np.concatenate([VALUES, 2 * VALUES, 4 * VALUES]))
    assert done.stdout.splitlines()[-1] == str(expected)


def test_a_mask_and_a_second_array_on_the_host_are_read(tmp_path):
    np.save(tmp_path / "x.npy", VALUES)
    np.save(tmp_path / "mask.npy", VALUES > 1)
    for more, expected in (
        (["--where", tmp_path / "mask.npy"], tree.reduce(VALUES, where=VALUES > 1)),
        (["--op", "dot", "--second", tmp_path / "x.npy"], tree.reduce(VALUES, "dot", second=VALUES)),
    ):
        done = run("reduce", tmp_path / "x.npy", *more, "--device", "simulator")
        assert done.exit_code == 0, done.stderr
        assert done.stdout.splitlines()[-1] == str(expected)


@pytest.mark.parametrize(("text", "value"), [("3", 3), ("-2.5", -2.5), ("1e3", 1000.0), ("1+2j", 1 + 2j)])
def test_start_values(text, value):
    assert arrays.parse_scalar(text) == value
    assert type(arrays.parse_scalar(text)) is type(value)
    with pytest.raises(ValueError, match="a start value is a number, not 'x'"):
        arrays.parse_scalar("x")


def test_a_result_goes_to_a_file_and_not_to_the_output(tmp_path, answered):
    np.save(tmp_path / "x.npy", VALUES)
    done = run("reduce", tmp_path / "x.npy", "--out", tmp_path / "y.npy", "--device", "simulator")
    assert done.output == "simulated NVIDIA H200: as asked\n"
    assert np.load(tmp_path / "y.npy") == np.float32(7)
    assert run("reduce", tmp_path / "x.npy", "--out", tmp_path / "y.npz", "--device", "simulator").exit_code == 0
    with np.load(tmp_path / "y.npz") as archive:
        assert archive.files == ["sum"]


def test_several_results_have_their_names(tmp_path):
    target = tmp_path / "y.npz"
    arrays.save(target, (np.ones(2), np.zeros(2)), ("mean", "variance"))
    with np.load(target) as archive:
        assert sorted(archive.files) == ["mean", "variance"]
    with pytest.raises(ValueError, match="holds one array, and there are 2: name a .npz"):
        arrays.save(tmp_path / "y.npy", (np.ones(2), np.zeros(2)), ("mean", "variance"))
    found = tree.reduce(VALUES, "mean_var")
    assert command.result_names("mean_var", found) == type(found)._fields
    assert command.result_names("sum", (VALUES,)) == ("sum",)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("y.txt", "ends in none of .npy, .npz"),
        ("nowhere/y.npy", "there is no directory"),
        ("folder.npy", "is a directory"),
    ],
)
def test_result_files_that_cannot_be_written_are_refused_first(tmp_path, answered, target, words):
    np.save(tmp_path / "x.npy", VALUES)
    (tmp_path / "folder.npy").mkdir()
    done = run("reduce", tmp_path / "x.npy", "--out", tmp_path / target, "--device", "simulator")
    assert done.exit_code == 2
    assert words in done.output
    assert answered == []


def damaged_archive():
    """Return an archive in which a byte of the array was changed, so that its checksum is wrong."""
    data = bytearray(saved(VALUES))
    data[data.index(VALUES.tobytes()) + 5] ^= 1
    return bytes(data)


def other_archive(name, content):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (as_npy(VALUES)[:-4], "is cut off: it has fewer elements than its header says"),
        (as_npy(np.array([{}], object)), "holds Python objects, which are not read because they could run code"),
        (as_npy(VALUES)[:40] + b"\n" + as_npy(VALUES)[41:], "header"),
        (damaged_archive(), "is damaged, so that its archive cannot be read: Bad CRC-32"),
        (saved(VALUES)[:60], "is damaged, so that its archive cannot be read"),
        (saved(np.array([{}], object)), "holds Python objects"),
        (other_archive("x.npy", as_npy(VALUES)[:-4]), "is cut off"),
        (b"hello", "neither a .npy file nor a .npz archive"),
        (b"", "neither a .npy file nor a .npz archive"),
    ],
    # Not by the bytes of archives, in which the time is: processes that begin apart would collect other tests.
    ids=["cut", "objects", "header", "checksum", "archive cut", "archived objects", "cut inside", "text", "nothing"],
)
@pytest.mark.parametrize("stdin", [True, False])
def test_damage_is_told_in_words(tmp_path, content, words, stdin):
    file = tmp_path / "x.npy"
    file.write_bytes(content)
    done = run("reduce", "-" if stdin else file, "--device", "simulator", data=content)
    assert (done.exit_code, done.stdout) == (2, "")
    if words.startswith("neither") and not stdin:
        words = "is no .npy file, as numpy.save writes it, and no .npz archive"
    assert words in done.stderr
    assert ("standard input" if stdin else str(file)) in done.stderr
    assert done.stderr.count("\n") == 1


def test_arrays_of_an_archive_are_named(tmp_path):
    np.savez(tmp_path / "x.npz", a=VALUES, b=VALUES)
    np.save(tmp_path / "x.npy", VALUES)
    for file, more, words in (
        ("x.npz", [], "has 2 arrays, of which --key names one: a, b"),
        ("x.npz", ["--key", "c"], "has no array 'c'; it has a, b"),
        ("x.npy", ["--key", "a"], "--key is for .npz archives"),
    ):
        done = run("reduce", tmp_path / file, *more, "--device", "simulator")
        assert done.exit_code == 2
        assert words in done.stderr


def test_versions():
    done = run("--version")
    assert done.output == f"lowlevel-reduce {lr.__version__}, tree version {lr.__tree_version__}\n"
