"""The commands that run a query or a replica: on this machine, or in the pods that the operator creates.

A query's command reads it (``query``), which starts the JVM, and runs a ``run.job.Job`` under a handler of signals.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.commands.problems import print_problems
from millrace_jobs.commands.query import Debug, FileOrInput, QueryFile, QueryName, given_file, query_for_spark
from millrace_support.extras import extras_reported
from millrace_support.query_targets import ConnectionFiles

if TYPE_CHECKING:
    from millrace_api.model.streamquery import StreamQuery
    from millrace_jobs.pod.driver_pod import DriverPod
    from millrace_jobs.pod.versions import LoadedVersion
    from millrace_jobs.run.job import Job

Grace = Annotated[float, typer.Option(min=0, help="Seconds that the running batch may take after Ctrl-C or SIGTERM.")]

GRACE = 25.0
"""Default of ``--grace``, in seconds; Kubernetes gives a pod 30 s by default."""


def run(
    file: FileOrInput,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Process the available records, close all windows for good, then exit.",
        ),
    ] = False,
    available_now: Annotated[
        bool,
        typer.Option("--available-now", help="Process the available records, leave windows open, then exit."),
    ] = False,
    plan: Annotated[Path | None, typer.Option(help="Plan file to follow while the query runs.")] = None,
    query: QueryName = None,
    connections: ConnectionFiles = None,
    metrics_port: Annotated[int, typer.Option(help="Port on 127.0.0.1 of page and /metrics; 0 is any free one.")] = 0,
    lookups_port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1 for look-ups in a result table; 0 is any free one.")
    ] = 0,
    record: Annotated[
        Path | None,
        typer.Option(help="File for a record of the run, at most 8 MiB, of which millrace report makes a page."),
    ] = None,
    grace: Grace = GRACE,
    debug: Debug = False,
) -> None:
    """Run a query in this process, with local Spark; Ctrl-C and SIGTERM end it after the running batch."""
    began = time.monotonic()
    if once and available_now:
        raise typer.BadParameter("--once closes all windows at the end, --available-now leaves them open: choose one")

    def job() -> Job:
        chosen = query_for_spark(given, query, connections, debug=debug)
        typer.echo(f"starting={chosen.name}", err=True)
        from millrace_jobs.run.job import Job
        from millrace_jobs.run.platform import OneProcess

        ends = once or available_now
        platform = OneProcess(plan)
        ports = (metrics_port, lookups_port)
        job = Job(chosen, platform, ends, *ports, debug, given.path, leaves_open=available_now, began=began)
        job.record = record
        return job

    with given_file(file) as given:
        run_job(job, grace)


def driver(
    file: QueryFile,
    plan: Annotated[Path, typer.Option(help="Path at which the ConfigMap with the plan is mounted.")],
    plan_config_map: Annotated[str, typer.Option(help="Name of that ConfigMap.")],
    metrics_port: Annotated[int, typer.Option(help="Port of the live page, /metrics, /healthz and /readyz.")] = 8080,
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
        chosen = query_for_spark(file, None, None, debug=True, in_pod=True)
        typer.echo(f"starting={chosen.name}", err=True)
        from millrace_jobs.pod.driver_pod import DriverPod
        from millrace_jobs.run.query_file import query_of

        platforms.append(DriverPod(plan_config_map, plan, auth_secret, file, partial(query_of, in_pod=True)))
        return job_of(platforms[0].first_version(), chosen)

    def job_of(version: LoadedVersion, mounted: StreamQuery | None = None) -> Job:
        from millrace_jobs.confinement import confine
        from millrace_jobs.run.job import Job

        confine(version.file)
        chosen, ports = version.query or mounted, (metrics_port, lookups_port)
        assert chosen is not None
        return Job(chosen, platforms[0], False, *ports, debug=True, file=version.file, service_port=service_port)

    def following() -> Job | None:
        version = platforms[0].next_version()
        return None if version is None else job_of(version)

    platforms: list[DriverPod] = []
    run_job(job, grace, following)


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


def run_job(create_job: Callable[[], Job], grace: float, following: Callable[[], Job | None] = lambda: None) -> None:
    """Run a job until it ends, or until its running batch ends after Ctrl-C or SIGTERM; report a failure.

    ``following`` returns the job that takes over from one that has given way.
    """
    from millrace_jobs.process import jvm
    from millrace_jobs.process.signals import GracefulShutdown
    from millrace_jobs.run.failures import write_report

    try:
        with extras_reported():
            jobs = [create_job()]  # the last one runs; no name keeps an earlier one
            jobs[0].grace = grace
    except Exception as error:  # a mistake of ours, too, would leave the JVM behind
        jvm.end_unused()
        write_report(error)
        raise

    def give_up() -> None:
        error = MillraceError(_overdue(grace, starting=jobs[-1].is_starting))
        jobs[-1].abandon()
        print_problems(error.problems)
        write_report(error)
        os._exit(1)

    shutdown = GracefulShutdown(lambda: jobs[-1].stop(), lambda: jobs[-1].abandon(), give_up, grace)
    try:
        with jobs[0]:
            shutdown.listen()
            jobs[0].run()
        while jobs[-1].gives_way and (after := following()) is not None:
            before = jobs[-1]
            after.follow(before)
            with after:
                jobs[:] = [after]
                if before.stop_requested:  # by a signal until now
                    after.stop()
                del before
                after.run()
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
