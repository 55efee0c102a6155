"""The commands and their options; each command collects its arguments and leaves the work to a module of its own."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from lowlevel_reduce.cli import exercise
from lowlevel_reduce.cli.output import WRONG_RESULT, clean_errors, note, show, write_json
from lowlevel_reduce.cli.session import Session, Target, open_session

__all__ = ["app"]

app = typer.Typer(
    help="GPU reductions at the driver level: look at the machine, reduce a file, climb the ladder.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # usage errors in plain lines, not in boxes
    pretty_exceptions_enable=False,
)

app.add_typer(exercise.app, name="exercise")

Device = Annotated[
    Target | None, typer.Option("--device", help="Default: the GPU; without a driver the simulator, and it says so.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON alone on stdout; a NaN or infinity is a string.")]


class ElementName(str, Enum):
    """The values of ``ladder --dtype``."""

    float32 = "float32"
    float16 = "float16"


def _version(asked: bool) -> None:
    if asked:
        import lowlevel_reduce as lr  # noqa: PLC0415

        typer.echo(f"lowlevel-reduce {lr.__version__}, tree version {lr.__tree_version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and the tree's.")
    ] = False,
) -> None:
    """GPU reductions at the driver level: look at the machine, reduce a file, climb the ladder."""


@app.command()
def info(
    as_json: Json = False,
    timing: Annotated[
        bool, typer.Option("--timing", help="Time the parts of a fresh process's first result instead.")
    ] = False,
) -> None:
    """Show the driver, the devices and what they can do, NVRTC, where compiled kernels are stored, and the bindings."""
    from lowlevel_reduce.cli import info as command  # noqa: PLC0415 - each command pays for its own imports

    with clean_errors():
        if timing:
            _time_first_call(as_json=as_json)
            return
        facts = command.gather()
        if as_json:
            write_json(facts)
            return
        for part in command.render(facts):
            show(part)


@app.command()
def reduce(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE.npy|npz|-", help="The array; several are one, joined; - for standard input."),
    ],
    op: Annotated[str, typer.Option("--op", help="The operator.")] = "sum",
    axis: Annotated[str | None, typer.Option(help="An axis, or several with commas; default: all.")] = None,
    keepdims: Annotated[bool, typer.Option("--keepdims", help="Keep reduced axes, with length 1.")] = False,
    dtype: Annotated[str | None, typer.Option(help="The result's type.")] = None,
    accumulate: Annotated[str | None, typer.Option(help="The accumulator, e.g. float64 or compensated.")] = None,
    nan: Annotated[str | None, typer.Option(help="propagate or ignore.")] = None,
    where: Annotated[Path | None, typer.Option(metavar="FILE.npy", help="A mask of the elements to take.")] = None,
    second: Annotated[Path | None, typer.Option(metavar="FILE.npy", help="The second array, e.g. of dot.")] = None,
    initial: Annotated[str | None, typer.Option(metavar="NUMBER", help="The start value.")] = None,
    ddof: Annotated[float | None, typer.Option(help="Subtracted from the divisor of var and std.")] = None,
    last: Annotated[bool, typer.Option("--last", help="argmin, argmax: the last of equal values.")] = False,
    map: Annotated[str | None, typer.Option(metavar="EXPRESSION", help='Of each element x, e.g. "x * x".')] = None,
    strategy: Annotated[str | None, typer.Option(help="Force a strategy; all give the same bits.")] = None,
    key: Annotated[str | None, typer.Option(metavar="NAME", help="The array of an archive that has several.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.npy|npz", help="Write the result instead of printing it.")
    ] = None,
    max_device_bytes: Annotated[int | None, typer.Option(help="How much device memory to use.")] = None,
    device: Device = None,
    as_json: Json = False,
) -> None:
    """Reduce the array in one or more files; the bits of the result are the same on every device."""
    import lowlevel_reduce as lr  # noqa: PLC0415
    from lowlevel_reduce.cli import arrays  # noqa: PLC0415
    from lowlevel_reduce.cli import reduce as command  # noqa: PLC0415

    given = {
        "keepdims": keepdims or None, "dtype": dtype, "accumulate": accumulate, "nan": nan, "ddof": ddof,
        "last": last or None, "map": map, "strategy": strategy,
    }  # fmt: skip
    with clean_errors():
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if axis is not None:
            options["axis"] = command.parse_axis(axis)
        if initial is not None:
            options["initial"] = arrays.parse_scalar(initial)
        if out is not None:
            arrays.check_target(out)
        loaded = [command.load(file, key) for file in files]
        options |= {name: command.load(path) for name, path in (("where", where), ("second", second)) if path}
        with open_session(device) as session:
            _say_where(session, as_json=as_json)
            with lr.Stream.create(session.context) as stream:
                values = command.reduce_on(stream, files, loaded, op, options, max_device_bytes)
        if out is not None:
            arrays.save(out, values, command.result_names(op, values))
        if as_json:
            write_json(command.describe(files, loaded, op, options, values))
            return
        for value in () if out is not None else values:
            typer.echo(str(value if value.ndim else value[()]))


@app.command()
def ladder(
    system: Annotated[str | None, typer.Option(help="A to E, or all; default: A, or all with --rungs.")] = None,
    rungs: Annotated[list[str] | None, typer.Option(help="Rungs: with commas, or option by option.")] = None,
    n: Annotated[int | None, typer.Option("--n", min=0, help="Elements; 100000000, or 65539 where simulated.")] = None,
    block: Annotated[int, typer.Option(help="Threads of a block.")] = 256,
    repeat: Annotated[int, typer.Option(min=1, help="Launches to time.")] = 5,
    dtype: Annotated[ElementName, typer.Option(help="Type of the elements.")] = ElementName.float32,
    device: Device = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON alone on stdout; null where there is no number.")
    ] = False,
    plot: Annotated[Path | None, typer.Option(metavar="FILE.png|svg", help="Draw the pictures.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Write a page with everything.")] = None,
    source: Annotated[
        Path | None, typer.Option(metavar="FILE.cu|ptx", help="Examine a kernel of your own that sums, instead.")
    ] = None,
    entry: Annotated[str | None, typer.Option(help="With --source: the kernel, if there are several.")] = None,
    beside: Annotated[str | None, typer.Option(metavar="RUNG", help="With --source: count a rung beside it.")] = None,
    then: Annotated[str | None, typer.Option(metavar="KERNEL", help="With --source: what folds its partials.")] = None,
    signature: Annotated[
        str | None, typer.Option(metavar="TYPES", help='With --source: e.g. "const float*, float*, int".')
    ] = None,
    grid: Annotated[int | None, typer.Option(help="With --source: blocks; default: by --per-thread.")] = None,
    per_thread: Annotated[int, typer.Option(help="With --source: elements for each thread.")] = 1,
    shared: Annotated[int | None, typer.Option(metavar="BYTES", help="With --source: dynamic shared memory.")] = None,
    cluster: Annotated[int, typer.Option(help="With --source: blocks of a cluster.")] = 1,
    cooperative: Annotated[bool, typer.Option("--cooperative", help="With --source: all blocks at once.")] = False,
    result: Annotated[str, typer.Option(help="With --source: total, partials, or what it is seen to write.")] = "auto",
) -> None:
    """Run the rungs from a naive atomic to the memory roof; shows times on a GPU, counters on a simulated one.

    With --source, examine a kernel of your own: faults, lost elements and costs at the lines of its source.
    """
    from lowlevel_reduce.cli import ladder as command  # noqa: PLC0415
    from lowlevel_reduce.cli.rungs import select  # noqa: PLC0415

    if source is not None:
        from lowlevel_reduce.cli import own  # noqa: PLC0415
        from lowlevel_reduce.workbench import LaunchOptions  # noqa: PLC0415

        with clean_errors():
            launched = LaunchOptions(block=block, per_thread=per_thread, grid=grid, shared_bytes=shared,
                                    cluster=cluster, cooperative=cooperative, result=result)  # fmt: skip
            wanted = own.Wanted(source, entry, then, signature, beside, launched, n, repeat)
            command.refuse("is of the ladder's rungs: not with --source, which has --beside", rungs=rungs,
                           system=system, plot=plot, report=report, dtype=dtype.value != "float32")  # fmt: skip
            with open_session(device) as session:
                _say_where(session, as_json=as_json)
                right = own.run(wanted, session, as_json=as_json)
        if not right:
            raise typer.Exit(WRONG_RESULT)
        return
    with clean_errors():
        command.refuse("goes with --source", entry=entry, beside=beside, then=then, signature=signature,
                       grid=grid is not None, shared=shared is not None, per_thread=per_thread != 1,
                       cluster=cluster != 1, cooperative=cooperative, result=result != "auto")  # fmt: skip
        chosen = select(system, rungs or ())
        files = command.Files(plot, report)
        files.check()
        with open_session(device) as session:
            _say_where(session, as_json=as_json)
            options = command.complete(n, dtype.value, block, repeat, session)
            results = command.run(chosen, options, session, as_json=as_json)
            files.write(results, options, session)
    if not all(result.as_expected for result in results):
        raise typer.Exit(WRONG_RESULT)


@app.command()
def order(
    kernel: Annotated[str, typer.Argument(metavar="FILE.cu|ptx|RUNG", help="A kernel of your own, or a rung.")],
    other: Annotated[str | None, typer.Option("--with", metavar="FILE|RUNG", help="Whether it adds alike.")] = None,
    n: Annotated[int, typer.Option("--n", min=1, help="Elements.")] = 64,
    entry: Annotated[str | None, typer.Option(help="The kernel of a file, if it has several.")] = None,
    then: Annotated[str | None, typer.Option(metavar="KERNEL", help="What folds its partials.")] = None,
    signature: Annotated[str | None, typer.Option(metavar="TYPES", help='E.g. "const float*, float*, int".')] = None,
    block: Annotated[int, typer.Option(help="Threads of a block; other sizes are tried, too.")] = 32,
    per_thread: Annotated[int, typer.Option(help="Elements for each thread of a file's kernel.")] = 1,
    grid: Annotated[int | None, typer.Option(help="Blocks of a file's kernel; default: by --per-thread.")] = None,
    shared: Annotated[int | None, typer.Option(metavar="BYTES", help="Dynamic shared memory of it.")] = None,
    cluster: Annotated[int, typer.Option(help="Blocks of a cluster of it.")] = 1,
    by: Annotated[str, typer.Option(help="trace, or masks for kernels that take their elements apart.")] = "trace",
    picture: Annotated[Path | None, typer.Option("--svg", metavar="FILE.svg", help="Draw the tree.")] = None,
    as_json: Json = False,
) -> None:
    """Show in which order a kernel adds, and whether that depends on launch or schedule; on the simulator."""
    from lowlevel_reduce.cli import order as command  # noqa: PLC0415
    from lowlevel_reduce.workbench import LaunchOptions  # noqa: PLC0415

    with clean_errors():
        options = LaunchOptions(block=block, per_thread=per_thread, grid=grid, shared_bytes=shared, cluster=cluster)
        same = command.run(
            command.Wanted(kernel, other, entry, then, signature, n, options, by, picture), as_json=as_json
        )
    if not same:
        raise typer.Exit(WRONG_RESULT)


@app.command()
def prebuild(
    ops: Annotated[
        list[str] | None, typer.Argument(metavar="OP...", help="One or more operators, e.g. sum max logsumexp.")
    ] = None,
    dtype: Annotated[list[str] | None, typer.Option(help="Element type; repeat for several. Default: float32.")] = None,
    segments: Annotated[
        bool, typer.Option("--segments", help="Compile the kernels of segmented_reduce instead.")
    ] = False,
    accumulate: Annotated[str | None, typer.Option(help="The accumulator, e.g. float64 or compensated.")] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            "--for", metavar="GPU", help='E.g. H200, "RTX 4090" or sm_89; repeat for several. Default: this GPU.'
        ),
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to keep them, for LOWLEVEL_REDUCE_PREBUILT_DIR. Default: the cache."),
    ] = None,
    wheel: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Build lowlevel-reduce-kernels there; without OP of a documented choice."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile all kernels of operators and types, for this machine's GPU or named ones, which need not be present."""
    from lowlevel_reduce.cli import prebuild as command  # noqa: PLC0415

    with clean_errors():
        if wheel is not None:
            if segments or accumulate is not None:
                raise ValueError("--segments and --accumulate do not go with --wheel")
            _build_wheel(wheel, ops or (), dtype or (), target or (), into, as_json=as_json)
            return
        if not ops:
            raise ValueError("which operators? Name one or more; only --wheel has a choice of its own")
        options = {} if accumulate is None else {"accumulate": accumulate}
        jobs = [
            (gpu, command.kernels(ops, dtype or ("float32",), gpu, segmented=segments, options=options))
            for gpu in command.targets_of(target or ())
        ]
        built = command.build(jobs, into)
        if as_json:
            write_json(command.as_objects(built))
        else:
            show(command.render(built))


