"""Queries and cases as the files of this folder have them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

_HERE = Path(__file__).parent
QUERIES, CASES, EXPECTED = (_HERE / name for name in ("queries", "cases", "expected"))
ENGINES = ("millrace", "kafkaStreams", "flink", "spark")

Row = dict[str, Any]
"""The columns of a row of a result, by name."""

Change = tuple[int, Mapping[str, Any], Row | None]
"""A time, a key, and the row that the key has from this time on; None without a row."""


@dataclass(frozen=True)
class Arrival:
    """A record of a stream, or an update of a table.

    Attributes:
        to: the input that it is for.
        at: event time in seconds.
        k, f, v: the columns of every input: key, foreign key and value.
        delete: whether the update is a tombstone, which has ``at`` and ``k`` alone.
        exact: whether ``at`` is the tombstone's own time. Otherwise it was written when event time had reached ``at``,
            for the row that arrived before it.
    """

    to: str
    at: int
    k: str
    f: str | None = None
    v: int | None = None
    delete: bool = False
    exact: bool = True

    def written(self) -> dict[str, Any]:
        """Return the arrival as the files have it."""
        columns = {"delete": True} if self.delete else {"f": self.f, "v": self.v}
        columns |= {} if self.exact else {"exact": False}
        found = {"to": self.to, "at": self.at, "k": self.k} | columns
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True)
class Case:
    """Arrivals in order, in rounds; all of a round is processed before the first arrival of the next one.

    Attributes:
        id: the query's name and the case's, such as ``table-left-join/late-tombstone``.
        words: what the case is about.
        rounds: the arrivals.
    """

    id: str
    words: str
    rounds: tuple[tuple[Arrival, ...], ...]

    @cached_property
    def arrivals(self) -> tuple[Arrival, ...]:
        """The arrivals of all rounds, in order."""
        return tuple(each for arrivals in self.rounds for each in arrivals)


@dataclass(frozen=True)
class Query:
    """A query in words, in the terms of the model, and in those of each engine.

    Attributes:
        name: name of its file.
        title: a few words for tables.
        definition: where the model defines it.
        words: the question as a user would ask it.
        inputs: ``stream`` or ``table`` by the name of the input.
        grace: seconds by which an arrival may be behind the newest one of all inputs.
        result: ``stream`` for rows that stay, ``table`` for rows by key that change.
        key: columns that identify a row of a table.
        times: columns of the result that are event times.
        model: the operator of the reference interpreter with its parameters.
        engines: what each engine runs, or why it cannot.
        flush: whether event time has to go on after the last arrival, as for rows that wait until they are final; a
            number is the time that it reaches.
        differences: by engine, the names of the reasons for other ``rows``, other ``versions``, or another result of
            one case.
        cases: the cases, by id.
    """

    name: str
    title: str
    definition: str
    words: str
    inputs: Mapping[str, Literal["stream", "table"]]
    grace: int
    result: Literal["stream", "table"]
    key: Sequence[str]
    times: Sequence[str]
    model: Mapping[str, Any]
    engines: Mapping[str, Mapping[str, Any]]
    flush: bool | int
    differences: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    cases: Sequence[Case] = ()

    def inexpressible(self, engine: str) -> str | None:
        """Return why an engine cannot express the query, or None if it can."""
        reason: str | None = self.engines[engine].get("notExpressible")
        return reason


@dataclass(frozen=True)
class Outcome:
    """What an engine, or the interpreter, has for a case.

    Attributes:
        rows: rows of the stream, or of the final table.
        changelog: changes of the table in event time, without changes that change nothing; None if the engine
            does not say them.
        error: why there are no rows.
    """

    rows: Sequence[Row] = ()
    changelog: Sequence[Change] | None = None
    error: str | None = None

    def has_rows_of(self, other: Outcome) -> bool:
        """Return whether both have the same rows equally often."""
        return self.error is None and _bag(self.rows) == _bag(other.rows)

    def has_versions_of(self, other: Outcome) -> bool | None:
        """Return whether both tables have the same versions; None if one of them does not say its versions."""
        if self.changelog is None or other.changelog is None:
            return None
        times = sorted({time for time, _, _ in (*self.changelog, *other.changelog)})
        return all(_bag(version(self.changelog, time)) == _bag(version(other.changelog, time)) for time in times)


def version(changelog: Sequence[Change], time: int) -> list[Row]:
    """Return the rows of a table at a time; later changes of a key in the changelog replace those of the same time."""
    rows: dict[tuple[Any, ...], tuple[int, Row | None]] = {}
    for at, key, row in changelog:
        name = tuple(sorted(key.items()))
        if at <= time and (name not in rows or rows[name][0] <= at):
            rows[name] = (at, row)
    return [row for _, row in rows.values() if row is not None]


def _bag(rows: Sequence[Row]) -> Counter[tuple[tuple[str, Any], ...]]:
    """Count rows; fractions are equal up to what the order of additions changes in them."""
    return Counter(tuple(sorted((name, _rounded(value)) for name, value in row.items())) for row in rows)


def _rounded(value: Any) -> Any:
    return round(value, 9) if isinstance(value, float) else value


def all_queries(names: Sequence[str] = ()) -> list[Query]:
    """Return the queries with these names, or all, each with its cases."""
    return [load(file) for file in sorted(QUERIES.glob("*.yaml")) if not names or file.stem in names]


def load(file: Path) -> Query:
    """Return the query in a file.

    Raises:
        ValueError: if a file names an input or an engine that does not exist, or lacks one.
    """
    document = _read(file)
    if set(document["engines"]) != set(ENGINES):
        raise ValueError(f"{file.name}: engines must be {', '.join(ENGINES)}: {', '.join(document['engines'])}")
    documents = [each for name in document["cases"] for each in _read(CASES / f"{name}.yaml")]
    found = Query(
        file.stem,
        document["title"],
        str(document["definition"]),
        document["words"].strip(),
        document["inputs"],
        document["grace"],
        document["result"],
        document.get("key", ()),
        document.get("times", ()),
        document["model"],
        document["engines"],
        document.get("flush", document["result"] == "stream"),
        document.get("differences", {}),
        [_case(file.stem, each) for each in documents],
    )
    for case in found.cases:
        for arrival in case.arrivals:
            if arrival.to not in found.inputs:
                raise ValueError(f"{case.id}: no input of the query: {arrival.to!r}: {', '.join(found.inputs)}")
            if arrival.delete and found.inputs[arrival.to] == "stream":
                raise ValueError(f"{case.id}: a stream has no tombstones: {arrival}")
    return found


def expected(query: Query) -> dict[str, Outcome]:
    """Return the right outcome of each case by its id, as the folder ``expected`` has it."""
    document = _read(EXPECTED / f"{query.name}.yaml")
    return {f"{query.name}/{name}": outcome_of(each) for name, each in document.items()}


def outcome_of(document: Mapping[str, Any]) -> Outcome:
    """Return an outcome from its form in the folder ``expected``."""
    if "rows" in document:
        return Outcome(document["rows"])
    return Outcome(document["table"], [(each["at"], each["key"], each["row"]) for each in document["changelog"]])


def document_of(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome in the form of the folder ``expected``."""
    if outcome.changelog is None:
        return {"rows": list(outcome.rows)}
    changes = [{"at": at, "key": dict(key), "row": row} for at, key, row in outcome.changelog]
    times = sorted({at for at, _, _ in outcome.changelog})
    versions = [{"at": at, "rows": version(outcome.changelog, at)} for at in times]
    return {"table": list(outcome.rows), "changelog": changes, "versions": versions}


def text_of(document: Any) -> str:
    """Return a document as YAML in the style of this folder."""
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, width=120, default_flow_style=None)


class _Plain(yaml.SafeDumper):
    """A dumper that writes a value as often as it occurs, instead of names for values that occur again."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _read(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def _case(query: str, document: Mapping[str, Any]) -> Case:
    rounds = tuple(tuple(Arrival(**each) for each in arrivals) for arrivals in document["rounds"])
    return Case(f"{query}/{document['name']}", document["words"], rounds)


def by_id(queries: Sequence[Query]) -> Iterator[tuple[Query, Case]]:
    """Yield each case with its query."""
    for query in queries:
        for case in query.cases:
            yield query, case
