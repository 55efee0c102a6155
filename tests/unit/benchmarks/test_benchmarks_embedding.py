"""The figures of embedding: what is timed is right; and docs/embedding.md is as the newest file says. No times."""

import pytest

import lowlevel_reduce as lr
from benchmarks.measure import records, timing
from benchmarks.measure.figures import FileError
from benchmarks.pages import embedding_doc
from benchmarks.profile import embedding

CONDITIONS = {
    "device": "D",
    "nvidia_smi": "580.1, 1980 MHz",
    "python": "3.12.3",
    "packages": {"cuda-bindings": "13.3", "numpy": "2.5"},
    "measured": "2026-01-02T03:04:05+00:00",
    "commit": "c0ffee",
}
BACK_TO_BACK = "back to back, 65536 float32"
TIMES = [
    (BACK_TO_BACK, "tiles, programmatic", 1.5),
    (BACK_TO_BACK, "tiles, serial", 2.25),
    ("host", "bare", 2.0),
    ("host", "bound launch", 3.0),
    ("beside torch", "torch.sum of 4096", 8.0),
    ("beside torch", "lr.sum of 4096", 7.0),
]


@pytest.fixture
def measured(tmp_path):
    """Return what writes a file of a date and rows, and what fills a page from all files."""

    def write(date, rows, **conditions):
        measured = {"measured": f"{date}T03:04:05+00:00"}
        file = tmp_path / f"{date}-h200-embedding.jsonl"
        records.begin(file, "embedding", CONDITIONS | measured | conditions)
        records.add(file, *rows)

    def fill(page):
        return embedding_doc.filled(page, tmp_path)

    rows = [{"suite": suite, "name": name, "us": us} for suite, name, us in TIMES]
    write("2026-01-09", [{**row, "us": 99.0} for row in rows], measured="2026-01-01T00:00:00+00:00")
    write("2026-01-02", [*rows, {"suite": "a million launches", "name": "bound launch", "grew_bytes": 4096}])
    return write, fill


def page_of(suite):
    return f"x\n<!-- table {suite} -->\nstale\n<!-- end -->\ny\n"


def test_the_page_is_what_was_measured(capsys):
    assert embedding_doc.main(["--check"]) == 0, capsys.readouterr().err


def test_the_page_tells_what_launches_cost():
    text = embedding_doc.PAGE.read_text(encoding="utf-8")
    assert [match[2] for match in embedding_doc._TABLE.finditer(text)] == [BACK_TO_BACK, "host", "beside torch"]
    assert len(embedding_doc._FIGURE.findall(text)) == 4
    assert len(embedding_doc._CONDITIONS.findall(text)) == 1


@pytest.mark.parametrize(
    ("was", "changed"), [("| `cluster` | 1.78 |", "| `cluster` | 1.96 |"), ("-->0<!--", "-->1<!--")]
)
def test_a_changed_page_is_noticed_and_mended(tmp_path, capsys, was, changed):
    page, text = tmp_path / "embedding.md", embedding_doc.PAGE.read_text(encoding="utf-8")
    assert was in text
    page.write_text(text.replace(was, changed, 1), encoding="utf-8")
    assert embedding_doc.main(["--check", "--page", str(page)]) == 1
    assert "run python -m benchmarks.pages.embedding_doc" in capsys.readouterr().err
    assert embedding_doc.main(["--page", str(page)]) == 0
    assert page.read_text(encoding="utf-8") == text


@pytest.mark.parametrize(
    ("suite", "line"),
    [
        (BACK_TO_BACK, "| strategy | programmatic, µs | serial, µs |"),
        (BACK_TO_BACK, "| `tiles` | 1.50 | 2.25 |"),
        ("host", "| call | µs | × bare |"),
        ("host", "| bound launch | 3.00 | 1.50 |"),
        ("beside torch", "| float32 elements | torch.sum, µs | lr.sum, µs |"),
        ("beside torch", "| 4,096 | 8.00 | 7.00 |"),
    ],
)
def test_a_table_is_that_of_the_newest_file(measured, suite, line):
    _, fill = measured
    made = fill(page_of(suite))
    assert line in made.splitlines()
    assert "stale" not in made
    assert fill(made) == made


