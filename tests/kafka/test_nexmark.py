"""NEXMark's queries with joins on Kafka: what is in their topics in the end is what DuckDB has for all records."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
import yaml

from lab.kafka import Broker
from lab.topics import committed, fill, make, table_of
from spark.cli import Project
from spark.example_answers import EXAMPLES, FOLDER, TABLES, file_of, make_tables

pytestmark = [pytest.mark.in_turn, pytest.mark.kafka, pytest.mark.spark]

PARTITIONS = 2
STREAMS = ("person", "auction", "bid")
SECONDS = 10
"""Event time of the site that is in the topics."""

WINNERS = """SELECT a.id, a.item_name, a.seller, a.expires, max(b.price) AS price,
        arg_max(b.bidder, (b.price, -epoch_us(b.date_time), b.bidder)) AS bidder
    FROM auction a JOIN bid b ON a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY ALL"""
"""The winners of all auctions: the end of the input closes those that have not expired by then."""

LAST = f"""SELECT * FROM ({WINNERS}) QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, id DESC) <= 10"""
ANSWERS = {
    "14": EXAMPLES["14"].sql,
    "17": EXAMPLES["17"].sql,
    "21": EXAMPLES["21"].sql,
    "28": f"""SELECT category, avg(price), count(*) FROM ({WINNERS}) JOIN (SELECT id, category FROM auction) USING (id)
        GROUP BY category""",
    "29": EXAMPLES["29"].sql,
}
"""DuckDB's queries by the number of the example."""


class Site(NamedTuple):
    """The records of the auction site: in files, as tables of DuckDB, and in topics that begin with ``prefix``."""

    folder: Path
    tables: duckdb.DuckDBPyConnection
    broker: Broker
    prefix: str

    def query(self, number: str, topic: str, **sources: Any) -> dict[str, Any]:
        """Return an example that reads the site's topics, and writes to a topic as its emit needs."""
        document: dict[str, Any] = yaml.safe_load(file_of(number).read_text(encoding="utf-8"))
        spec = document["spec"]
        for name, source in spec["sources"].items():
            if "files" in source:  # a static table
                source["files"]["path"] = str(self.folder / source["files"]["path"])
                continue
            source.pop("replay", None)
            source["kafka"] = {"bootstrapServers": self.broker.bootstrap, "topic": f"{self.prefix}-{name}"}
            source.update(sources.get(name, {}))
            if "watermark" in source:  # the topics are not read in step
                source["watermark"]["delay"] = f"{SECONDS}s"
        kind, settings = next(iter(spec["sink"].items()))
        key = {"key": settings["key"]} if "key" in settings else {}
        kind = "table" if kind == "table" else "kafka"
        spec["sink"] = {kind: {"bootstrapServers": self.broker.bootstrap, "topic": topic} | key}
        return document


@pytest.fixture(scope="module")
def site(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, str(FOLDER / "nexmark.py"), "out/data"], cwd=folder, check=True)
    prefix = f"nexmark-{uuid.uuid4().hex[:12]}"
    with duckdb.connect() as connection:
        make_tables(connection, folder, {table: TABLES[table] for table in (*STREAMS, "side_input")})
        for stream in STREAMS:
            connection.execute(
                f"DELETE FROM {stream} WHERE date_time >= TIMESTAMP '2024-01-01' + INTERVAL {SECONDS} SECONDS"
            )
            make(broker, f"{prefix}-{stream}", PARTITIONS)
            records = connection.sql(f"FROM {stream} ORDER BY date_time").to_arrow_table().to_pylist()
            for partition in range(PARTITIONS):
                fill(broker, f"{prefix}-{stream}", map(as_json, records[partition::PARTITIONS]), partition)
        yield Site(folder, connection, broker, prefix)


@pytest.mark.parametrize("number", ANSWERS, ids=[file_of(number).stem for number in ANSWERS])
def test_a_query_of_the_site_has_the_results_of_duckdb(
    site: Site, make_topic: Callable[..., str], tmp_path: Path, number: str
) -> None:
    topic = make_topic(PARTITIONS, cleanup_policy="compact" if number == "28" else "delete")
    assert results(site, site.query(number, topic), tmp_path) == answer(site, ANSWERS[number])


def test_a_query_reads_the_winning_bids_that_another_one_writes(
    site: Site, make_topic: Callable[..., str], tmp_path: Path
) -> None:
    winners = make_topic(PARTITIONS)
    assert results(site, site.query("26", winners), tmp_path / "winners") == answer(site, WINNERS)
    reading = {"kafka": {"bootstrapServers": site.broker.bootstrap, "topic": winners}}
    query = site.query("27", make_topic(PARTITIONS, cleanup_policy="compact"), winners=reading)
    last = f"SELECT seller, avg(price), count(*) FROM ({LAST}) GROUP BY seller"
    assert results(site, query, tmp_path / "prices") == answer(site, last)


def results(site: Site, query: dict[str, Any], folder: Path) -> Counter[tuple[Any, ...]]:
    """Run a query once and return the rows of its table, or all the messages in its topic."""
    project = Project(folder)
    project.write("query.yaml", yaml.safe_dump(query))
    project.write("last_values.py", (FOLDER / "last_values.py").read_text(encoding="utf-8"))
    result = project.millrace("run", "query.yaml", "--once")
    assert (result.status, result.err) == (0, ""), result
    assert (result.summary["late"], result.summary["rejected"]) == ("0", "0")
    ((kind, sink),) = query["spec"]["sink"].items()
    messages = committed(site.broker, sink["topic"])
    values = table_of(messages).values() if kind == "table" else [message.value or b"" for message in messages]
    return Counter(tuple(map(comparable, json.loads(value).values())) for value in values)


def answer(site: Site, sql: str) -> Counter[tuple[Any, ...]]:
    rows = site.tables.sql(sql).fetchall()
    assert rows
    return Counter(tuple(map(comparable, row)) for row in rows)


def comparable(value: Any) -> Any:
    """Return a value of JSON or DuckDB in one form."""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
    return round(value, 6) if isinstance(value, float) else value


def as_json(record: dict[str, Any]) -> dict[str, Any]:
    return {name: comparable(value) for name, value in record.items()}
