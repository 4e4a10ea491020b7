"""Queries in Python: built or loaded, checked, explained, run, and written as the YAML that kubectl applies."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.documents import document_of, problem_in_python, yaml_text
from millrace.results import read_results
from millrace_api.errors import MillraceError, Problem
from millrace_api.model.connections import CONNECTION_KIND
from millrace_api.model.deployment import Algorithm
from millrace_api.model.streamquery import API_VERSION, KIND, Spec
from millrace_api.model.streamquery import StreamQuery as QueryModel
from millrace_api.validation.loading import (
    load_connections,
    load_queries,
    locate,
    query_documents,
    read_connection,
    read_query,
)
from millrace_api.validation.yaml_nodes import read_documents
from millrace_support.extras import extras_reported

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from millrace.runs import Run

FilePath = str | PathLike[str]

GRACE = 25.0
"""Seconds that the running batch may take after a run was asked to end, as for ``millrace run``."""

_SHOWN: Mapping[str, Any] = {"console": {}}
"""The sink of a query without one."""


class StreamQuery:
    """A streaming query, the same as in a YAML file.

    The arguments are the fields of ``spec`` in docs/reference/streamquery.md, with their names in snake_case; their
    values are dicts as in the YAML, in which names may be in either spelling. The query is checked at once.

    Paths in it are relative to the working directory, as those of ``millrace run``. Python aggregators are imported
    from there, or from the folder of the file that the query was loaded from.

    Args:
        name: name of the query.
        sources: the streams of records, by the names that the SQL has for them.
        query: SQL, without the indentation that its lines share; or a dict with ``sql`` or ``python``, in which an
            aggregator may be given as its class.
        sink: where results go. By default they are shown, and a run from Python keeps them in a temporary folder.
        connections: files with the Connections that the query refers to.
        metadata: further metadata, such as a namespace.
        spec: all other fields, such as ``emit``, ``batch_interval``, ``partitioner`` and ``checkpoint``.

    Raises:
        MillraceError: the query is not valid, with all problems, each with its field.

    >>> q = StreamQuery(
    ...     "busy-cells",
    ...     sources={
    ...         "trips": {
    ...             "files": {"path": "trips/*.csv", "format": "csv"},
    ...             "schema": "cell STRING, at TIMESTAMP",
    ...             "watermark": {"column": "at", "delay": "30s"},
    ...         }
    ...     },
    ...     query="SELECT window.start AS since, cell, count(*) AS n FROM trips GROUP BY window(at, '1 hour'), cell",
    ...     emit="OnWindowClose",
    ...     partitioner={"algorithm": "pkg"},
    ... )
    >>> q.spec.partitioner.algorithm
    <Algorithm.PKG: 'pkg'>
    >>> q.replace(partitioner={"algorithm": "dalton"}).spec.partitioner.algorithm
    <Algorithm.DALTON: 'dalton'>
    """

    def __init__(
        self,
        name: str,
        *,
        sources: Mapping[str, Any] | None = None,
        query: str | Mapping[str, Any] | None = None,
        sink: Mapping[str, Any] | None = None,
        connections: FilePath | Iterable[FilePath] = (),
        metadata: Mapping[str, Any] | None = None,
        **spec: Any,
    ) -> None:
        given = {
            "sources": sources,  # without it, the check of the query can name what was written instead
            "query": {"sql": _dedented(query)} if isinstance(query, str) else query,
            "sink": _SHOWN if sink is None else sink,
            **spec,
        }
        fields = {field: each for field, each in given.items() if each is not None}  # None is as if it were left out
        document = {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, **(metadata or {})},
            "spec": document_of(fields, Spec),
        }
        self._connections, self._beside = _paths(connections), list[dict[str, Any]]()
        self._adopt(document, self._read(document), None)

    @classmethod
    def _loaded(
        cls, document: dict[str, Any], model: QueryModel, file: Path, connections: Sequence[Path]
    ) -> StreamQuery:
        query = cls.__new__(cls)
        query._connections = list(connections)
        query._beside = [each.value for each in read_documents(file)[0] if each.value["kind"] == CONNECTION_KIND]
        query._adopt(document, model, file)
        return query

    def _adopt(self, document: dict[str, Any], model: QueryModel, file: Path | None) -> None:
        self._document, self._model, self._file = document, model, file
        self._folder = (Path.cwd() if file is None else file.absolute().parent).absolute()

    def _read(self, document: dict[str, Any]) -> QueryModel:
        """Return the query of a document that was written in Python. Raises MillraceError with all problems."""
        try:
            return read_query(document, self._known_connections())
        except MillraceError as error:
            problems = [problem_in_python(each, document["spec"]) for each in error.problems]
            raise type(error)(*problems) from error.__cause__

    def _known_connections(self) -> dict[str, Any]:
        """Return the Connections that the query may refer to, by name."""
        beside = {each["metadata"]["name"]: read_connection(each) for each in self._beside}
        return {**beside, **load_connections(self._connections)}

    @property
    def name(self) -> str:
        """Name of the query."""
        return self._model.name

    @property
    def model(self) -> QueryModel:
        """The query as all of Millrace knows it, with its Connections resolved."""
        return self._model

    @property
    def spec(self) -> Spec:
        """The spec of ``model``, with the defaults of all fields."""
        return self._model.spec

    def to_yaml(self, path: FilePath | None = None) -> str:
        """Return the query as YAML for ``millrace run`` and ``kubectl apply``, and write it to ``path``, if given.

        Connections stay references, by their names; those of the file that the query was loaded from come before it.
        """
        text = "---\n".join(map(yaml_text, [*self._beside, self._document]))
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def replace(self, *, name: str | None = None, **spec: Any) -> StreamQuery:
        """Return a copy in which these fields of the spec are others, or are left out if they are None.

        A query that computes something else needs another checkpoint, such as that of another ``name``.

        Raises:
            MillraceError: the copy is not valid.
        """
        if isinstance(sql := spec.get("query"), str):
            spec["query"] = {"sql": _dedented(sql)}
        changed = self._document["spec"] | document_of(spec, Spec)
        kept = {field: each for field, each in changed.items() if each is not None}
        metadata = self._document["metadata"] | ({} if name is None else {"name": name})
        document = self._document | {"metadata": metadata, "spec": kept | {"sink": kept.get("sink", _SHOWN)}}
        copy = type(self).__new__(type(self))
        copy._connections, copy._beside = self._connections, self._beside
        copy._adopt(document, self._read(document), None)
        copy._folder = self._folder
        return copy

    def validate(self) -> list[Problem]:
        """Check all that can be checked without a run, as ``millrace validate`` does, also input files and own code.

        Returns:
            Warnings about settings that work badly or not at all; empty if there are none.

        Raises:
            MillraceError: with all problems.
        """
        from millrace.runs import ask

        with self._located():
            if self._has_own_code:  # it may have changed since this process imported it
                answer = ask("validate", self._model, self._folder)
                return [Problem(**each) for each in answer["warnings"]]
            from millrace_jobs.run.query_file import query_problems, query_warnings

            with extras_reported():
                problems = query_problems(self._model, self._folder)
            if problems:
                raise MillraceError(*problems)
            return query_warnings(self._model)

    @property
    def _has_own_code(self) -> bool:
        query = self.spec.query
        in_query = any(each is not None for each in (query.python, query.functions, query.aggregates))
        reads = any(source.python is not None for source in self.spec.sources.values())
        writes = any(output.sink.python is not None for output in self.spec.outputs.values())
        places = self.spec.partitioner.algorithm is Algorithm.PYTHON
        return in_query or reads or writes or places or bool(self.spec.code)

    def explain(self) -> str:
        """Return how the query would run, and why: routed or by Spark's own plan, with which stages and state.

        Starts Spark, which takes seconds.

        Raises:
            MillraceError: the query cannot run.
        """
        from millrace.runs import ask

        with self._located():
            return str(ask("explain", self._model, self._folder)["text"])

    def start(
        self, *, once: bool = False, available_now: bool = False, grace: float = GRACE, debug: bool = False
    ) -> Run:
        """Start the query in a process of its own and return at once; see ``Run``.

        Args:
            once: process the available records, close all windows, then end.
            available_now: process the available records, leave windows open for the next run, then end.
            grace: seconds that the running batch may take after the run was asked to end.
            debug: print what Spark prints, and the traceback of an error.

        Raises:
            MillraceError: the arguments contradict each other.
        """
        from millrace.runs import Run

        if once and available_now:
            message = "once closes all windows at the end, available_now leaves them open"
            raise MillraceError(Problem(message, "choose one"))
        return Run(self, once=once or available_now, leaves_open=available_now, grace=grace, debug=debug)

    def run(
        self,
        *,
        once: bool = True,
        available_now: bool = False,
        progress: bool | None = None,
        grace: float = GRACE,
        debug: bool = False,
    ) -> Run:
        """Run the query and return when it has ended, by default once the available records are processed.

        Ctrl-C, or interrupting the cell, ends it after the running batch.

        Args:
            once: process the available records, close all windows, then end; with False, run until
                interrupted, after which the run is returned, too.
            available_now: as ``once``, but leave windows open for the next run.
            progress: whether to show progress; by default in a terminal or a notebook.
            grace, debug: as for ``start``.

        Raises:
            MillraceError: the query cannot run, or has failed.
        """
        ends = {"once": once and not available_now, "available_now": available_now}
        return self.start(**ends, grace=grace, debug=debug).follow(progress)

    def results(self, *, latest: bool = False, key: Sequence[str] | None = None) -> pa.Table:
        """Return the results of all runs so far, from a sink of local files.

        Args:
            latest: whether to return only the newest row of each result. With ``emit: OnUpdate``, there is otherwise a
                row for each change, and ``_batch_id`` orders them.
            key: columns that identify a result, for ``latest``; by default, those that the query groups by.

        Raises:
            MillraceError: the results are not in local files, or it is not known which columns identify a result.
        """
        return read_results(self.spec, latest=latest, key=key)

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Give errors in this block the lines of the file that the query was loaded from."""
        try:
            yield
        except MillraceError as error:
            raise self._with_lines(error) from error.__cause__

    def _with_lines(self, error: MillraceError) -> MillraceError:
        if self._file is not None:
            with suppress(MillraceError, StopIteration, TypeError, KeyError):  # the file may have changed
                return type(error)(*locate(error.problems, self._file, self.name))
        return error

    def __eq__(self, other: object) -> bool:
        return self._model == other._model if isinstance(other, StreamQuery) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        sources = ", ".join(f"{name} ({source.kind})" for name, source in self.spec.sources.items())
        return f"<StreamQuery {self.name}: {sources} to {self.spec.sink.kind}, emit {self.spec.emit}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.to_yaml())}</pre>"


