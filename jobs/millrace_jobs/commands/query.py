"""The query of a command: the options that choose it, and how it is read before Spark starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from millrace_api.model.streamquery import StreamQuery

QueryFile = Annotated[Path, typer.Argument(help="YAML file with a StreamQuery.", show_default=False)]
QueryName = Annotated[str | None, typer.Option(help="Name of the query, if the file has several.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and what Spark prints.")]


def query_for_spark(
    file: Path, name: str | None, connections: list[Path] | None, *, debug: bool, in_pod: bool = False
) -> StreamQuery:
    """Read a query, fetch its own code, and start Spark's JVM early: it starts more slowly than the later imports."""
    from millrace_jobs.checkpoint.spark_settings import settings_of
    from millrace_jobs.own_code import own_code
    from millrace_jobs.process import jvm
    from millrace_jobs.run.query_file import errors_located_in, groups_in_python, query_of
    from millrace_jobs.stores.spark import use

    query = query_of(file, name, connections or (), in_pod=in_pod)
    with errors_located_in(file, query.name):
        use(query.spec.s3, query.spec.azure)
        own_code.use(query.spec.code, file.absolute().parent)
        jvm.start(settings_of(query), quiet=not debug, grouping=groups_in_python(query))
    return query
