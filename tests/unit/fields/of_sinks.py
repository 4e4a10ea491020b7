"""Probes of the sinks, of ``spec.sink`` and of additional outputs alike: where they write, what, and by which key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

from millrace_api.model.iceberg import IcebergCatalogSpec
from millrace_api.model.streamquery import StreamQuery
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.databases.connection import DatabaseConnection
from millrace_jobs.databases.postgres import PostgresConnection
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.lakehouse.iceberg_catalog import rest_secrets, rest_settings
from millrace_jobs.lookups.history import NO_TIMES
from millrace_jobs.own_code.sink_functions import SinkBatch
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native
from millrace_jobs.queries.results import result_keys
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.queries.tables.needs import holds_back, times_ahead
from millrace_jobs.secrets import Secret
from millrace_jobs.sinks.base import Sink
from millrace_jobs.sinks.console.connector import ConsoleSink, _Head
from millrace_jobs.sinks.databases.sink import DatabaseSink
from millrace_jobs.sinks.files.object_sink import ObjectFilesSink
from millrace_jobs.sinks.files.sink import FilesSink
from millrace_jobs.sinks.kafka.registered.sink import RegisteredSink, ResultSchema
from millrace_jobs.sinks.kafka.sink import KafkaSink
from millrace_jobs.sinks.kafka.table import TableSink
from millrace_jobs.sinks.lakehouse.delta_sink import DeltaSink
from millrace_jobs.sinks.lakehouse.iceberg_sink import IcebergSink
from millrace_jobs.sinks.outputs import OutputSinks, open_sinks
from millrace_jobs.sinks.python.connector import PythonSink

from .documents import BROKERS, FILES, query
from .of_kafka import ENV, connection_probes, secret_probes
from .of_registries import registry_probes
from .probe import ABSENT, Document, Probe, See, probes, written

Number = int
SQL = "SELECT window.start AS since, city, count(*) AS k FROM trips GROUP BY window(at, '1 minute'), city"
TOPIC = BROKERS | {"topic": "out"}
DATABASE = {"host": "db", "database": "sales", "table": "out", "key": ["city", "since"], "user": "millrace"}
REST = {"uri": "https://catalog", "clientId": "a", "clientSecret": ENV[0]}
METASTORE = {"uri": "thrift://metastore:9083"}
ICEBERG = {"catalog": {"rest": REST}, "table": "a.out", "key": ["city", "since"]}
DELTA = {"path": "out", "key": ["city", "since"]}
HISTORY = {"topic": "earlier", "retention": "1h"}
FINAL = {"emit": "OnWindowClose", "sink": {"files": {"path": "final"}}}


def compiled(asked: StreamQuery) -> CompiledQuery:
    """Return the query as Spark would type its results; held back by our own operators if it asks for that."""
    result = StructType().add("since", TimestampType()).add("city", StringType()).add("k", LongType())
    if not holds_back(asked.spec):
        return CompiledQuery(Native(parsed_query(SQL), "the probe wants it"), result, True)
    work = Aggregation("trips", "", (), None, (), (), "")
    routed = Routed("trips", None, None, None, work, times_ahead(asked.spec, 0))
    return CompiledQuery(routed, result, True)


def opened(asked: StreamQuery, number: Number, partitions: int = 2) -> Sink:
    """Return the sink of an output, for a state of so many partitions."""
    plan = compiled(asked)
    keys = {field: result_keys(plan, spec) for field, spec in asked.spec.outputs.items()}
    sinks = open_sinks(asked, keys, "a-checkpoint", lambda *_: None, results=plan.result, partitions=partitions)
    return sinks._outputs[number].sink if isinstance(sinks, OutputSinks) else sinks


def described(sink: Sink) -> object:
    """Return where a sink writes, and what it does with rows."""
    if isinstance(sink, FilesSink):
        every = None if sink._compaction is None else sink._compaction.every
        return sink.place, sink._updates, sink._parts, sink._most, sink._keys, every
    if isinstance(sink, ObjectFilesSink):
        return sink.place, sink._updates, sink._keys, None if sink._plan is None else sink._plan.every
    if isinstance(sink, ConsoleSink):
        rows = pa.RecordBatch.from_pydict({"k": list(range(50))})
        return sink.place, [batch.num_rows for batch in _Head(sink._rows)(iter([rows]))]
    if isinstance(sink, DatabaseSink):
        return sink.place, sink._wanted
    if isinstance(sink, DeltaSink):
        return sink.place, sink._keys, sink._spec.model_dump(exclude={"path", "key"})
    if isinstance(sink, IcebergSink):
        return sink.place, sink._keys, sink._spec.model_dump(exclude={"table", "key"})
    if isinstance(sink, PythonSink):
        return sink.place, sink._function._options
    assert isinstance(sink, KafkaSink)
    kept: object = sink._tasks.by_partition
    if isinstance(sink, TableSink) and sink._history is not None:
        kept = sink._history.topic.name, sink._history.times(10_000_000_000, NO_TIMES)
    return type(sink).__name__, sink.place, sink._keys, kept


def write(results: pa.Table, batch: SinkBatch, *, topic: str) -> None:
    """Write results."""


def write_more(results: pa.Table, batch: SinkBatch, *, topic: str) -> None:
    """Write results in another way."""


HERE = __name__
WRITING = {"write": f"{HERE}:write", "options": {"topic": "a"}}


def of_sink(place: str, base: dict[str, object], number: Number) -> Iterator[Probe]:
    """Yield the probes of a sink; ``base`` lacks it, and ``number`` is that of its output."""

    def see(asked: StreamQuery) -> object:
        return described(opened(asked, number))

    def see_one_partition(asked: StreamQuery) -> object:
        return described(opened(asked, number, 1))

    def connection(asked: StreamQuery) -> Connection:
        sink = opened(asked, number)
        assert isinstance(sink, KafkaSink)
        return sink._topic.connection

    kinds = {
        "files": {"path": "out"},
        "console": {},
        "kafka": TOPIC,
        "table": TOPIC,
        "postgres": DATABASE,
        "mysql": DATABASE,
        "delta": DELTA,
        "iceberg": ICEBERG,
        "python": WRITING,
    }
    documents = {kind: written(base, place, {kind: sink}) for kind, sink in kinds.items()}
    none = written(base, place, {})
    yield from (Probe(f"{place}.{kind}", none, (ABSENT, sink), see) for kind, sink in kinds.items())
    yield Probe(f"{place}.files.path", documents["files"], ("out", "others", "s3a://lake/out"), see)
    parted = written(documents["files"], f"{place}.files.partitionBy", ["city"])
    yield from probes(
        documents["files"], see, f"{place}.files", partitionBy=(ABSENT, ["city"]), filesPerPartition=(ABSENT, 2)
    )
    yield Probe(f"{place}.files.filesPerPartition", parted, (ABSENT, 2), see)
    stored = written(base, place, {"files": {"path": "s3a://lake/out"}})
    for files in (documents["files"], stored):
        yield Probe(f"{place}.files.key", files, (ABSENT, ["city", "since"]), see)
        keyed = written(files, f"{place}.files.key", ["city", "since"])
        yield Probe(f"{place}.files.compactEvery", keyed, (ABSENT, 7), see)
    yield Probe(f"{place}.files.format", documents["files"], ("csv", "json", "parquet"), see)
    yield Probe(f"{place}.console.rows", documents["console"], (20, 30), see)
    for kind in ("kafka", "table"):
        yield Probe(f"{place}.{kind}.topic", documents[kind], ("out", "others"), see)
        yield Probe(f"{place}.{kind}.key", documents[kind], (ABSENT, ["city", "since"], ["city"]), see)
        yield from connection_probes(f"{place}.{kind}", documents[kind], connection)
    yield Probe(f"{place}.kafka.transaction", documents["kafka"], ("Batch", "Partition"), see)
    yield Probe(f"{place}.kafka.transaction", documents["kafka"], ("Batch", "Auto"), see_one_partition)
    yield from of_schemas(f"{place}.kafka", documents["kafka"], see, number)
    for kind in ("postgres", "mysql"):
        yield from of_database(f"{place}.{kind}", documents[kind], see, number)
    yield from of_delta(f"{place}.delta", documents["delta"], see)
    yield from of_iceberg(f"{place}.iceberg", documents["iceberg"], see, number)
    yield from probes(
        documents["python"], see, f"{place}.python", write=(f"{HERE}:write", f"{HERE}:write_more"),
        options=({"topic": "a"}, {"topic": "b"}),
    )  # fmt: skip


def of_schemas(place: str, base: Document, see: See, number: Number) -> Iterator[Probe]:
    """Yield the probes of values with a schema of a registry; none is asked."""

    def schema(asked: StreamQuery) -> ResultSchema:
        sink = opened(asked, number)
        assert isinstance(sink, RegisteredSink)
        return sink.schema

    def registered(asked: StreamQuery) -> object:
        found = schema(asked)
        return type(found.format), found.subject, found.record, found.spec.register_schema

    schemas = {"registry": "https://first"}
    in_avro = written(written(base, f"{place}.format", "avro"), f"{place}.schemas", schemas)
    without = written(base, f"{place}.schemas", schemas)
    yield Probe(f"{place}.format", without, ("json", "avro", "protobuf"), registered)
    yield Probe(f"{place}.format", base, ("json",), see)
    yield Probe(f"{place}.schemas", written(base, f"{place}.format", "avro"), (ABSENT, schemas), see)
    naming = ("TopicName", "RecordName", "TopicRecordName")
    yield from probes(
        in_avro,
        registered,
        f"{place}.schemas",
        subjects=naming,
        record=(ABSENT, "shop.Trips", "shop.Rides"),
        register=(True, False),
    )
    yield from registry_probes(f"{place}.schemas", in_avro, lambda asked: schema(asked).registry(), secret_probes)


def of_database(place: str, base: Document, see: See, number: Number) -> Iterator[Probe]:
    """Yield the probes of a table in a database; no server is asked."""

    def connection(asked: StreamQuery) -> DatabaseConnection:
        sink = opened(asked, number)
        assert isinstance(sink, DatabaseSink)
        return sink._dialect.connection

    yield from server_probes(place, base, connection)
    yield Probe(f"{place}.table", base, ("out", "sales.out"), see)
    yield Probe(f"{place}.key", base, (ABSENT, ["city", "since"], ["city"]), see)


def server_probes(
    place: str, base: Document, connection: Callable[[StreamQuery], DatabaseConnection]
) -> Iterator[Probe]:
    """Yield the probes of a connection to a database, used as ``connection`` returns it."""

    def settings(asked: StreamQuery) -> object:
        given = connection(asked)
        if not isinstance(given, PostgresConnection):
            login = None if given.password is None else given.password.resolve()
            tls = None if given.tls is None else [(part, secret.resolve()) for part, secret in given.tls]
            return given.hosts, given.database, given.user, login, tls
        with TemporaryDirectory() as folder:
            found = given.settings(Path(folder))
            files = {name: Path(folder, name).read_text() for name in found if Path(folder, name).exists()}
            return found | files

    def references(asked: StreamQuery) -> Iterator[tuple[str, Secret]]:
        password = connection(asked).password
        if password is not None:
            yield "password", password
        yield from connection(asked).tls or ()

    yield from probes(
        base,
        settings,
        place,
        host=("db", "db:5433", "db,other"),
        database=("sales", "others"),
        user=("millrace", "other"),
        password=(ABSENT, *ENV),
        tls=(ABSENT, {}, {"ca": ENV[0]}),
    )
    tls = written(base, f"{place}.tls", dict.fromkeys(("ca", "certificate", "key"), ENV[0]))
    yield from probes(tls, settings, f"{place}.tls", ca=(ABSENT, *ENV), certificate=(ABSENT, *ENV), key=(ABSENT, *ENV))
    secrets = [(f"{place}.tls.{name}", tls) for name in ("ca", "certificate", "key")]
    secrets.append((f"{place}.password", written(base, f"{place}.password", ENV[0])))
    yield from secret_probes(secrets, settings, references)


def of_delta(place: str, base: Document, see: See) -> Iterator[Probe]:
    """Yield the probes of a Delta table; none is opened."""
    yield from probes(
        base,
        see,
        place,
        path=("out", "s3a://lake/out"),
        key=(ABSENT, ["city", "since"], ["city"]),
        partitionBy=(ABSENT, ["city"]),
        sortBy=(ABSENT, ["since"]),
        schemaEvolution=("Refuse", "AddColumns"),
    )
    yield from probes(base, see, f"{place}.maintenance", compactEvery=(0, 100), retention=("7d", "1d"))


def of_iceberg(place: str, base: Document, see: See, number: Number) -> Iterator[Probe]:
    """Yield the probes of an Iceberg table; no catalog is asked."""

    def catalog(asked: StreamQuery) -> IcebergCatalogSpec:
        sink = opened(asked, number)
        assert isinstance(sink, IcebergSink)
        return sink._spec.catalog

    yield from probes(
        base,
        see,
        place,
        table=("a.out", "a.b.out"),
        location=(ABSENT, "out", "s3a://lake/out"),
        key=(ABSENT, ["city", "since"], ["city"]),
        partitionBy=(ABSENT, ["city"], ["days(since)"]),
        sortBy=(ABSENT, ["since"]),
        schemaEvolution=("Refuse", "AddColumns"),
    )
    yield from probes(base, see, f"{place}.maintenance", compactEvery=(0, 100), retention=("7d", "1d"))
    yield from catalog_probes(place, base, see, catalog)


def catalog_probes(
    place: str, base: Document, see: See, catalog: Callable[[StreamQuery], IcebergCatalogSpec]
) -> Iterator[Probe]:
    """Yield the probes of a catalog of tables, used as ``catalog`` returns it; none is asked."""

    def rest(asked: StreamQuery) -> object:
        found = catalog(asked).rest
        return None if found is None else rest_settings(found)

    def references(asked: StreamQuery) -> Iterator[tuple[str, Secret]]:
        found = catalog(asked).rest
        yield from () if found is None else rest_secrets(found).items()

    def connection(asked: StreamQuery) -> PostgresConnection:
        found = catalog(asked).postgres
        assert found is not None
        return PostgresConnection.of(found)

    none = written(base, f"{place}.catalog", {})
    server = {"host": "db", "database": "lake", "user": "millrace"}
    kinds = {"rest": REST, "hive": METASTORE, "postgres": server, "file": "catalog.db"}
    yield from (Probe(f"{place}.catalog.{kind}", none, (ABSENT, found), see) for kind, found in kinds.items())
    at = f"{place}.catalog.rest"
    with_token = written(base, at, {"uri": "https://catalog", "token": ENV[0]})
    yield from probes(
        base,
        rest,
        at,
        uri=("https://catalog", "https://catalog/iceberg"),
        warehouse=(ABSENT, "lake"),
        clientId=("a", "b"),
        tokenUri=(ABSENT, "https://login/token"),
        scope=(ABSENT, "all"),
    )
    secrets = [(f"{at}.token", with_token), (f"{at}.clientSecret", written(base, f"{at}.clientSecret", ENV[0]))]
    yield from secret_probes(secrets, rest, references)
    yield Probe(f"{at}.clientSecret", base, (ABSENT, *ENV), rest)
    yield Probe(f"{at}.token", written(base, at, {"uri": "https://catalog"}), (ABSENT, *ENV), rest)
    in_hive = written(base, f"{place}.catalog", {"hive": METASTORE})
    yield Probe(f"{place}.catalog.hive.uri", in_hive, ("thrift://metastore:9083", "thrift://other:9083"), see)
    in_postgres = written(base, f"{place}.catalog", {"postgres": server})
    yield Probe(f"{place}.catalog.postgres.name", in_postgres, ("millrace", "lake"), see)
    yield from server_probes(f"{place}.catalog.postgres", in_postgres, connection)


def mode(asked: StreamQuery) -> object:
    """Return Spark's output mode."""
    return compiled(asked).output_mode(asked.spec)


