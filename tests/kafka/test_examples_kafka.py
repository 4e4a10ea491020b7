"""The examples through Kafka: filled by the command in their first lines, their topics come to what DuckDB computes."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from lab.kafka import Broker
from lab.topics import Message, committed, make, table_of
from spark.cli import Project
from spark.example_answers import EXAMPLES, TABLES

pytestmark = [pytest.mark.kafka, pytest.mark.spark]

FOLDER = Path(__file__).parents[2] / "examples"
COMMAND = re.compile(r"^#   millrace (produce .*)$", re.MULTILINE)
Run = Callable[..., dict[str, list[Message]]]


@pytest.fixture
def run(broker: Broker, topic: str, tmp_path: Path) -> Run:
    """Fills the topic of an example, runs it once, and returns what is in its topics, by their names there.

    Keyword arguments are settings of the topic for the results.
    """
    project = Project(tmp_path)

    def run(name: str, *options: str, **config: str) -> dict[str, list[Message]]:
        text = (FOLDER / name).read_text(encoding="utf-8")
        topics = re.findall(r"topic: ([\w-]+)", text)
        text = re.sub(r"topic: ([\w-]+)", rf"topic: {topic}-\1", text)  # other tests share the broker
        make(broker, f"{topic}-{topics[1]}", 2, **config)
        project.write(name, text.replace("localhost:9092", broker.bootstrap))
        command = COMMAND.search(text)
        assert command is not None
        filled = project.millrace(*shlex.split(command[1].replace(f"examples/{name}", name)), *options)
        assert (filled.status, filled.err) == (0, ""), filled
        result = project.millrace("run", name, "--once")
        assert (result.status, result.err) == (0, ""), result
        assert result.summary["rows"] == filled.summary["delivered"]
        return {used: committed(broker, f"{topic}-{used}") for used in topics}

    return run


def values(messages: list[Message]) -> list[dict[str, Any]]:
    return [json.loads(message.value or b"") for message in messages]


def answer(bids: list[Message], sql: str) -> list[tuple[Any, ...]]:
    """DuckDB's answer over the bids in a topic."""
    with duckdb.connect() as connection:
        connection.register("bid", pa.Table.from_pylist(values(bids)))
        return connection.sql(sql).fetchall()


def test_the_example_of_an_auction_table_has_the_last_row_of_each_auction(run: Run) -> None:
    found = run("23-kafka-auction-table.yaml", "--count", "8000", cleanup_policy="compact")
    assert {int(bid.key or b"") for bid in found["bids"]} == {bid["auction"] for bid in values(found["bids"])}
    rows = [json.loads(value) for value in table_of(found["auction-table"]).values()]
    expected = answer(found["bids"], "SELECT auction, count(*), max(price) FROM bid GROUP BY auction")
    assert Counter(tuple(row[name] for name in ("auction", "bids", "highest")) for row in rows) == Counter(expected)


def test_the_example_of_frequent_routes_finds_the_routes_of_all_rides(run: Run, tmp_path: Path) -> None:
    subprocess.run([sys.executable, FOLDER / "rides.py", "out/data/rides.csv"], cwd=tmp_path, check=True)
    found = run("24-kafka-frequent-routes.yaml", "--count", "8000")
    assert len(found["rides"]) == 8000
    sent = tmp_path / "out/data/rides.csv"
    assert {ride.value for ride in found["rides"]} <= set(sent.read_bytes().replace(b'"', b"").splitlines())
    sent.write_bytes(b"\n".join(ride.value or b"" for ride in found["rides"]))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE rides AS {TABLES['rides'].replace('out/data', f'{tmp_path}/out/data')}")
        expected = Counter(connection.sql(EXAMPLES["05"].sql).fetchall())
    routes = [{**route, "until": _moment(route["until"])} for route in values(found["frequent-routes"])]
    assert expected
    assert Counter(tuple(route.values()) for route in routes) == expected


def test_the_example_of_a_selection_has_the_selected_bids(run: Run) -> None:
    found = run("25-kafka-selection.yaml", "--count", "8000")
    expected = answer(found["bids"], "SELECT auction, bidder, price, date_time FROM bid WHERE auction % 123 = 0")
    selected = values(found["selected-bids"])
    assert expected
    assert Counter(
        (bid["auction"], bid["bidder"], bid["price"], _moment(bid["date_time"])) for bid in selected
    ) == Counter((*bid, _moment(moment)) for *bid, moment in expected)


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=None)
