"""The commands that check queries and explain how they run, without running them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from millrace_api.errors import Problem
from millrace_jobs.commands.query import Debug, GivenFile, QueryName, given_file, query_for_spark
from millrace_support.query_targets import (
    ClusterOptions,
    ConnectionFiles,
    Context,
    Kubeconfig,
    Namespace,
    is_on_cluster,
    on_cluster,
)


def validate(
    files: Annotated[
        list[Path],
        typer.Argument(help="YAML files with StreamQueries and Connections; - is standard input.", show_default=False),
    ],
    connections: ConnectionFiles = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="text or json.")] = "text",
    inputs: Annotated[
        bool,
        typer.Option(help="Check the files that sources read, too; a cluster's files may not be here."),
    ] = True,
) -> None:
    """Check files without running them; report every problem, and exit with status 1 if there is one.

    No server is asked: whether topics exist and logins are accepted is checked first when millrace run starts.
    """
    from millrace_jobs.run.query_file import check_file, warnings_about

    problems: list[Problem] = []
    notes: list[Problem] = []
    for file in files:
        with given_file(file) as given:
            found = check_file(given.path, connections or (), inputs=inputs, folder=given.folder)
            problems += given.named(found)
            notes += [] if found else given.named(warnings_about(given.path, connections or ()))
    if format == "json":
        typer.echo(json.dumps([asdict(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            typer.echo(str(problem))
        if not problems:
            for note in notes:
                typer.echo(f"note: {note}")
            typer.echo(f"{len(files)} file{'s' * (len(files) > 1)} without a problem")
    raise typer.Exit(1 if problems else 0)


def explain(
    target: Annotated[
        str,
        typer.Argument(
            help="YAML file with a StreamQuery, - for standard input, or the name of one on the cluster.",
            show_default=False,
        ),
    ],
    plan: Annotated[Path | None, typer.Option(help="Plan file to explain the query of a file under.")] = None,
    query: QueryName = None,
    connections: ConnectionFiles = None,
    debug: Debug = False,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Explain how a query runs, and why.

    For a file: whether the query is routed or runs natively, and why, and its plan. For a query on the cluster:
    its last scaling decision in full.
    """
    cluster = ClusterOptions(namespace, context, kubeconfig)
    if is_on_cluster(target, cluster, {"--plan": plan, "--query": query, "--connections": connections}):
        on_cluster["explain"](target, cluster)
        return
    with given_file(Path(target)) as given:
        _explain_file(given, plan, query, connections, debug=debug)


def _explain_file(
    given: GivenFile, plan: Path | None, query: str | None, connections: list[Path] | None, *, debug: bool
) -> None:
    chosen = query_for_spark(given, query, connections, debug=debug)
    from millrace_api.validation.connections import used_connections
    from millrace_jobs.run.job import Job
    from millrace_jobs.run.platform import OneProcess

    with Job(chosen, OneProcess(plan), debug=debug, file=given.path) as job:
        typer.echo(job.explain())
    for name, kafka in used_connections(chosen.spec).items():
        typer.echo(f"connection {name}: Kafka at {kafka.bootstrap_servers}")
