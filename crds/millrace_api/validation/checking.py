"""Checks of a whole query that pydantic cannot express and that need no JVM: schemas, columns, SQL."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING

from millrace_api.errors import MillraceError, Problem, suggest
from millrace_api.model.deployment import Algorithm
from millrace_api.model.files import FileFormat
from millrace_api.model.kafka import KafkaConnection
from millrace_api.model.python_query import PythonQuery
from millrace_api.model.sinks import BATCH_ID
from millrace_api.model.sources import RecordFormat, SourceSpec
from millrace_api.model.streamquery import Emit, Spec, StreamQuery
from millrace_api.sql.schema_ddl import (
    EVENT_TIME,
    Column,
    column_at,
    is_nested_time,
    not_in_csv,
    parse_schema,
    time_paths,
    type_problem,
)
from millrace_api.sql.time_formats import ISO, TimePatternError, is_pattern, time_pattern
from millrace_api.validation.checkpoint_overlap import named_overlaps
from millrace_api.validation.places import (
    elsewhere,
    may_be_object,
    object_problem,
    path_problem,
    paths,
    table_uri_problem,
    table_uris,
    uri_problem,
)
from millrace_api.validation.pydantic_errors import Location, dotted
from millrace_api.validation.yaml_nodes import Document

if TYPE_CHECKING:
    from millrace_api.sql.source_table import SourceTable

_TIME_ZONE = "spark.sql.session.timeZone"
"""Setting that must be UTC: another zone would apply only to those parts of a plan that Spark computes."""

_MASTER = "spark.master"
_LOCAL = r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[[\d\s,]+\]"

_FUNCTION_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog", "spark.sql.defaultCatalog", "spark.sql.hive.")
"""Prefixes of settings that can add functions to Spark's own."""

_STREAM_CHECKS = (
    "spark.sql.streaming.unsupportedOperationCheck",
    "spark.sql.streaming.statefulOperator.checkCorrectness.enabled",
)
"""Settings that disable Spark's checks of streaming queries when they are not true."""

Schemas = dict[str, tuple[Column, ...] | None]
"""Columns by source; None if they are unknown or the schema has a problem."""


def spark_checks_streams(settings: Mapping[str, str]) -> bool:
    """Return whether Spark checks under these settings that its plan of a query can run as a stream."""
    return all(settings.get(name, "true") == "true" for name in _STREAM_CHECKS)


def check_query(query: StreamQuery, document: Document | None = None) -> list[Problem]:
    """Return the problems of a query that passed its own validation; ``document`` gives their lines."""
    return _Check(query, document).problems


