"""Loading of YAML files into models, with all problems of a file at once, each with its line.

A file of queries may also have the Connections that they refer to.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from millrace_api.errors import MillraceError, Problem, quote
from millrace_api.model.base import Model
from millrace_api.model.connections import CONNECTION_KIND, ConnectionSpec, NamedConnection
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.checking import check_query
from millrace_api.validation.connections import Connections, resolve
from millrace_api.validation.pydantic_errors import (
    Location,
    dotted,
    explain,
    field_location,
    is_consequence,
    null_locations,
    primary_errors,
    salvage,
)
from millrace_api.validation.yaml_nodes import Document, read_documents

AnyModel = TypeVar("AnyModel", bound=Model)

_EMPTY_HINT = "write a value ({} to use all defaults), or leave it out"

_LEVELS = 64
"""Levels of mappings and lists in a query; a pod template has fewer than twenty."""

_SHALLOW_HINT = "write it with fewer levels"


def load_queries(
    path: Path | str, connections: Sequence[Path] | Connections = (), *, resolved: bool = False
) -> list[StreamQuery]:
    """Return the queries of a file.

    Args:
        path: YAML file with queries, and perhaps with Connections.
        connections: files with Connections, or Connections by name, which come before those of the file that have the
            same name.
        resolved: whether references to Connections are resolved, as in what the operator mounts into pods.

    Raises:
        MillraceError: with all problems of all documents in the files.
    """
    queries, problems = _read_queries(path, connections, resolved=resolved)
    if problems:
        raise MillraceError(*problems)
    if not queries:
        raise MillraceError(Problem("has no query", "write the path of a file with a StreamQuery", str(path)))
    return queries


def validate_file(path: Path | str, connections: Sequence[Path] = ()) -> list[Problem]:
    """Return all problems of a file of queries and Connections, ordered by line; empty if it can be loaded."""
    try:
        return _read_queries(path, connections)[1]
    except MillraceError as error:
        return list(error.problems)


def query_documents(path: Path | str) -> list[Document]:
    """Return the documents of a file that are no Connections, in the order of ``load_queries``."""
    return [document for document in read_documents(path)[0] if not _is_connection(document)]


def connections_beside(path: Path | str) -> Connections:
    """Return the Connections in a file of queries that are valid; ``validate_file`` reports the others."""
    found, _ = _connections_in([document for document in read_documents(path)[0] if _is_connection(document)])
    return {name: each.spec for name, each in found.items()}


def load_connections(paths: Sequence[Path]) -> Connections:
    """Return the Connections of files that have nothing else.

    Raises:
        MillraceError: with all problems of all files.
    """
    found: dict[str, NamedConnection] = {}
    problems: list[Problem] = []
    for path in paths:
        documents, of_file = read_documents(path)
        problems += of_file
        for document in documents:
            if not _is_connection(document):
                hint = "write kind: Connection, or name the file with the queries as the file to run"
                problems.append(_problem(document, ("kind",), "is not a Connection", hint))
        of_these, of_file = _connections_in([each for each in documents if _is_connection(each)])
        problems += of_file
        found |= of_these
    if problems:
        raise MillraceError(*problems)
    return {name: each.spec for name, each in found.items()}


def load_plan(path: Path | str) -> Plan:
    """Return the plan in a file.

    Raises:
        MillraceError: with all problems of the file.
    """
    return load_document(Plan, path, "a plan")


def load_document(model: type[AnyModel], path: Path | str, what: str) -> AnyModel:
    """Return the model in a file with one document; ``what`` names it in messages.

    Raises:
        MillraceError: with all problems of the file.
    """
    documents, problems = read_documents(path)
    if len(documents) > 1:
        second = documents[1].node.start_mark.line + 1
        problems.append(Problem(f"{what} file has one document", "remove the others", str(path), second))
    loaded, found = _validate(model, documents[0]) if documents else (None, [])
    if loaded is None or problems:
        raise MillraceError(*_in_order(problems + found))
    return loaded


def locate(problems: Iterable[Problem], path: Path | str, query: str) -> list[Problem]:
    """Add file and line to problems found after a query was loaded, if they name a field of its spec.

    A line that a problem has already is one of the text in that field.
    """
    document = next(d for d in query_documents(path) if d.value["metadata"]["name"] == query)

    def line_of(problem: Problem) -> int:
        at = _location(problem.field)
        return document.line(at) if problem.line is None else document.text_line(at, problem.line)

    return [
        replace(problem, file=document.file, line=line_of(problem))
        if problem.field.startswith("spec.") and not problem.file
        else problem
        for problem in problems
    ]


def _location(field: str) -> Location:
    """Return the path of a field as users write it; ``dotted`` is the reverse."""
    parts = (re.fullmatch(r"(.+?)\[(\d+)\]", part) or part for part in field.split("."))
    return tuple(step for part in parts for step in ((part,) if isinstance(part, str) else (part[1], int(part[2]))))


def _read_queries(
    path: Path | str, connections: Sequence[Path] | Connections = (), *, resolved: bool = False
) -> tuple[list[StreamQuery], list[Problem]]:
    every, problems = read_documents(path)
    documents = [document for document in every if not _is_connection(document)]
    here, found = _connections_in([document for document in every if _is_connection(document)])
    problems += found
    known: dict[str, Any] = {name: each.spec for name, each in here.items()}
    known |= {_name_of(document): _INVALID for document in every if _is_broken(document, here)}
    known |= connections if isinstance(connections, Mapping) else load_connections(connections)
    queries: list[StreamQuery] = []
    for document in documents:
        if not resolved:
            document, found = _resolved(document, known)
            problems += found
        query, found = _validate(StreamQuery, document)
        problems += found
        checkable = query
        if query is None and isinstance(document.value, dict):
            checkable, found = _salvage(document)
            problems += found
        if checkable is not None:
            problems += check_query(checkable, document)
        if query is not None:
            queries.append(query)
    problems += _repeated_names(documents)
    return queries, _in_order(problems)


_INVALID = MillraceError("its own problems are reported where it is")


def _is_connection(document: Document) -> bool:
    return isinstance(document.value, dict) and document.value.get("kind") == CONNECTION_KIND


def _is_broken(document: Document, valid: Mapping[str, NamedConnection]) -> bool:
    return _is_connection(document) and _name_of(document) is not None and _name_of(document) not in valid


def _connections_in(documents: list[Document]) -> tuple[dict[str, NamedConnection], list[Problem]]:
    """Return the Connections of documents by name, and the problems of all of them."""
    found: dict[str, NamedConnection] = {}
    problems = list(_repeated_names(documents, "connections"))
    for document in documents:
        connection, of_document = _validate(NamedConnection, document)
        problems += of_document
        if connection is not None:
            found[connection.name] = connection
    return found, problems


def _resolved(document: Document, connections: Connections) -> tuple[Document, list[Problem]]:
    """Return a document with what its references resolve to, and the problems of what it has in their place."""
    if not isinstance(document.value, dict):
        return document, []
    result = resolve(document.value, connections)
    # an invalid Connection of the same file has its own problems, which say enough
    wrong = [each for each in result.findings if not _is_of_invalid(each.at, document, connections)]
    problems = [_problem(document, each.at, each.message, each.hint) for each in wrong]
    return replace(document, value=result.document), problems


def _is_of_invalid(at: Location, document: Document, connections: Connections) -> bool:
    value: Any = document.value
    for step in at:
        value = value.get(step) if isinstance(value, dict) else None
    return isinstance(value, str) and connections.get(value) is _INVALID


def _name_of(document: Document) -> Any:
    metadata = document.value.get("metadata") if isinstance(document.value, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else None


def _repeated_names(documents: list[Document], what: str = "queries") -> Iterator[Problem]:
    at: Location = ("metadata", "name")
    lines: dict[str, int] = {}
    for document in documents:
        name = _name_of(document)
        if name is None:
            continue
        if name in lines:
            message = f"{quote(name)} is the name of two {what}, the first in line {lines[name]}"
            yield _problem(document, at, message, "rename one")
        lines.setdefault(name, document.line(at))


def _in_order(problems: list[Problem]) -> list[Problem]:
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.line or 0)


def _validate(model: type[AnyModel], document: Document) -> tuple[AnyModel | None, list[Problem]]:
    """Return the model of a document's value and its problems; the model is None if there are problems."""
    if not isinstance(document.value, dict):  # such as records, instead of a query about them
        kind = "a list" if isinstance(document.value, list) else "plain text"
        hint = f"write the path of a YAML file with a {model.__name__}"
        return None, [Problem(f"is {kind}, not a mapping of fields", hint, document.file, document.line(()))]
    empty = set(null_locations(document.value))
    checked: AnyModel | None = None
    found: list[ErrorDetails] = []
    try:
        checked = model.model_validate(document.value, by_name=False)
    except ValidationError as error:
        found = primary_errors(error)
    empty -= {field_location(detail) for detail in found if detail["type"] == "extra_forbidden"}
    problems = [_problem(document, at, "is empty", _EMPTY_HINT) for at in empty]
    for detail in found:
        if field_location(detail) not in empty and not is_consequence(detail, empty):
            problems.append(_explained(document, model, detail))
    return (None if problems else checked), problems