def test_figures_and_conditions_are_those_of_the_newest_file(measured):
    _, fill = measured
    figure = "<!-- figure grew_bytes: a million launches: bound launch -->"
    assert fill(f"{figure}0<!-- . --> bytes") == f"{figure}4,096<!-- . --> bytes"
    made = fill("<!-- conditions -->\n<!-- end -->\n")
    assert "D, driver 580.1, Python 3.12.3, cuda-bindings 13.3, 2026-01-02, commit c0ffee" in made
    assert "`2026-01-02-h200-embedding.jsonl`" in made


@pytest.mark.parametrize(
    ("page", "message"),
    [
        (page_of("nothing"), "0 rows nothing"),
        (page_of("a million launches"), "bound launch has no us"),
        ("<!-- figure us: host: nobody -->1<!-- . -->", "0 rows host: nobody"),
        ("<!-- figure ns: host: bare -->1<!-- . -->", "bare has no ns"),
    ],
)
def test_a_figure_that_nobody_measured_is_refused(measured, page, message):
    _, fill = measured
    with pytest.raises(FileError, match=message):
        fill(page)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["tiles"], "'tiles' is no name"),
        (["tiles, serial", "cluster, programmatic"], "cluster has programmatic, not serial"),
    ],
)
def test_rows_that_make_no_table_are_refused(measured, names, message):
    write, fill = measured
    write("2026-01-03", [{"suite": BACK_TO_BACK, "name": name, "us": 1.0} for name in names])
    with pytest.raises(FileError, match=message):
        fill(page_of(BACK_TO_BACK))


def test_a_file_of_something_else_is_refused(tmp_path, capsys):
    with pytest.raises(FileError, match="there is no"):
        embedding_doc.filled("", tmp_path)
    (tmp_path / "2026-01-01-h200-embedding.jsonl").write_text("[]", encoding="utf-8")
    assert embedding_doc.main(["--check", "--results", str(tmp_path)]) == 2
    assert "line 1 is no JSON object" in capsys.readouterr().err


@pytest.fixture
def untimed(monkeypatch):
    """Yield a simulated stream, on which calls are made and checked and every time is the same."""
    monkeypatch.setattr(embedding, "ROUNDS", 1)
    monkeypatch.setattr(embedding, "replay_us", lambda launch, stream, *, launches: 1.0)
    monkeypatch.setattr(embedding, "host_us", lambda call, context: 1.0)
    monkeypatch.setattr(embedding, "_bare_by_address", embedding.bare_launch)  # of which the simulator has none
    with lr.simulator.use("H200"), timing.opened() as stream:
        yield stream


def test_a_launch_that_leaves_nothing_is_not_timed(untimed, monkeypatch):
    """Though it finds what the launch before it left."""
    usual, stream = embedding._launches, untimed
    assert len(embedding.back_to_back(stream.context, stream)) == 6

    def launches(context, stream, strategy, *, programmatic):
        if (strategy, programmatic) == ("tiles", False):
            return lambda source, result: None
        return usual(context, stream, strategy, programmatic=programmatic)

    monkeypatch.setattr(embedding, "_launches", launches)
    with pytest.raises(lr.ReduceError, match="tiles, serial: .* not timed"):
        embedding.back_to_back(stream.context, stream)


def test_a_call_that_leaves_nothing_is_not_timed(untimed, monkeypatch):
    assert len(embedding.host(untimed.context, untimed)) == 4
    monkeypatch.setattr(embedding, "bare_launch", lambda *arguments: lambda: None)
    with pytest.raises(lr.ReduceError, match="bare cuLaunchKernelEx: .* not timed"):
        embedding.host(untimed.context, untimed)