def ahead(asked: StreamQuery) -> object:
    """Return how long before the end of its window each output emits a row first."""
    return times_ahead(asked.spec, 0)


def marked(asked: StreamQuery) -> object:
    """Return whether files have the number of the batch of each update."""
    sink = opened(asked, 0)
    assert isinstance(sink, FilesSink)
    return sink._updates


def outputs(asked: StreamQuery) -> object:
    """Return the outputs with what they do."""
    return [(field, described(opened(asked, number))) for number, field in enumerate(asked.spec.outputs)]


def of_sinks() -> Iterator[Probe]:
    """Yield the probes of the sinks and of when results are emitted."""
    alone = query(FILES, query={"sql": SQL}, checkpoint={"claimName": "checkpoints"})
    strategies = ("OnUpdate", "OnWindowEnd", "OnWindowClose")
    main = written(alone, "spec.sink", {"files": {"path": "main"}})
    yield from of_sink("spec.sink", alone, 0)
    plain, table = (written(alone, "spec.sink", {"table": TOPIC | more}) for more in ({}, {"history": HISTORY}))
    yield Probe("spec.sink.table.history", plain, (ABSENT, HISTORY), lambda asked: described(opened(asked, 0)))
    yield from probes(
        table,
        lambda asked: described(opened(asked, 0)),
        "spec.sink.table.history",
        topic=("earlier", "older"),
        retention=("1h", "2h"),
    )
    final = written(written(alone, "spec.emit", "OnWindowClose"), "spec.sink", {"table": TOPIC})
    yield Probe("spec.sink.table.transaction", final, ("Batch", "Partition"), lambda asked: described(opened(asked, 0)))
    yield Probe("spec.emit", main, strategies, ahead)
    yield Probe("spec.emit", main, ("OnUpdate", "OnWindowClose"), mode)
    yield Probe("spec.emit", main, ("OnUpdate", "OnWindowClose"), marked)
    both = written(main, "spec.additionalOutputs", {"final": FINAL})
    yield from of_sink("spec.additionalOutputs.*.sink", both, 1)
    yield Probe("spec.additionalOutputs.*.emit", both, strategies, ahead)
    yield Probe("spec.additionalOutputs", alone, (ABSENT, {"final": FINAL}, {"final": FINAL, "last": FINAL | {
        "sink": {"console": {}}}}), outputs)  # fmt: skip