def _salvage(document: Document) -> tuple[StreamQuery | None, list[Problem]]:
    query, found = salvage(document.value)
    return query, [_explained(document, StreamQuery, detail) for detail in found]


def _explained(document: Document, model: type[Model], detail: ErrorDetails) -> Problem:
    return _problem(document, field_location(detail), *explain(model, detail))


def _problem(document: Document, location: Location, message: str, hint: str) -> Problem:
    return Problem(message, hint, document.file, document.line(location), dotted(location))


def read_query(value: Mapping[str, Any], connections: Connections | None = None) -> StreamQuery:
    """Return the query of a StreamQuery object; its status is ignored because the user does not write it.

    Args:
        value: the object.
        connections: Connections that it may refer to; None for an object in which all references are resolved.

    Raises:
        ConnectionNotFoundError: a Connection is missing or not valid.
        MillraceError: if the query is invalid, with all problems, each with its field.
    """
    wanted = {name: part for name, part in value.items() if name != "status"}
    if _is_nested(wanted, _LEVELS):
        raise MillraceError(Problem(f"is nested more than {_LEVELS} levels deep", _SHALLOW_HINT, field="spec"))
    try:
        return _checked(wanted if connections is None else resolve(wanted, connections).require())
    except RecursionError:  # in SQL, in a schema or in a pattern
        raise MillraceError(
            Problem("has an expression that is nested too deeply", _SHALLOW_HINT, field="spec")
        ) from None


