"""The YAML file of queries that a command names: the query to run, and the checks of ``millrace validate``.

A run starts Spark's JVM right after it has read its query, so this module imports Arrow and Numba only where needed.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import Algorithm, PlacementSetting
from millrace_api.model.s3 import S3Spec
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import load_queries, locate, query_documents, validate_file
from millrace_api.validation.places import is_object
from millrace_api.validation.store_costs import store_costs
from millrace_api.validation.unused_settings import unused_settings

SHORTEST_SECONDS = 0.4
"""Approximate minimum time of a routed batch on two cores, in seconds (docs/benchmarks.md); a native one takes 0.3."""


def query_of(
    file: Path,
    name: str | None = None,
    connections: Sequence[Path] = (),
    *,
    in_pod: bool = False,
    folder: Path | None = None,
) -> StreamQuery:
    """Read a query from a file, and make its own code importable.

    Args:
        file: YAML file with one or more queries, and perhaps with Connections.
        name: name of the query; None if the file has only one.
        connections: files with further Connections.
        in_pod: whether the file is the operator's. Its references are resolved; and aggregators may not be beside it,
            since it is in a ConfigMap, which others may write.
        folder: where aggregators and functions are; None for the file's folder.

    Raises:
        MillraceError: the file has problems, or ``name`` does not select exactly one of its queries.
    """
    queries = load_queries(file, connections, resolved=in_pod)
    chosen = [query for query in queries if name in (None, query.name)]
    if len(chosen) != 1:
        names = ", ".join(query.name for query in queries)
        message = f"the file has the queries {names}" if name is None else f"the file has no query {name}, only {names}"
        raise MillraceError(Problem(message, "choose one with --query NAME", str(file)))
    if in_pod:
        return chosen[0]
    folder = folder or file.absolute().parent
    query = chosen[0].spec.query
    if (query.python is not None or query.functions or query.aggregates) and os.pathsep in str(folder):
        message = f"Python cannot import modules from {folder}, which has a {os.pathsep!r} in its name"
        raise MillraceError(Problem(message, "rename the folder", str(file)))
    add_import_folder(folder)
    return chosen[0]


def groups_in_python(query: StreamQuery) -> bool:
    """Return whether it is sure before Spark starts that Python tasks hash keys: not where Spark's plan may do all."""
    spec = query.spec
    by_spark = spec.partitioner.algorithm in (Algorithm.AUTO, Algorithm.NATIVE)
    return spec.query.python is not None or not by_spark


@contextmanager
def errors_located_in(file: Path, name: str) -> Iterator[None]:
    """Give errors in this block the lines of the fields of the query ``name`` in its file."""
    try:
        yield
    except MillraceError as error:
        located = type(error)(*locate(error.problems, file, name))
        located.failure = error.failure
        raise located from error


def add_import_folder(folder: Path) -> None:
    """Make modules in a folder importable, in this process and in Spark's Python processes."""
    sys.path.insert(0, str(folder))
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)


@contextmanager
def importable_from(folder: Path) -> Iterator[None]:
    """Make modules in a folder importable in this block, and forget them after it: another query may have others."""
    place, known = str(folder), set(sys.modules)
    sys.path.insert(0, place)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(place)
        for name in sys.modules.keys() - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(f"{place}{os.sep}"):
                del sys.modules[name]


def check_file(
    path: Path, connections: Sequence[Path] = (), *, inputs: bool = True, folder: Path | None = None
) -> list[Problem]:
    """Return all problems of a file of queries and Connections, each with its line.

    Args:
        path: the file.
        connections: files with further Connections.
        inputs: whether to check the files that the sources read, as for a run on this machine.
        folder: where aggregators and functions are; None for the file's folder.
    """
    folder = folder or path.absolute().parent
    problems = validate_file(path, connections)
    if problems or not query_documents(path):
        return problems
    found = []
    for query in load_queries(path, connections):
        found += locate(query_problems(query, folder, inputs=inputs), path, query.name)
    return found