def load(path: FilePath, query: str | None = None, *, connections: FilePath | Iterable[FilePath] = ()) -> StreamQuery:
    """Return the query in a YAML file.

    Args:
        path: the file; it may also have the Connections that the query refers to.
        query: name of the query, if the file has several.
        connections: files with further Connections.

    Raises:
        MillraceError: with all problems of the file, each with its line; or the file has no such query.

    >>> q = load("examples/03-word-count.yaml")
    >>> q
    <StreamQuery word-count: words (files) to files, emit OnUpdate>
    """
    queries = _queries_in(Path(path), _paths(connections))
    chosen = [each for each in queries if query in (None, each.name)]
    if len(chosen) != 1:
        names = ", ".join(each.name for each in queries)
        wrong = f"the file has the queries {names}" if query is None else f"the file has no query {query}, only {names}"
        raise MillraceError(Problem(wrong, f'choose one with query="{queries[0].name}"', str(path)))
    return chosen[0]


def _queries_in(file: Path, connections: Sequence[Path]) -> list[StreamQuery]:
    """Return the queries of a file, checked once. Raises MillraceError with all problems of the file."""
    models = load_queries(file, connections)
    documents = [each.value for each in query_documents(file)]
    return [
        StreamQuery._loaded(document, model, file, connections)
        for document, model in zip(documents, models, strict=True)
    ]


def validate(query: StreamQuery | FilePath, *, connections: FilePath | Iterable[FilePath] = ()) -> list[Problem]:
    """Check a query, or all queries of a file; see ``StreamQuery.validate``.

    Args:
        query: the query, or a YAML file.
        connections: files with further Connections that a file refers to.

    Raises:
        MillraceError: with all problems.
    """
    if isinstance(query, StreamQuery):
        return query.validate()
    warnings: list[Problem] = []
    problems: list[Problem] = []
    for each in _queries_in(Path(query), _paths(connections)):
        try:
            warnings += each.validate()
        except MillraceError as error:
            problems += error.problems
    if problems:
        raise MillraceError(*problems)
    return warnings


def _dedented(sql: str) -> str:
    """Return SQL without the indentation of the program that it is in; what is within its lines stays."""
    first, newline, rest = sql.partition("\n")
    return (first.lstrip() + newline + textwrap.dedent(rest)).strip()


def _paths(files: FilePath | Iterable[FilePath]) -> list[Path]:
    return [Path(files)] if isinstance(files, str | PathLike) else [Path(file) for file in files]