def read_connection(value: Mapping[str, Any]) -> ConnectionSpec:
    """Return what a Connection object leads to.

    Raises:
        MillraceError: the object is not valid, with all problems, each with its field.
    """
    wanted = {"spec": value.get("spec")}
    if _is_nested(wanted, _LEVELS):
        raise MillraceError(Problem(f"is nested more than {_LEVELS} levels deep", _SHALLOW_HINT, field="spec"))
    try:
        return ConnectionSpec.model_validate(wanted["spec"], by_name=False)
    except ValidationError as error:
        raise MillraceError(
            *(
                Problem(*explain(ConnectionSpec, each), field=dotted(("spec", *field_location(each))))
                for each in primary_errors(error)
            )
        ) from None


def _checked(wanted: Mapping[str, Any]) -> StreamQuery:
    try:
        query = StreamQuery.model_validate(wanted, by_name=False)
    except ValidationError as error:
        found = primary_errors(error)
        raise MillraceError(
            *(Problem(*explain(StreamQuery, each), field=dotted(field_location(each))) for each in found)
        ) from None
    if problems := check_query(query):
        raise MillraceError(*problems)
    return query


def _is_nested(value: object, levels: int) -> bool:
    """Return whether mappings and lists are nested more than this many levels deep."""
    containers: list[Any] = [value]
    for _ in range(levels):
        below = [part for each in containers for part in (each.values() if isinstance(each, Mapping) else each)]
        containers = [each for each in below if isinstance(each, Mapping | list)]
    return bool(containers)
