"""The datasets of a query, with the names that OpenLineage's naming convention gives them.

Tools connect queries by these names, so two queries have to give one topic, table or folder the same name:
https://openlineage.io/docs/spec/naming. Generated records, results on the terminal and the result of a database's query
are no datasets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from millrace_api.model.iceberg import IcebergTableSpec
from millrace_api.model.kafka import KafkaConnection
from millrace_api.model.mysql import MySqlServerSpec
from millrace_api.model.postgres import PostgresServerSpec
from millrace_api.model.sinks import SinkSpec
from millrace_api.model.sources import SourceSpec
from millrace_api.model.streamquery import Spec
from millrace_api.sql.schema_ddl import Column
from millrace_api.validation.places import is_object
from millrace_jobs.disk import absolute_path

MOST_TOPICS = 100
"""Maximum number of topics that are reported for one source."""

_WILDCARD = re.compile(r"[*?\[{]")
_KAFKA_PORT = 9092


@dataclass(frozen=True)
class Dataset:
    """A dataset with its columns; ``alias`` is another namespace and name that it is known by, as a table of a catalog.

    ``columns`` is None where they are unknown, and for dead letters.
    """

    namespace: str
    name: str
    columns: tuple[Column, ...] | None = None
    alias: tuple[str, str] | None = None


def inputs(
    spec: Spec, columns: Mapping[str, Sequence[Column]], topics: Mapping[str, Sequence[str]]
) -> dict[str, list[Dataset]]:
    """Return the datasets that each source reads, by its name.

    Args:
        spec: the spec of the query.
        columns: the columns of each source.
        topics: the topics that each source has read so far, where the spec does not name them.
    """
    return {
        name: [replace(each, columns=tuple(columns.get(name, ()))) for each in _read(source, topics.get(name, ()))]
        for name, source in spec.sources.items()
    }


def outputs(spec: Spec, results: Sequence[Column]) -> list[Dataset]:
    """Return the datasets that a query writes: its results, with these columns, and the records that do not decode."""
    written = [
        replace(each, columns=tuple(results)) for output in spec.outputs.values() for each in _written(output.sink)
    ]
    rejected = [each for source in spec.sources.values() for each in _rejected(source)]
    return list(dict.fromkeys([*written, *rejected]))


def _read(source: SourceSpec, found: Sequence[str]) -> Iterator[Dataset]:
    if source.kafka is not None:
        for topic in sorted(source.kafka.named_topics or found)[:MOST_TOPICS]:
            yield Dataset(_cluster(source.kafka), topic)
    elif source.files is not None:
        yield _files(source.files.path)
    elif source.replay is not None:
        yield _files(source.replay.path)
    elif source.delta is not None:
        yield _files(source.delta.path)
    elif source.iceberg is not None:
        yield _iceberg(source.iceberg)
    elif source.postgres is not None and source.postgres.table is not None:
        yield _postgres(source.postgres, source.postgres.table)
    elif source.mysql is not None and source.mysql.table is not None:
        yield _mysql(source.mysql, source.mysql.table)


def _written(sink: SinkSpec) -> Iterator[Dataset]:
    if sink.files is not None:
        yield _files(sink.files.path)
    elif sink.delta is not None:
        yield _files(sink.delta.path)
    elif sink.iceberg is not None:
        yield _iceberg(sink.iceberg)
    elif sink.postgres is not None:
        yield _postgres(sink.postgres, sink.postgres.table)
    elif sink.mysql is not None:
        yield _mysql(sink.mysql, sink.mysql.table)
    elif (kafka := sink.kafka or sink.table) is not None:
        yield Dataset(_cluster(kafka), kafka.topic)


def _rejected(source: SourceSpec) -> Iterator[Dataset]:
    if source.corrupt_records.topic is not None and source.kafka is not None:
        yield Dataset(_cluster(source.kafka), source.corrupt_records.topic)
    if source.corrupt_records.path is not None:
        yield _files(source.corrupt_records.path)


def _cluster(kafka: KafkaConnection) -> str:
    """Return the namespace of a cluster: its first broker by name, so that the order in a spec does not matter."""
    first = min(kafka.addresses, default="")
    return f"kafka://{first if re.search(r':[0-9]+$', first) else f'{first}:{_KAFKA_PORT}'}"


def _files(path: str) -> Dataset:
    """Return the dataset of a path: the folder above its first part with a wildcard."""
    if is_object(path):
        bucket, _, key = path.removeprefix("s3a://").partition("/")
        return Dataset(f"s3://{bucket}", _folder(key).strip("/") or "/")
    return Dataset("file", _folder(str(absolute_path(path))) or "/")


def _folder(path: str) -> str:
    parts = path.split("/")
    first = next((number for number, part in enumerate(parts) if _WILDCARD.search(part)), len(parts))
    return "/".join(parts[:first]).rstrip("/")


def _postgres(server: PostgresServerSpec, table: str) -> Dataset:
    name = table if "." in table else f"public.{table}"
    return Dataset(_server("postgres", *min(server.addresses)), f"{server.database}.{name}")


def _mysql(server: MySqlServerSpec, table: str) -> Dataset:
    name = table if "." in table else f"{server.database}.{table}"
    return Dataset(_server("mysql", *min(server.addresses)), name)


def _server(scheme: str, host: str, port: int) -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _iceberg(table: IcebergTableSpec) -> Dataset:
    """Return the dataset of a table: its place if that is known, and its name in the catalog."""
    alias = (_catalog(table), table.table if table.catalog.hive is None else table.table.lower())
    if table.location is None:
        return Dataset(*alias)
    return replace(_files(table.location), alias=alias)


def _catalog(table: IcebergTableSpec) -> str:
    catalog = table.catalog
    if catalog.rest is not None:
        return catalog.rest.uri.rstrip("/")
    if catalog.hive is not None:
        return catalog.hive.uri.lower().replace("thrift://", "hive://")
    if catalog.postgres is not None:
        return f"{_server('postgres', *min(catalog.postgres.addresses))}/{catalog.postgres.database}"
    return f"file://{absolute_path(catalog.file or '')}"
