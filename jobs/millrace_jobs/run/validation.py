"""The checks of ``millrace validate``: every problem in a file of queries that can be found without a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import load_queries, locate, validate_file
from millrace_jobs.plan.checking import partitioner_problem

SHORTEST_SECONDS = 0.4
"""Approximate minimum time of a routed batch on two cores, in seconds (docs/benchmarks.md); a native one takes 0.3."""


def check_file(path: Path, *, inputs: bool = True) -> list[Problem]:
    """Return all problems of a file of queries, each with its line.

    Args:
        path: the file.
        inputs: whether to check the files that the sources read, as for a run on this machine.
    """
    problems = validate_file(path)
    if problems:
        return problems
    found = []
    for query in load_queries(path):
        problem = partitioner_problem(query.spec)
        of_query = [*([] if problem is None else [problem]), *(_input_problems(query) if inputs else ())]
        found += locate(of_query, path, query.name)
    return found


def notes_on(path: Path) -> list[Problem]:
    """Return warnings about settings that are allowed but work badly; the file must have no problems."""
    found = []
    for query in load_queries(path):
        if query.spec.batch_interval.seconds < SHORTEST_SECONDS:
            message = f"'{query.spec.batch_interval}' is shorter than any batch takes on two cores, 0.3 s to 0.4 s"
            hint = "W will stay above 1; write 400ms or more, unless nothing scales by W"
            found += locate([Problem(message, hint, field="spec.batchInterval")], path, query.name)
    return found


def _input_problems(query: StreamQuery) -> Iterator[Problem]:
    """Yield the problems of the files that a query's sources read."""
    from millrace_jobs.sources.opening import check_input  # imports Arrow, which is slow

    for name, source in query.spec.sources.items():
        if source.files is None and source.replay is None:
            continue
        with TemporaryDirectory() as nothing:
            try:
                check_input(name, source, _state_of(query, name) or Path(nothing))
            except MillraceError as error:
                for problem in error.problems:
                    said = str(replace(problem, hint=""))
                    yield Problem(said, problem.hint, field=f"spec.sources.{name}.{source.kind}.path")


def _state_of(query: StreamQuery, source: str) -> Path | None:
    """Return a source's folder in a local checkpoint, if any: it lists the files read, some of them perhaps deleted."""
    from millrace_jobs.checkpoint.checkpoint import checkpoint_root

    try:
        state = checkpoint_root(query) / "sources" / source
    except MillraceError:
        return None
    return state if state.exists() else None