def query_problems(query: StreamQuery, folder: Path, *, inputs: bool = True) -> list[Problem]:
    """Return the problems that only a closer look at a valid query shows.

    Args:
        query: the query.
        folder: where its own code is.
        inputs: whether to check its code and the files that the sources read, as for a run on this machine.
    """
    from millrace_jobs.kafka.option_check import option_problems
    from millrace_jobs.plan.plan_source import partitioner_problem

    own = query.spec.partitioner.algorithm is Algorithm.PYTHON  # whose class is imported with the other own code
    problem = None if own else partitioner_problem(query.spec)
    found = [*([] if problem is None else [problem]), *execution_problems(query), *option_problems(query.spec)]
    if inputs:
        found += [*_code_problems(query, folder), *_input_problems(query)]
    return found


def warnings_about(path: Path, connections: Sequence[Path] = ()) -> list[Problem]:
    """Return warnings about settings that work badly, not at all, or for money; the file must have no problems."""
    found = []
    for query in load_queries(path, connections) if query_documents(path) else ():
        found += locate(query_warnings(query), path, query.name)
    return found


def query_warnings(query: StreamQuery) -> list[Problem]:
    """Return warnings about settings of a valid query that work badly, not at all, or for money."""
    found = []
    interval = query.spec.batch_interval
    if interval.seconds < SHORTEST_SECONDS:
        message = f"'{interval}' is shorter than the {SHORTEST_SECONDS:g} s of the smallest routed batch"
        hint = "W may stay above 1; write 400ms or more, unless nothing scales by W"
        found.append(Problem(message, hint, field="spec.batchInterval"))
    return [*found, *unused_settings(query.spec), *store_costs(query.spec)]


def execution_problems(query: StreamQuery) -> list[Problem]:
    """Return why nothing can run the SQL of a query, in the words of a run, as far as its declared types show it."""
    from millrace_api.sql.parsed_query import parsed_sql
    from millrace_api.validation.results import identified_by_run
    from millrace_jobs.queries.tables.needs import aggregates_twice, holds_back, may_retract, needs_tables

    spec, sql = query.spec, query.spec.query.sql
    dedicated = spec.partitioner.placement is PlacementSetting.DEDICATED
    if spec.query.python is not None and dedicated:
        from millrace_jobs.queries.dedicated_needs import source_problem

        problem = source_problem(spec.sources[spec.query.python.source or next(iter(spec.sources))])
        return [] if problem is None else [problem]
    if sql is None:
        return []
    sinks = [output.sink for output in spec.outputs.values()]
    by_run = any(sink.table is not None and not sink.table.key for sink in sinks) and identified_by_run(spec)
    asks = by_run or dedicated or any(sink.by_partition or sink.has_changelog for sink in sinks)
    if spec.query.aggregates is not None:
        return []  # see _problems_of_imported: it depends on the query's own code
    parsed = parsed_sql(spec).written_out
    more = holds_back(spec) or may_retract(spec, parsed) or aggregates_twice(parsed)
    if not (asks or more or needs_tables(spec, parsed)):
        return []  # Spark's own plan can run it, and no sink has more questions than the checks without a plan answer
    from millrace_jobs.queries.dry_compile import dry_compile

    return dry_compile(spec)


def _code_problems(query: StreamQuery, folder: Path) -> list[Problem]:
    """Return what keeps a query's own code from being fetched or used."""
    code = query.spec.code
    if not code:
        return _problems_of_imported(query, folder)
    if _has_keys_of_a_cluster(query.spec.s3) and any(is_object(file.uri or "") for file in code):
        return []  # the login is not on this machine
    from millrace_jobs.own_code.own_code import importable
    from millrace_jobs.stores.spark import using

    with TemporaryDirectory(prefix="millrace-code-") as kept:
        try:
            with using(query.spec.s3), importable(code, folder, Path(kept)):
                return _problems_of_imported(query, folder)
        except MillraceError as error:
            return list(error.problems)


def _problems_of_imported(query: StreamQuery, folder: Path) -> list[Problem]:
    """Return what keeps a query's own code from being used, once it can be imported."""
    checks = (_function_problems, _aggregator_problems, _source_problems, _sink_problems, _own_partitioner_problems)
    problems = [problem for check in checks for problem in check(query, folder)]
    if problems or query.spec.query.aggregates is None:
        return problems
    from millrace_jobs.queries.dry_compile import dry_compile

    with importable_from(folder):
        return dry_compile(query.spec)


