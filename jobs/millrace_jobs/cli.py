"""The command line: the commands that run, check and prepare queries, and those of other packages.

A command that runs a query reads it (``run.query_file``), starts the JVM (``jvm``), and runs a ``run.job.Job``.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.produce.command import produce
from millrace_jobs.run.checkpoint_command import checkpoint
from millrace_support.lookup_options import After, AnswerFormat, AtTime, Keys, Limit, Prefix, WindowStart
from millrace_support.query_targets import (
    ClusterOptions,
    ConnectionFiles,
    Context,
    Kubeconfig,
    Namespace,
    is_on_cluster,
    on_cluster,
)

if TYPE_CHECKING:
    from millrace_api.model.streamquery import StreamQuery
    from millrace_jobs.run.job import Job

app = typer.Typer(
    help="Streaming queries on Spark, placed by skew-aware partitioners.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

app.command()(produce)

state = typer.Typer(help="Show or repartition a query's state.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(state, name="state")
app.add_typer(checkpoint, name="checkpoint")

QueryFile = Annotated[Path, typer.Argument(help="YAML file with a StreamQuery.", show_default=False)]
QueryName = Annotated[str | None, typer.Option(help="Name of the query, if the file has several.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show tracebacks and what Spark prints.")]
Grace = Annotated[float, typer.Option(min=0, help="Seconds that the running batch may take after Ctrl-C or SIGTERM.")]

GRACE = 25.0
"""Default of ``--grace``, in seconds; Kubernetes gives a pod 30 s by default."""


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millrace {version('millrace')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of ``millrace`` itself, before any command."""


@app.command()
def run(
    file: QueryFile,
    once: Annotated[
        bool, typer.Option("--once", help="Process the available records, close all windows, then exit.")
    ] = False,
    available_now: Annotated[
        bool,
        typer.Option("--available-now", help="Process the available records, leave windows open, then exit."),
    ] = False,
    plan: Annotated[Path | None, typer.Option(help="Plan file to follow while the query runs.")] = None,
    query: QueryName = None,
    connections: ConnectionFiles = None,
    metrics_port: Annotated[int, typer.Option(help="Port on 127.0.0.1 for /metrics; 0 is any free one.")] = 0,
    lookups_port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1 for look-ups in a result table; 0 is any free one.")
    ] = 0,
    grace: Grace = GRACE,
    debug: Debug = False,
) -> None:
    """Run a query in this process, with local Spark; Ctrl-C and SIGTERM end it after the running batch."""
    if once and available_now:
        raise typer.BadParameter("--once closes all windows at the end, --available-now leaves them open: choose one")

    def job() -> Job:
        chosen = _query_for_spark(file, query, connections, debug=debug)
        typer.echo(f"starting={chosen.name}")
        from millrace_jobs.run.job import Job
        from millrace_jobs.run.platform import OneProcess

        ends = once or available_now
        platform = OneProcess(plan)
        return Job(chosen, platform, ends, metrics_port, lookups_port, debug, file, leaves_open=available_now)

    _run(job, grace)


@app.command()
def driver(
    file: QueryFile,
    plan: Annotated[Path, typer.Option(help="Path at which the ConfigMap with the plan is mounted.")],
    plan_config_map: Annotated[str, typer.Option(help="Name of that ConfigMap.")],
    metrics_port: Annotated[int, typer.Option(help="Port of /metrics, /healthz and /readyz.")] = 8080,
    lookups_port: Annotated[int, typer.Option(help="Port on 127.0.0.1 for look-ups.")] = 8081,
    service_port: Annotated[
        int, typer.Option(help="Port for look-ups by other pods, if spec.lookups is given.")
    ] = 8082,
    auth_secret: Annotated[
        Path | None,
        typer.Option(help="File with the secret of driver and executors, at the same path in both; none: no secret."),
    ] = None,
    grace: Grace = GRACE,
) -> None:
    """Run a query as the driver of this pod; only the pods that the operator creates need this command."""

    def job() -> Job:
        from millrace_jobs.confinement import confine

        confine(file)
        chosen = _query_for_spark(file, None, None, debug=True, in_pod=True)
        typer.echo(f"starting={chosen.name}")
        from millrace_jobs.pod.driver_pod import DriverPod
        from millrace_jobs.run.job import Job

        platform = DriverPod(plan_config_map, plan, auth_secret)
        ports = (metrics_port, lookups_port)
        return Job(chosen, platform, False, *ports, debug=True, file=file, service_port=service_port)

    _run(job, grace)


