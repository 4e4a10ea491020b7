"""The command that looks up rows of a running query's result table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from millrace_jobs.commands.query import QueryName
from millrace_support.query_targets import (
    ClusterOptions,
    ConnectionFiles,
    Context,
    Kubeconfig,
    Namespace,
    is_on_cluster,
    on_cluster,
)

Keys = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[KEY]...",
        help="Keys: the text of the key column; for several columns a,b or a JSON array. Without KEY, the first rows.",
        show_default=False,
    ),
]
Prefix = Annotated[
    bool, typer.Option("--prefix", help="Show all rows whose first key columns are KEY; its last text may end with *.")
]
WindowStart = Annotated[
    str | None, typer.Option("--window", help="Start of the window; KEY then has only the other key columns.")
]
AtTime = Annotated[
    str | None, typer.Option("--at", help="Event time: rows as they were then, where the table keeps a history.")
]
Limit = Annotated[int | None, typer.Option(help="Most rows of a page, up to 1000; by default 100.", show_default=False)]
After = Annotated[str | None, typer.Option(help="Continue after the page that ended with this.")]
AnswerFormat = Annotated[Literal["table", "json"], typer.Option(help="table, or json.")]


def get(
    target: Annotated[
        str,
        typer.Argument(
            help="Name of a StreamQuery on the cluster; the YAML file of one that runs on this machine; or a URL.",
            show_default=False,
        ),
    ],
    keys: Keys = None,
    prefix: Prefix = False,
    window: WindowStart = None,
    at: AtTime = None,
    limit: Limit = None,
    after: After = None,
    format: AnswerFormat = "table",
    query: QueryName = None,
    connections: ConnectionFiles = None,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Look up rows of a running query's result table, as of a committed batch.

    Without KEY, show the first rows in the order of keys. Exit with status 1 if a KEY has no row.
    """
    from millrace_support.lookups import Lookup, look_up_at, show_answer

    cluster = ClusterOptions(namespace, context, kubeconfig)
    named = is_on_cluster(target, cluster, {"--query": query, "--connections": connections})
    lookup = Lookup(keys or (), prefix, window, at, limit, after)
    if named:
        answer = on_cluster["get"](target, cluster, lookup)
    elif target.startswith(("http://", "https://")):
        answer = look_up_at(target, lookup)
    else:
        from millrace_jobs.run.lookups import table_url
        from millrace_jobs.run.query_file import errors_located_in, query_of

        file = Path(target)
        chosen = query_of(file, query, connections or ())
        with errors_located_in(file, chosen.name):
            url = table_url(chosen, file)
        answer = look_up_at(url, lookup, chosen.name)
    if not show_answer(answer, lookup, as_json=format == "json"):
        raise typer.Exit(1)