def _function_problems(query: StreamQuery, folder: Path) -> list[Problem]:
    """Return what keeps the functions of a query from being called by its SQL, in the words of a run."""
    if query.spec.query.functions is None:
        return []
    from millrace_jobs.queries.own_functions import check_own_functions

    try:
        with importable_from(folder):
            check_own_functions(query.spec.query)
    except MillraceError as error:
        return list(error.problems)
    return []


def _source_problems(query: StreamQuery, folder: Path) -> list[Problem]:
    """Return what keeps the classes that read a query's records from being used, in the words of a run."""
    found: list[Problem] = []
    for name, source in query.spec.sources.items():
        if source.python is None:
            continue
        from millrace_jobs.own_code.source_classes import SourceClass

        try:
            with importable_from(folder):
                SourceClass(name, source.python.read, source.python.options).imported()
        except MillraceError as error:
            found += error.problems
    return found


def _sink_problems(query: StreamQuery, folder: Path) -> list[Problem]:
    """Return what keeps the functions that write a query's results from being called, in the words of a run."""
    found: list[Problem] = []
    for field, output in query.spec.outputs.items():
        if output.sink.python is None:
            continue
        from millrace_jobs.own_code.sink_functions import SinkFunction
        from millrace_jobs.sinks.outputs import errors_of

        try:
            with importable_from(folder), errors_of(field):
                SinkFunction(output.sink.python.write, output.sink.python.options)
        except MillraceError as error:
            found += error.problems
    return found


def _own_partitioner_problems(query: StreamQuery, folder: Path) -> list[Problem]:
    """Return what keeps a query's own partitioner from being used, in the words of a run."""
    if query.spec.partitioner.algorithm is not Algorithm.PYTHON:
        return []
    from millrace_jobs.plan.plan_source import partitioner_problem

    with importable_from(folder):
        problem = partitioner_problem(query.spec)
    return [] if problem is None else [problem]


def _aggregator_problems(query: StreamQuery, folder: Path) -> list[Problem]:
    """Return what keeps a query's Python aggregator from being used, in the words of a run."""
    python = query.spec.query.python
    if python is None:
        return []
    from millrace_api.sql.nested_times import with_flat_times
    from millrace_jobs.queries.routed.compile import compile_aggregator
    from millrace_jobs.sources.connector import schema_of

    sources = query.spec.sources
    schemas = {name: schema_of(source) for name, source in sources.items() if source.schema_text is not None}
    if (python.source or next(iter(sources))) not in schemas:
        return []  # only a run reads the columns of an Avro schema
    flat = with_flat_times(query.spec).query.python
    assert flat is not None
    try:
        with importable_from(folder):
            compile_aggregator(flat, schemas)
    except MillraceError as error:
        return list(error.problems)
    return []


def _input_problems(query: StreamQuery) -> Iterator[Problem]:
    """Yield the problems of the files that a query's sources read."""
    from millrace_jobs.sources.connector import check_input
    from millrace_jobs.stores.spark import using

    for name, source in query.spec.sources.items():
        lakehouse = source.lakehouse if not source.is_static else None
        if source.files is None and source.replay is None and (lakehouse is None or not lakehouse.is_local):
            continue
        if source.files is not None and is_object(source.files.path) and _has_keys_of_a_cluster(query.spec.s3):
            continue  # the login is not on this machine
        with TemporaryDirectory() as empty:
            try:
                with using(query.spec.s3):
                    check_input(name, source, _state_of(query, name) or Path(empty))
            except MillraceError as error:
                for problem in error.problems:
                    message = str(replace(problem, hint="", field=""))
                    field = problem.field or f"spec.sources.{name}.{source.kind}.path"
                    yield Problem(message, problem.hint, field=field)


def _has_keys_of_a_cluster(s3: S3Spec | None) -> bool:
    keys = () if s3 is None else (s3.access_key_id, s3.secret_access_key)
    return any(key is not None and key.secret_key_ref is not None for key in keys)


def _state_of(query: StreamQuery, source: str) -> Path | None:
    """Return a source's folder in a local checkpoint, if any: it lists the files read, some of them perhaps deleted."""
    from millrace_jobs.checkpoint.checkpoint import checkpoint_root

    try:
        state = checkpoint_root(query) / "sources" / source
    except MillraceError:
        return None
    return state if isinstance(state, Path) and state.exists() else None