@app.command()
def partitioner(
    file: QueryFile,
    index: Annotated[int, typer.Option(min=0, help="Number of this replica.", show_default=False)],
    metrics_port: Annotated[
        int, typer.Option(help="Port of /metrics, /healthz and /readyz; 0 is any free one.")
    ] = 8080,
    host: Annotated[str, typer.Option(help="Address to serve them on.")] = "127.0.0.1",
    driver: Annotated[
        str, typer.Option(help="Work for this run alone, and end when the standard input closes.", hidden=True)
    ] = "",
) -> None:
    """Run one replica of a query's partitioner; runs and the operator start them for placement: Dedicated."""
    from millrace_jobs.confinement import confine
    from millrace_jobs.dedicated.command import run_replica
    from millrace_jobs.run.failures import write_report

    try:
        if not driver:
            confine(file)
        run_replica(file, index, host, metrics_port, driver)
    except Exception as error:
        write_report(error)
        raise


@app.command()
def validate(
    files: Annotated[
        list[Path], typer.Argument(help="YAML files with StreamQueries and Connections.", show_default=False)
    ],
    connections: ConnectionFiles = None,
    format: Annotated[Literal["text", "json"], typer.Option(help="text or json.")] = "text",
    inputs: Annotated[
        bool,
        typer.Option(help="Check the files that sources read, too; a cluster's files may not be here."),
    ] = True,
) -> None:
    """Check files without running them; report every problem, and exit with status 1 if there is one."""
    from millrace_jobs.run.query_file import check_file, warnings_about

    problems = [problem for file in files for problem in check_file(file, connections or (), inputs=inputs)]
    if format == "json":
        typer.echo(json.dumps([asdict(problem) for problem in problems], indent=2))
    else:
        for problem in problems:
            typer.echo(str(problem))
        if not problems:
            for note in (note for file in files for note in warnings_about(file, connections or ())):
                typer.echo(f"note: {note}")
            typer.echo(f"{len(files)} file{'s' * (len(files) > 1)} without a problem")
    raise typer.Exit(1 if problems else 0)


