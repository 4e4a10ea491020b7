"""The command that writes a first query."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from millrace_api.errors import MillraceError, Problem, suggest

SAMPLE = "sample"
NONE = "none"


def init(
    file: Annotated[Path, typer.Argument(help="File to write.")] = Path("query.yaml"),
    sample: Annotated[
        bool, typer.Option("--sample", help="Records are sample data, a day of bicycle trips, written to trips.csv.")
    ] = False,
    input: Annotated[
        Path | None,
        typer.Option(
            help="Records are in this .csv, .json, .jsonl or .parquet file, or in the files of this folder.",
            show_default=False,
        ),
    ] = None,
    topic: Annotated[str | None, typer.Option(help="Records are the messages of this Kafka topic.")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Brokers of Kafka, host:port.")] = None,
    schema: Annotated[
        str | None, typer.Option(help="Columns of the topic's JSON messages, such as 'who STRING, at TIMESTAMP'.")
    ] = None,
    group_by: Annotated[str | None, typer.Option(help="Column to count records by; none: all together.")] = None,
    window: Annotated[
        str | None, typer.Option(help="Length of the windows, such as '1 hour'; none: no windows.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(help="Column with the event time; default: the first TIMESTAMP.", show_default=False)
    ] = None,
    output: Annotated[str | None, typer.Option(help="console, or a folder for CSV files.")] = None,
    output_topic: Annotated[str | None, typer.Option(help="Kafka topic for results, instead of --output.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Take the suggested answer to each question.")] = False,
) -> None:
    """Write a first query: where records come from, what to count, and where results go.

    Asks for what the options leave open. The columns are inferred from the first records of a file. Never overwrites.
    """
    from millrace_jobs.starter.columns import columns_of_ddl, columns_of_file, first_file, format_of
    from millrace_jobs.starter.query_text import CONSOLE, Answers, query_name, rejected_folder
    from millrace_jobs.starter.sample import write_trips

    _require_absent(file)
    if not file.parent.is_dir():
        message, hint = f"there is no folder {file.parent}", "make it, or write the file to another one"
        raise MillraceError(Problem(message, hint, str(file)))
    asks = not yes and _has_terminal()
    if sum((sample, input is not None, topic is not None)) > 1:
        raise typer.BadParameter("--sample, --input and --topic are three places that records come from: choose one")
    if not sample and input is None and topic is None:
        if not asks and not yes:
            raise _unanswered("--sample, --input FILE or --topic TOPIC")
        answer = (
            SAMPLE
            if yes
            else typer.prompt(
                "Records: a .csv, .json, .jsonl or .parquet file or a folder of them, kafka, or sample", SAMPLE
            )
        )
        if answer == "kafka":
            topic = typer.prompt("Kafka topic")
        elif answer == SAMPLE:
            sample = True
        else:
            input = Path(answer)
    if sample:
        input = file.with_name("trips.csv")
        _require_absent(input, f"use it by --input {input}, or write the query into another folder")

    def answered(given: str | None, question: str, suggested: str, option: str) -> str:
        if given is not None:
            return given
        if yes:
            return suggested
        if not asks:
            raise _unanswered(option)
        return str(typer.prompt(question, suggested))

    if topic is not None or output_topic is not None:
        bootstrap_servers = answered(bootstrap_servers, "Brokers of Kafka", "localhost:9092", "--bootstrap-servers")
    sampled = input
    if input is None:
        if schema is None and not asks:
            raise _unanswered("--schema 'COLUMN TYPE, ...'")
        columns = columns_of_ddl(
            schema or typer.prompt("Columns of its JSON messages, such as who STRING, at TIMESTAMP")
        )
    elif sample:
        write_trips(input)
        columns = columns_of_file(input)
    else:
        sampled, input = first_file(input)
        columns = columns_of_file(sampled)
    wanted = time or ("" if columns.times or window in (None, NONE) else next(iter(columns.text_times), ""))
    if pattern := columns.text_times.get(wanted):
        columns = columns.with_time(wanted)
        typer.echo(f"note: {wanted} is read as {pattern}; if that is wrong, correct timeFormats", err=True)
    for note in columns.time_notes:
        typer.echo(f"note: {note}", err=True)
    if columns.uneven:
        kept = f"the query keeps such records in {rejected_folder(query_name(file))}"
        do_not = "does not" if columns.uneven == 1 else "do not"
        typer.echo(f"note: {columns.uneven} of the first records {do_not} fit the header: {kept}", err=True)
    try:
        groups, times = columns.groups, columns.times
        chosen = answered(
            group_by,
            f"Count records by ({', '.join([*groups[:12], NONE])})",
            groups[0] if groups and groups[0] not in columns.text_times else NONE,
            "--group-by",
        )
        _require_column("--group-by", chosen, groups)
        length, event_time = NONE, time or (times[0] if times else "")
        if times or window not in (None, NONE):
            length = answered(window, f"Over windows of {event_time} (or {NONE})", "1 hour", "--window")
        if length != NONE:
            _require_column("--time", event_time, times)
        folder = CONSOLE if output_topic else answered(output, "Results: console, or a folder", CONSOLE, "--output")
        answers = Answers(
            columns,
            "" if chosen == NONE else chosen,
            "" if length == NONE else length,
            event_time,
            folder,
            input=input,
            format="json" if sampled is None else format_of(sampled),
            topic=topic or "",
            output_topic=output_topic or "",
            bootstrap_servers=bootstrap_servers or "",
        )
        _write(file, answers.text(file))
    except BaseException:
        if sample and input is not None:
            input.unlink(missing_ok=True)  # so that the command can be run again
        raise
    typer.echo(f"wrote {file}{f' and {input}' if sample else ''}; run it: millrace run {file}"
               + (" --once" if topic is None else ""))  # fmt: skip


def _write(file: Path, text: str) -> None:
    """Write the query, unless it has a problem."""
    from millrace_api.validation.loading import validate_file

    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except OSError as error:
        message = f"cannot be written: {error.strerror}"
        raise MillraceError(Problem(message, "write the name of a file in a folder that exists", str(file))) from None
    problems = validate_file(file)
    if problems:
        file.unlink()
        raise MillraceError(*problems)


def _has_terminal() -> bool:
    return sys.stdin.isatty()


def _require_absent(file: Path, hint: str = "write the name of another file") -> None:
    if file.exists():
        raise MillraceError(Problem("exists, and is not overwritten", hint, str(file)))


def _require_column(option: str, path: str, known: list[str]) -> None:
    if path == NONE and option == "--group-by":
        return
    if path not in known:
        what = "no column is a TIMESTAMP" if not path else f"{option} {path} is no column that can be used here"
        hint = suggest(path, known) if known else "write --window none"
        raise MillraceError(Problem(what, hint))


def _unanswered(options: str) -> MillraceError:
    """Return the error of a question that cannot be asked: there is no terminal, or --yes has no answer to it."""
    message = f"{options} is not given, and {'there is no terminal to ask on' if not _has_terminal() else '--yes'}"
    message += "" if not _has_terminal() else " has no suggestion for it"
    hint = (
        "give --sample, --input FILE, or --topic TOPIC with --schema and --bootstrap-servers; --group-by COLUMN, "
        "--window DURATION and --output console or FOLDER; or --yes for the suggested answers"
    )
    return MillraceError(Problem(message, hint))
