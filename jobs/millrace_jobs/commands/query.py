"""The query of a command: the options that choose it, and how it is read before Spark starts."""

from __future__ import annotations

import atexit
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_api.errors import MillraceError, Problem

if TYPE_CHECKING:
    from millrace_api.model.streamquery import StreamQuery

STANDARD_INPUT = "-"
QueryFile = Annotated[Path, typer.Argument(help="YAML file with a StreamQuery.", show_default=False)]
FileOrInput = Annotated[
    Path, typer.Argument(help="YAML file with a StreamQuery; - is standard input.", show_default=False)
]
QueryName = Annotated[str | None, typer.Option(help="Name of the query, if the file has several.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and what Spark prints.")]


@dataclass(frozen=True)
class GivenFile:
    """A file of queries that a command was given, which can be read again and again."""

    path: Path
    folder: Path
    """Where the queries' own code is: beside the file, or in the working folder."""

    is_input: bool = False

    def named(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return problems with the file's name as users know it."""
        if not self.is_input:
            return list(problems)
        return [replace(each, file="stdin") if each.file == str(self.path) else each for each in problems]


@contextmanager
def given_file(file: Path) -> Iterator[GivenFile]:
    """Give the file to a block, whose errors have its name; what comes by standard input is copied."""
    if str(file) != STANDARD_INPUT:
        yield GivenFile(file, file.absolute().parent)
        return
    from millrace_jobs.disk import process_folder

    folder, _ = process_folder("millrace-stdin-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    given = GivenFile(folder / "stdin.yaml", Path.cwd(), is_input=True)
    given.path.write_bytes(sys.stdin.buffer.read())
    try:
        yield given
    except MillraceError as error:
        named = type(error)(*given.named(error.problems))
        named.failure = error.failure
        raise named from error


def query_for_spark(
    file: Path | GivenFile,
    name: str | None,
    connections: list[Path] | None,
    *,
    debug: bool,
    in_pod: bool = False,
) -> StreamQuery:
    """Read a query, fetch its own code, and start Spark's JVM early: it starts more slowly than the later imports."""
    from millrace_jobs.checkpoint.spark_settings import settings_of
    from millrace_jobs.own_code import own_code
    from millrace_jobs.process import jvm
    from millrace_jobs.run.query_file import errors_located_in, groups_in_python, query_of
    from millrace_jobs.stores.spark import use

    given = file if isinstance(file, GivenFile) else GivenFile(file, file.absolute().parent)
    query = query_of(given.path, name, connections or (), in_pod=in_pod, folder=given.folder)
    with errors_located_in(given.path, query.name):
        use(query.spec.s3, query.spec.azure)
        own_code.use(query.spec.code, given.folder)
        jvm.start(settings_of(query), quiet=not debug, grouping=groups_in_python(query))
    return query