class _Check:
    def __init__(self, query: StreamQuery, document: Document | None) -> None:
        self.problems: list[Problem] = []
        self._spec = query.spec
        self._document = document
        self._outputs: list[tuple[Location, Spec]] = [
            (tuple(field.split(".")), output) for field, output in query.spec.outputs.items()
        ]
        schemas = {name: self._check_source(name, source) for name, source in query.spec.sources.items()}
        self._check_paths()
        self._check_topics()
        self._check_folder()
        self._check_places()
        for found in named_overlaps(query):
            self._add(tuple(found.field.split(".")), found.message, found.hint)
        self._check_settings()
        if query.spec.query.python is not None:
            self._check_python(query.spec.query.python, schemas)
        if query.spec.query.sql is not None:
            self._check_functions()
            self._check_sql(query.spec.query.sql, schemas)
        if not self.problems:
            self._check_row_key()

    def _check_source(self, name: str, source: SourceSpec) -> tuple[Column, ...] | None:
        at: Location = ("spec", "sources", name)
        text = source.schema_text
        if text is None:
            return None
        try:
            columns = parse_schema(text)
        except MillraceError as error:
            self._add_within((*at, "schema"), error.problems)
            return None
        declared = parse_schema(source.ddl) if source.ddl is not None else ()  # metadata of Kafka has types of its own
        unreadable = [found for found in map(type_problem, declared) if found is not None]
        for problem in unreadable:
            self._add((*at, "schema"), *problem)
        is_csv = source.file_format is FileFormat.CSV or source.record_format is RecordFormat.CSV
        for column in declared:
            if column.name.lower() == EVENT_TIME:
                self._add((*at, "schema"), f'"{column.name}" is a name that Millrace uses itself', "rename the column")
        nested = [column for column in declared if is_csv and not column.is_scalar]
        for column in nested:
            self._add((*at, "schema"), *not_in_csv(column))
        if unreadable or nested:
            return None
        self._check_time_formats((*at, "timeFormats"), source, columns)
        if source.watermark is not None:
            self._event_time((*at, "watermark", "column"), source.watermark.column, columns)
        if source.table is not None:
            for index, key in enumerate(source.table.keys):
                found = self._column((*at, "table", "keys", index), key, columns, exact=True)
                if found is not None and not found.is_scalar:
                    hint = "name columns of single values, whose text identifies a row"
                    self._add((*at, "table", "keys", index), f'"{key}" is {found.type}, which is no key', hint)
                if source.has_change_times and found is not None and key not in [column.name for column in declared]:
                    message = f'"{key}" is not a column of the rows'
                    self._add((*at, "table", "keys", index), message, "name columns of the schema")
        if source.files is not None:
            self._check_partition_columns((*at, "files", "partitionColumns"), source.files.partition_columns, columns)
        if source.replay is not None:
            self._event_time((*at, "replay", "timeColumn"), source.replay.time_column, columns, exact=True)
        return columns

    def _check_partition_columns(self, at: Location, names: tuple[str, ...], columns: tuple[Column, ...]) -> None:
        for index, name in enumerate(names):
            column = self._column((*at, index), name, columns, exact=True)
            if column is not None and not column.is_scalar:
                hint = "name columns of single values, or leave it out"
                self._add((*at, index), f'"{name}" is {column.type}, which no path can hold', hint)
            if name in names[:index]:
                self._add((*at, index), f'"{name}" is listed twice', "leave one out")
        if names and {column.name for column in columns} <= set(names):
            self._add(at, "all columns are in the path", "write a column of the files in the schema")

    def _check_time_formats(self, at: Location, source: SourceSpec, columns: tuple[Column, ...]) -> None:
        for name, written in source.time_formats.items():
            column = self._column((*at, name), name, columns, exact=True)
            if column is None:
                continue
            if column.type not in ("TIMESTAMP", "DATE"):
                hint = "name a TIMESTAMP or a DATE"
                self._add((*at, name), f'"{name}" is {column.type}, which has no format of times', hint)
            elif is_pattern(written):
                try:
                    elements = time_pattern(written)
                except TimePatternError as error:
                    self._add((*at, name), error.message, error.hint)
                    continue
                if column.type == "DATE" and any(element.part == "hour" for element in elements):
                    self._add((*at, name), f'"{name}" is a DATE, and its format has a time of day', "write TIMESTAMP")
            elif column.type == "DATE" and written != ISO:
                self._add((*at, name), f'"{name}" is a DATE, which is not {written}', "write a pattern, or TIMESTAMP")

    def _check_paths(self) -> None:
        """Check the paths and the checkpoint's URI; not a rule of Spec, like ``_check_topics``."""
        for field, path in paths(self._spec):
            found = object_problem(path, field) if may_be_object(field, path) else path_problem(path)
            if found:
                self._add(tuple(field.split(".")), *found)
        for field, uri in table_uris(self._spec):
            if found := table_uri_problem(uri):
                self._add(tuple(field.split(".")), *found)
        checkpoint = self._spec.checkpoint
        if checkpoint is not None and checkpoint.uri is not None and (found := uri_problem(checkpoint.uri)):
            self._add(("spec", "checkpoint", "uri"), *found)
        if checkpoint is not None and checkpoint.from_snapshot is not None:
            found = uri_problem(checkpoint.from_snapshot) or elsewhere(checkpoint.from_snapshot, checkpoint.uri)
            if found:
                self._add(("spec", "checkpoint", "fromSnapshot"), *found)

    def _check_topics(self) -> None:
        """Check that the query does not read what it writes to Kafka.

        This is not a rule of Spec: otherwise a checkpoint with such a query could not be read after a correction.
        """
        for at, output in self._outputs:
            sink = output.sink.kafka or output.sink.table
            if sink is not None:
                self._not_read_again((*at, "sink", output.sink.kind, "topic"), sink.topic, sink, "result")
            table = output.sink.table
            if table is not None and table.history is not None:
                place = (*at, "sink", "table", "history", "topic")
                self._not_read_again(place, table.history.topic, table, "earlier version")
        for name, source in self._spec.sources.items():
            topic = source.corrupt_records.topic
            if topic is not None and source.kafka is not None:
                at = ("spec", "sources", name, "corruptRecords", "topic")
                self._not_read_again(at, topic, source.kafka, "dead letter", excluding=name)

    def _check_folder(self) -> None:
        """Check that the query does not read the files that it writes; not a rule of Spec, like ``_check_topics``."""
        for at, output in self._outputs:
            if (files := output.sink.given.result_files) is not None:
                self._not_read_back((*at, "sink", output.sink.kind, files.field), files.place, files.first_file)
            for name, source in self._spec.sources.items():
                if output.sink.is_streamed_by(source):
                    message = f"source {name} streams this table, so every result would come back as a record"
                    self._add((*at, "sink", output.sink.kind), message, "write to another table")
        for writer, source in self._spec.sources.items():
            folder = source.corrupt_records.path
            for name, other in self._spec.sources.items():
                if folder is not None and other.files is not None and other.files.reads(f"{folder}/{writer}-0.jsonl"):
                    message = f'source {name} reads the files in "{folder}", so every dead letter would come back'
                    at = ("spec", "sources", writer, "corruptRecords", "path")
                    self._add(at, f"{message} as a record", "write to another folder")

    def _not_read_back(self, at: Location, place: str, first_file: str) -> None:
        """Report sources that read the files of results."""
        for name, source in self._spec.sources.items():
            if source.files is not None and source.files.reads(first_file):
                message = f'source {name} reads the files in "{place}", so every result would come back as a record'
                self._add(at, message, "write to another folder")

    def _check_places(self) -> None:
        """Check that no two outputs mix their results."""
        for (first, one), (second, other) in combinations(self._outputs, 2):
            if one.sink.is_place_of(other.sink):
                message = f"{'.'.join(map(str, first))}.sink is the same place, where the results would be mixed"
                self._add((*second, "sink"), message, "write to another folder, topic or table")

    def _check_settings(self) -> None:
        """Check the time zone; like ``_check_topics``, this is not a rule of Spec because of existing checkpoints."""
        zone = self._spec.spark_conf.get(_TIME_ZONE, "UTC")
        if zone != "UTC":
            message = f'is "{zone}", but queries compute in UTC'
            hint = f"leave it out, and write from_utc_timestamp(column, '{zone}') where the SQL needs local time"
            self._add(("spec", "sparkConf", _TIME_ZONE), message, hint)
        master = self._spec.spark_conf.get(_MASTER, "local")
        if not re.fullmatch(_LOCAL, master):
            message = f'is "{master}", but a query runs in local Spark, or in the pods that the operator creates'
            self._add(
                ("spec", "sparkConf", _MASTER), message, "leave it out, or write local[N] with a number of threads"
            )

    def _not_read_again(
        self, at: Location, topic: str, cluster: KafkaConnection, written: str, *, excluding: str = ""
    ) -> None:
        for name, source in self._spec.sources.items():
            kafka = source.kafka
            if name == excluding or kafka is None or not (kafka.is_cluster_of(cluster) and kafka.reads(topic)):
                continue
            message = f'source {name} reads topic "{topic}", so every {written} would come back as a record'
            pattern = kafka.topic_pattern
            more = f", or a topicPattern of {name} that does not match it (got {pattern})" if pattern else ""
            self._add(at, message, f"write another topic{more}")

    def _check_python(self, python: PythonQuery, schemas: Schemas) -> None:
        at: Location = ("spec", "query", "python")
        name = python.source or next(iter(self._spec.sources))
        columns = schemas[name]
        if columns is None:
            return
        for index, group in enumerate(python.group_by):
            found = self._column((*at, "groupBy", index), group, columns, exact=True)
            if found is not None and not found.is_scalar:
                hint = "name columns of single values"
                self._add((*at, "groupBy", index), f'"{group}" is {found.type}, which is no key', hint)
        if python.window is None:
            return
        self._event_time((*at, "window", "column"), python.window.column, columns, exact=True)
        watermark = self._spec.sources[name].watermark
        nested = is_nested_time(python.window.column)
        if nested and watermark is None:
            message = f'the window is over the field "{python.window.column}", and the source has no watermark'
            self._add((*at, "window", "column"), message, "add a watermark on it, or write a column")
        elif (
            (nested or self._spec.emit is Emit.ON_WINDOW_CLOSE)
            and watermark is not None
            and watermark.column.lower() != python.window.column.lower()
        ):
            message = f'the window is over "{python.window.column}", but the watermark is on "{watermark.column}"'
            hint = f"use one column for both{'' if nested else ', or write emit: OnUpdate'}"
            self._add((*at, "window", "column"), message, hint)

    def _check_functions(self) -> None:
        functions, aggregates = self._spec.query.functions or {}, self._spec.query.aggregates or {}
        if not functions and not aggregates:
            return
        from millrace_api.sql.own_functions import name_problem, returns_problem  # loads sqlglot

        for kind, names in (("functions", functions), ("aggregates", aggregates)):
            for name in names:
                if found := name_problem(name):
                    self._add(("spec", "query", kind, name), *found)
        for name, function in functions.items():
            if found := returns_problem(function.returns):
                self._add(("spec", "query", "functions", name, "returns"), *found)

    def _check_sql(self, text: str, schemas: Schemas) -> None:
        from millrace_api.sql.checks import check_sql  # loads sqlglot, only needed with SQL
        from millrace_api.sql.source_table import SourceTable

        tables = {
            name: SourceTable(
                schemas[name],
                source.watermark.column if source.watermark else None,
                source.table.keys if source.table else (),
                source.is_static,
            )
            for name, source in self._spec.sources.items()
        }
        settings = self._spec.spark_conf
        seen: set[Problem] = set()
        for at, output in self._outputs:
            found = check_sql(
                text,
                tables,
                emit=output.emit,
                takes_back=output.sink.replaces_rows and output.partitioner.algorithm is not Algorithm.NATIVE,
                more_functions=any(name.startswith(_FUNCTION_SETTINGS) for name in settings),
                own_functions=self._spec.query.functions or (),
                own_aggregates=self._spec.query.aggregates or (),
                as_stream=spark_checks_streams(settings),
            )
            new = [problem for problem in found if problem not in seen]
            seen.update(found)
            self._add_within(("spec", "query", "sql"), [problem for problem in new if problem.line is not None])
            for problem in new:
                if problem.line is None:
                    place = (*at, "emit") if problem.message.startswith("emit ") else ("spec", "query", "sql")
                    self._add(place, problem.message, problem.hint)
        if not self.problems:
            self._check_csv(text, {name.lower(): table for name, table in tables.items()})

    def _check_row_key(self) -> None:
        from millrace_api.sql.name_checks import repeated_name_in  # loads sqlglot, as what follows: only needed here
        from millrace_api.sql.parsed_query import parsed_sql
        from millrace_api.validation.results import (
            identified_by_run,
            known_columns,
            result_columns,
            result_groups,
            results_change,
            row_key,
        )

        (names, certain), groups = result_columns(self._spec), result_groups(self._spec)
        known = names if certain else known_columns(self._spec)
        shown = all(output.sink.console is not None for _, output in self._outputs)
        if known and (certain or not shown) and self._spec.query.sql is not None:
            repeated = repeated_name_in(parsed_sql(self._spec), known)
            if repeated is not None:
                self._add_within(("spec", "query", "sql"), [repeated])
                return
        by = None if groups is None else [group.known_by(names) for group in groups]
        left_to_run = by is None and identified_by_run(self._spec)
        for at, output in self._outputs:
            self._check_added_column((*at, "sink", "files"), output, known or ())
            if left_to_run and output.sink.table is not None and not output.sink.table.key:
                continue
            if output.sink.appends_once and results_change(output):
                message = "results change after they were emitted, and without a key they are appended once and for all"
                hint = "write the columns of the table's primary key, such as key: [...], or emit: OnWindowClose"
                self._add((*at, "sink", output.sink.kind), message, hint)
                continue
            plain = all(name.isidentifier() for name in output.sink.key)
            try:
                row_key(output.sink, known if certain or plain else None, by)
            except MillraceError as error:
                self._add((*at, "sink", output.sink.kind, "key"), error.problems[0].message, error.problems[0].hint)

    def _check_added_column(self, at: Location, output: Spec, names: Sequence[str]) -> None:
        """Check that the column that files have beside the results does not replace one of these."""
        files = output.sink.files
        is_added = files is not None and not files.key and output.emit is not Emit.ON_WINDOW_CLOSE
        if is_added and BATCH_ID in map(str.lower, names):
            message = f"files of results have a column {BATCH_ID} of their own"
            self._add(at, message, "give the result's column another name")

    def _check_csv(self, text: str, tables: Mapping[str, SourceTable]) -> None:
        """Check that the result's columns can be written as CSV, in the words of a run."""
        from millrace_api.sql.nested_values import nested_columns
        from millrace_api.sql.parsed_query import parsed_sql

        for at, output in self._outputs:
            if output.sink.files is None or output.sink.files.format is not FileFormat.CSV:
                continue
            for name, kind in nested_columns(parsed_sql(self._spec).scopes()[-1], tables):
                instead = f"to_json({name}) AS {name}" if kind != "binary" else f"base64({name}) AS {name}"
                if kind.startswith("struct"):
                    instead = f"its fields one by one{f', such as {name}.start' if 'start' in kind else ''}"
                message = f"column {name} of type {kind} cannot be written to csv"
                hint = f"select {instead}, or write format: parquet"
                self._add((*at, "sink", "files", "format"), message, hint)
                break

    def _event_time(self, at: Location, name: str, columns: tuple[Column, ...], *, exact: bool = False) -> None:
        column = self._column(at, name, columns, exact=exact)
        if column is not None and not column.is_time:
            candidates = list(time_paths(columns))
            hint = f"write {' or '.join(candidates)}" if candidates else f"write {name} TIMESTAMP in the schema"
            self._add(at, f'"{name}" is {column.type}, not TIMESTAMP', hint)

    def _column(self, at: Location, name: str, columns: tuple[Column, ...], *, exact: bool) -> Column | None:
        """Return the column, or the field of a struct, of this name.

        ``exact``: a name in another case, which Spark would find, is a problem.
        """
        known: tuple[Column, ...] = columns
        found, path = None, name.split(".")
        for place, part in enumerate(path):
            found = column_at(known, [part])
            if found is None or (exact and found.name != part):
                holder = f'"{".".join(path[:place])}" has no field' if place else "the schema has no column"
                self._add(at, f'{holder} "{part}"', suggest(part, [column.name for column in known]))
                return None if found is None else found
            known = found.parts if found.is_struct else ()
        return found

    def _add(self, at: Location, message: str, hint: str) -> None:
        file, line = ("", None) if self._document is None else (self._document.file, self._document.line(at))
        self.problems.append(Problem(message, hint, file, line, dotted(at)))

    def _add_within(self, at: Location, found: Iterable[Problem]) -> None:
        """Add problems of a text value, with lines of the text converted to lines of the file."""
        for problem in found:
            line, file = problem.line, ""
            if self._document is not None:
                line, file = self._document.text_line(at, problem.line or 1), self._document.file
            self.problems.append(replace(problem, file=file, line=line, field=dotted(at)))
