"""A whole case: inputs, how they are written, a question, and the settings of the query."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, Self

import yaml

from .arrivals import FILES, KAFKA, REPLAY, Arrival
from .messages import cluster, make_topic, topic_of
from .queries import Question
from .tables import DELETED, KEY, TIMESTAMP, Table
from .writers import FORMATS, Spelling

PLANS = ("hash", "pkg", "native")
PLACES = ("my project", "größe", "gro\u0308ße", "a+b", "proj[1]", "100%", "%20", "it's", "a#b", "a{b}", "a,b", "x=y", "a;b", 'a"b', "\U0001f600",
          "$HOME", "~", "a&b", "a?b", "a*b", "(x)", "!", "a\\b", "_x", ".x", "a:b", "-x", "a|b")  # fmt: skip
"""Names of folders that a query and its files are in."""
ROUTED = ("groups", "windows", "python")
"""Shapes that are routed; the others run natively, and joins by operators on tables unless the plan is native."""


class Query(Protocol):
    """A question that can be made smaller."""

    def question(self) -> Question: ...

    def smaller(self) -> Iterator[Self]: ...


@dataclass(frozen=True)
class Case:
    """One case of trouble; ``name`` draws it again."""

    name: str
    shape: str
    tables: tuple[Table, ...]
    spellings: tuple[Spelling, ...]
    query: Query
    emit: str
    sink: str
    arrivals: tuple[Arrival, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    place: str = ""
    """The folder that the query is in, below one with a plain name; paths are then relative to it."""
    workers: int = 1
    other_plan: str = ""
    """A plan beside those that every case runs by, if it is routed."""
    resumed: bool = False
    """Whether a second run goes on with the last files."""
    chained: bool = False
    """Whether a second query reads the results of this one, which should be all the same."""
    mixed_case: bool = False
    """Whether the SQL spells the names of columns in other cases than the schema."""
    also: str = ""
    """The strategy of emission of a second output."""
    replicas: int = 0
    """The number of replicas in processes of their own, which place the records."""

    def plans(self, given: Sequence[str]) -> list[str]:
        """Return the plans among these that differ for this query: all, if it is routed."""
        if self.shape == "doubtful":
            return list(given)
        if self.replicas:
            return [plan for plan in (*given, self.other_plan) if plan not in ("native", "")][-1:] or ["hash"]
        if self.shape in ROUTED:
            return [*given, *([self.other_plan] if self.other_plan else [])]
        one = given[len(self.name) % len(given)]
        return [one] if "join" not in self.shape else sorted({one, "hash", "native"} & set(given))

    @property
    def is_held_back(self) -> bool:
        """Whether operators on tables decide when the groups of the result are emitted."""
        return self.emit == "OnWindowEnd" or bool(self.also)

    @property
    def rows(self) -> int:
        return sum(len(table.rows) for table in self.tables)

    @property
    def runs(self) -> int:
        """How many runs process the input, each of which finds more of the files than the one before."""
        return 2 if self.resumed else 1

    def write_inputs(self, folder: Path, run: int = 0) -> None:
        """Write the files of all sources that a run finds beside those of the runs before it."""
        for table, spelling, arrival in zip(self.tables, self.spellings, self.arrivals, strict=True):
            arrival.deliver(table, spelling, folder, table.numbers(run, self.runs), run)
        if run == 0 and self.sink not in FORMATS:
            make_topic(self.out_topic(folder), compacted=self.sink == "table")

    def topics(self, folder: Path) -> list[str]:
        """Return the topics of a run in a folder."""
        pairs = zip(self.tables, self.arrivals, strict=True)
        used = [topic_of(folder, table.name) for table, arrival in pairs if arrival.kind == KAFKA]
        used += [] if self.sink in FORMATS else [self.out_topic(folder)]
        if self.replicas:
            used += [f"millrace.default.{self._name(folder)}.{what}" for what in ("routed", "manifests", "control")]
        return used

    def _name(self, folder: Path) -> str:
        """Return the name of the query, which replicas have in the names of their topics."""
        return "trouble-" + topic_of(folder, "")[:-1] if self.replicas else "trouble"

    def out_topic(self, folder: Path) -> str:
        """Return the topic of the results."""
        return topic_of(folder, "out")

    def document(self, folder: Path, plan: str) -> dict[str, Any]:
        """Return the StreamQuery for one plan, with results and checkpoint of its own."""
        within = Path() if self.place else folder
        sources = {
            table.name: self._source(table, spelling, arrival.field(table, spelling, folder, within))
            for table, spelling, arrival in zip(self.tables, self.spellings, self.arrivals, strict=True)
        }
        sink: dict[str, Any] = {"files": {"path": str(within / "out"), "format": self.sink}}
        if self.sink not in FORMATS:
            sink = {self.sink: {"bootstrapServers": cluster().bootstrap, "topic": self.out_topic(folder)}}
        replicas: dict[str, Any] = {}
        if self.replicas:
            replicas = {"placement": "Dedicated", "replicas": {"initial": self.replicas, "max": self.replicas}}
        second = {"emit": self.also, "sink": {"files": {"path": str(within / "also"), "format": "parquet"}}}
        also = {"additionalOutputs": {"also": second}} if self.also else {}
        return {
            "apiVersion": "millrace.io/v1alpha1",
            "kind": "StreamQuery",
            "metadata": {"name": self._name(folder)},
            "spec": {
                "sources": sources,
                "query": self._query(),
                "sink": sink,
                "emit": self.emit,
                "batchInterval": "1s",
                "partitioner": {"algorithm": plan, **replicas},
                "parallelism": {"initial": self.workers, "max": self.workers},
                "checkpoint": {"uri": (folder / "checkpoint").as_uri()},
                **also,
                **self.settings,
            },
        }

    def _query(self) -> dict[str, Any]:
        spec = self.query.question().spec
        if not self.mixed_case or "sql" not in spec:
            return spec
        names = "|".join({column.name for table in self.tables for column in table.columns})
        return {"sql": re.sub(rf"\b({names})\b", lambda found: found[0].upper(), spec["sql"])}

    def next_document(self, folder: Path, plan: str) -> dict[str, Any]:
        """Return the StreamQuery that reads the results of the first one as they are."""
        columns = self.tables[0].columns
        schema = ", ".join(f"c{index} {column.kind.spark}" for index, column in enumerate(columns))
        document = self.document(folder, plan)
        place = folder / "next"
        place_of: dict[str, Any] = {"path": str(folder / "out" / f"batch-*.{self.sink}"), "format": self.sink}
        earlier: dict[str, Any] = {"files": place_of}
        if self.sink not in FORMATS:
            earlier = {"kafka": {"bootstrapServers": cluster().bootstrap, "topic": self.out_topic(folder)}}
        document["spec"] |= {
            "sources": {"earlier": {**earlier, "schema": schema}},
            "query": {"sql": f"SELECT {', '.join(f'c{index}' for index in range(len(columns)))} FROM earlier"},
            "sink": {"files": {"path": str(place / "out"), "format": "parquet"}},
            "checkpoint": {"uri": (place / "checkpoint").as_uri()},
        }
        return document

    def _source(self, table: Table, spelling: Spelling, arrival: dict[str, Any]) -> dict[str, Any]:
        source: dict[str, Any] = {**arrival, "schema": table.schema}
        if table.static:
            source["table"] = {"keys": [table.columns[0].name], "static": True}
        else:
            delay = f"{table.delay} us" if table.delay < 10**12 else f"{table.delay // 1000} ms"
            source["watermark"] = {"column": table.time.name, "delay": delay}
        if table.key:
            source["table"] = {"keys": [table.key]}
        if spelling.broken:
            source["corruptRecords"] = {"policy": "Drop"}
        if spelling.timestamps != "iso" and spelling.format != "parquet":
            source["timestampFormat"] = spelling.timestamps
        return source

    def write_query(self, folder: Path, plan: str) -> list[Path]:
        """Write the query's file for one plan, and that of the query that reads its results, if there is one."""
        documents = {"query": self.document(folder, plan)}
        if self.chained:
            documents["next"] = self.next_document(folder, plan)
        files = []
        for name, document in documents.items():
            files.append(folder / f"{name}.yaml")
            files[-1].write_text(yaml.safe_dump(document, sort_keys=False, width=200), encoding="utf-8")
        return files

    def smaller(self) -> Iterator[Case]:
        """Yield cases with less in them, the smallest steps last."""
        yield from self._with_fewer_rows()
        for query in self.query.smaller():
            yield replace(self, query=query)
        yield from self._with_files()
        for index, spelling in enumerate(self.spellings):
            plain = Spelling(spelling.format, {k: v for k, v in spelling.options.items() if k == "header"})
            for simpler in (Spelling("json"), plain):
                if simpler != spelling:
                    yield replace(self, spellings=_with(self.spellings, index, simpler))
        if self.place:
            yield replace(self, place="")
        if self.resumed:
            yield replace(self, resumed=False)
        if self.workers > 1:
            yield replace(self, workers=1)
        if self.mixed_case:
            yield replace(self, mixed_case=False)
        if self.also:
            yield replace(self, also="")
        if self.replicas:
            yield replace(self, replicas=0)
        if self.sink != "parquet":
            yield replace(self, sink="parquet")

    def _with_files(self) -> Iterator[Case]:
        for index, (table, arrival) in enumerate(zip(self.tables, self.arrivals, strict=True)):
            only_messages = any(column.name in (KEY, TIMESTAMP, DELETED) for column in table.columns)
            if arrival.kind == REPLAY or (arrival.kind == KAFKA and not only_messages):
                spelling = self.spellings[index]
                in_files = Spelling("json") if spelling.format not in FORMATS else spelling
                spellings = _with(self.spellings, index, in_files)
                yield replace(self, arrivals=_with(self.arrivals, index, Arrival(FILES)), spellings=spellings)

    def _with_fewer_rows(self) -> Iterator[Case]:
        for index, table in enumerate(self.tables):
            files = [list(file) for file in table.files]
            if len(files) > 1:
                yield self._with_table(index, table.with_files([table.rows]))
            for number, rows in enumerate(files):
                size = len(rows)
                while size:
                    for begin in range(0, len(rows), size):
                        fewer = [*files[:number], rows[:begin] + rows[begin + size :], *files[number + 1 :]]
                        yield self._with_table(index, table.with_files(fewer))
                    size //= 2

    def _with_table(self, index: int, table: Table) -> Case:
        return replace(self, tables=_with(self.tables, index, table))


def _with(items: tuple[Any, ...], index: int, item: object) -> tuple[Any, ...]:
    return (*items[:index], item, *items[index + 1 :])