@app.command()
def explain(
    target: Annotated[
        str,
        typer.Argument(help="YAML file with a StreamQuery, or the name of one on the cluster.", show_default=False),
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
    file = Path(target)
    chosen = _query_for_spark(file, query, connections, debug=debug)
    from millrace_api.validation.connections import used_connections
    from millrace_jobs.run.job import Job
    from millrace_jobs.run.platform import OneProcess

    with Job(chosen, OneProcess(plan), debug=debug, file=file) as job:
        typer.echo(job.explain())
    for name, kafka in used_connections(chosen.spec).items():
        typer.echo(f"connection {name}: Kafka at {kafka.bootstrap_servers}")


@app.command()
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


@app.command("prepare")
def prepare_runs(
    s3: Annotated[bool, typer.Option("--s3", help="Also fetch Spark's client for S3, by Maven: 12 MB.")] = False,
    azure: Annotated[bool, typer.Option("--azure", help="Also fetch Spark's client for Azure: 0.6 MB.")] = False,
) -> None:
    """Compile once what every run needs, so that queries start sooner; takes about a minute and 200 MB."""
    from millrace_jobs.prepare import prepare

    prepare(typer.echo)
    for name, wanted in {"s3": s3, "azure": azure}.items():
        if wanted:
            from millrace_jobs.stores.spark import CLIENTS

            CLIENTS[name].fetch(typer.echo)


@app.command()
def crd(
    format: Annotated[
        Literal["yaml", "json-schema"], typer.Option(help="The CustomResourceDefinition, or a JSON schema for editors.")
    ] = "yaml",
    kind: Annotated[Literal["StreamQuery", "Connection"], typer.Option(help="Which kind of objects.")] = "StreamQuery",
) -> None:
    """Print the CustomResourceDefinition of StreamQuery, or of Connection."""
    from millrace_api.crd import crd_yaml, json_schema

    typer.echo(crd_yaml(kind) if format == "yaml" else json_schema(kind), nl=False)


@state.command("repartition")
def repartition_state(
    file: QueryFile,
    partitions: Annotated[int, typer.Option(help="State partitions from the next run on.", show_default=False)],
    query: QueryName = None,
    connections: ConnectionFiles = None,
    debug: Debug = False,
) -> None:
    """Redistribute the state of a stopped query over another number of partitions."""
    from millrace_jobs.run.query_file import errors_located_in, query_of
    from millrace_jobs.run.state import repartition

    chosen = query_of(file, query, connections or ())
    with errors_located_in(file, chosen.name):
        before = repartition(chosen, partitions, debug=debug)
    if before == partitions:
        typer.echo(f"the state of {chosen.name} has {partitions} partitions already")
    else:
        typer.echo(f"state partitions of {chosen.name}: {before} -> {partitions}")


@state.command("show")
def show_state(
    file: QueryFile,
    query: QueryName = None,
    connections: ConnectionFiles = None,
) -> None:
    """Show how many partitions a query's state has, how large it is on disk, and which batch was the last."""
    from millrace_jobs.run.query_file import errors_located_in, query_of
    from millrace_jobs.run.state import describe_state
    from millrace_jobs.stores.spark import use

    chosen = query_of(file, query, connections or ())
    with errors_located_in(file, chosen.name):
        use(chosen.spec.s3, chosen.spec.azure)
        typer.echo(describe_state(chosen))


def _query_for_spark(
    file: Path, name: str | None, connections: list[Path] | None, *, debug: bool, in_pod: bool = False
) -> StreamQuery:
    """Read a query, fetch its own code, and start Spark's JVM early: it starts more slowly than the later imports."""
    from millrace_jobs import jvm
    from millrace_jobs.checkpoint.spark_settings import settings_of
    from millrace_jobs.own_code import own_code
    from millrace_jobs.run.query_file import errors_located_in, query_of
    from millrace_jobs.stores.spark import use

    query = query_of(file, name, connections or (), in_pod=in_pod)
    with errors_located_in(file, query.name):
        use(query.spec.s3, query.spec.azure)
        own_code.use(query.spec.code, file.absolute().parent)
        jvm.start(settings_of(query), quiet=not debug)
    return query


def _run(create_job: Callable[[], Job], grace: float) -> None:
    """Run a job until it ends, or until its running batch ends after Ctrl-C or SIGTERM; report a failure."""
    from millrace_jobs import jvm
    from millrace_jobs.run.failures import write_report
    from millrace_jobs.signals import GracefulShutdown

    try:
        job = create_job()
    except MillraceError as error:
        jvm.end_unused()
        write_report(error)
        raise

    def give_up() -> None:
        error = MillraceError(_overdue(grace, starting=job.is_starting))
        job.abandon()
        _print_problems(error.problems)
        write_report(error)
        os._exit(1)

    shutdown = GracefulShutdown(job.stop, job.abandon, give_up, grace)
    try:
        with job:
            shutdown.listen()
            job.run()
    except Exception as error:
        write_report(error)
        raise
    finally:
        shutdown.cancel()


def _overdue(grace: float, *, starting: bool) -> Problem:
    """Return the problem to report when a run did not end within its grace period."""
    if starting:
        message = f"the run, which had not started yet, did not end within {grace:g} s and was abandoned"
        return Problem(message, "run the same command again: nothing is lost")
    message = f"the running batch did not end within {grace:g} s and was abandoned"
    hint = "run the same command again: it is computed again, and nothing is lost; --grace gives it more time"
    return Problem(message, hint)


@cache
def _add_other_commands() -> None:
    """Add the commands of other installed packages, found by entry point because this package imports none of them.

    Images lack ``millrace_research``, which the distribution's entry points name all the same.
    """
    for package in entry_points(group="millrace.commands"):
        if find_spec(package.module.partition(".")[0]):
            package.load()(app)


def main() -> None:
    """Run the command line; report a user error in one sentence and exit with its status."""
    try:
        _add_other_commands()
        app()
    except MillraceError as error:
        if "--debug" in sys.argv:
            raise
        _print_problems(error.problems)
        sys.exit(error.exit_status)
    except BrokenPipeError:
        sys.exit(141)
    except Exception as error:
        if "--debug" in sys.argv:
            raise
        first_line = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        _print_problems((Problem(f"this should not have happened: {first_line}", "run with --debug to see where"),))
        sys.exit(1)


def _print_problems(problems: tuple[Problem, ...]) -> None:
    console = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
    for problem in problems:
        console.print("[bold red]error:[/] ", end="")
        console.print(str(problem), markup=False)