def _time_first_call(*, as_json: bool) -> None:
    from lowlevel_reduce.cli import first_call as command  # noqa: PLC0415

    found = command.measured()
    if as_json:
        write_json(command.as_objects(found))
    else:
        show(command.render(found))


def _build_wheel(
    wheel: Path, ops: Sequence[str], dtypes: Sequence[str], names: Sequence[str], into: Path | None, *, as_json: bool
) -> None:
    from lowlevel_reduce.cli import wheel as command  # noqa: PLC0415

    report = command.build(wheel, ops, dtypes, names, into)
    if as_json:
        write_json(command.as_object(report))
    else:
        command.present(report)


@app.command(name="show")
def show_what_runs(
    context: typer.Context,
    op: Annotated[str, typer.Argument(metavar="OP", help="The operator.")] = "sum",
    shape: Annotated[str | None, typer.Option(help="Shape of the array, e.g. 4096x1000.")] = None,
    axis: Annotated[str | None, typer.Option(help="An axis, or several with commas; default: all.")] = None,
    dtype: Annotated[str, typer.Option(help="Type of the elements.")] = "float32",
    strides_bytes: Annotated[str | None, typer.Option(help="E.g. 8000,8; default: contiguous.")] = None,
    accumulate: Annotated[str | None, typer.Option(help="The accumulator, e.g. float64 or compensated.")] = None,
    result_dtype: Annotated[str | None, typer.Option(help="The result's type.")] = None,
    where: Annotated[bool, typer.Option("--where", help="There is a mask of the elements that take part.")] = False,
    initial: Annotated[bool, typer.Option("--initial", help="There is a start value.")] = False,
    nan: Annotated[str | None, typer.Option(help="propagate or ignore.")] = None,
    map: Annotated[str | None, typer.Option(metavar="EXPRESSION", help='Of each element x, e.g. "x * x".')] = None,
    strategy: Annotated[str | None, typer.Option(help="Force a strategy, e.g. two_pass.")] = None,
    cluster: Annotated[int | None, typer.Option(help="Force the blocks of a cluster.")] = None,
    block_threads: Annotated[int | None, typer.Option(help="Force the threads of a block.")] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="GPU", help="As for prebuild. Default: this GPU, or without a driver the simulated one."
        ),
    ] = None,
    multiprocessors: Annotated[int | None, typer.Option(help="How many the GPU has; with --for sm_….")] = None,
    sources: Annotated[str | None, typer.Option(metavar="DIR", help="Compile from another copy of cuda_src.")] = None,
    plan: Annotated[bool, typer.Option("--plan", help="What would be launched, and why. The default.")] = False,
    resources: Annotated[
        bool, typer.Option("--resources", help="Registers, spills, memory and bytes of code.")
    ] = False,
    ptx: Annotated[
        bool, typer.Option("--ptx", help="The PTX that the simulator runs, with the numbers of its lines.")
    ] = False,
    sass: Annotated[bool, typer.Option("--sass", help="The machine code, with addresses; needs nvdisasm.")] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="Above code, the line of CUDA C++ that it was compiled from.")
    ] = False,
    at: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Only the code near an address; in PTX, near a line.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OPTIONS", help='Show what differs with other options, e.g. "max --strategy rows" or "--for A100".'
        ),
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="As if NO_COLOR were set.")] = False,
    as_json: Json = False,
) -> None:
    """Show what would be launched for a reduction, what the kernels use, or their code; no GPU is needed."""
    from lowlevel_reduce.cli import show as command  # noqa: PLC0415

    with clean_errors():
        view = command.view_of(plan=plan, resources=resources, ptx=ptx, sass=sass)
        command.run(context, view, lines=lines, at=at, other=against, no_color=no_color, as_json=as_json)


@app.command()
def operators(
    as_json: Json = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as the README has it.")] = False,
) -> None:
    """Show every operator, the element types that it takes, their accumulators, and the accumulators' bytes."""
    from lowlevel_reduce.cli import operators as command  # noqa: PLC0415

    with clean_errors():
        if as_json:
            write_json(command.as_objects())
        elif markdown:
            typer.echo(command.markdown())
        else:
            show(command.render())


@app.command()
def attributes(device: Device = None, as_json: Json = False) -> None:
    """Show every launch attribute and its observed effect on this device, which should be idle."""
    from lowlevel_reduce.cli import attributes as command  # noqa: PLC0415
    from lowlevel_reduce.study.attributes import rows  # noqa: PLC0415

    with clean_errors():
        with open_session(device) as session:
            _say_where(session, as_json=as_json)
            seen = rows(session.context)
        if as_json:
            write_json(command.as_objects(seen))
        else:
            show(command.render(seen))


def _say_where(session: Session, *, as_json: bool) -> None:
    if session.note is not None:
        note(session.note, as_json=as_json)
