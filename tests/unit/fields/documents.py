"""The queries that probes vary, and the small files that these queries read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyarrow import csv

from code_packages import entry, zipped

CITIES = "at,seen,city,n\n1600000000,1600000600,Oslo,1\n1600000010,1600000000,Rome,2\n1600000050,1600000000,Rome,3\n"
COLUMNS = "at TIMESTAMP, seen TIMESTAMP, city STRING, n INT"
SQL = "SELECT window, city, count(*) AS k FROM trips GROUP BY window(at, '1 minute'), city"


def query(source: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a document with one source, ``trips``."""
    spec = {"query": {"sql": SQL}, "sink": {"console": {}}} | spec
    return {
        "apiVersion": "millrace.io/v1alpha1",
        "kind": "StreamQuery",
        "metadata": {"name": "fares"},
        "spec": {"sources": {"trips": source}} | spec,
    }


FILES = {
    "files": {"path": "cities.csv", "format": "csv"},
    "schema": COLUMNS,
    "timestampFormat": "seconds",
    "watermark": {"column": "at", "delay": "10s"},
}
BROKERS = {"bootstrapServers": "kafka:9092"}
KAFKA = {
    "kafka": BROKERS | {"topic": "trips"},
    "schema": COLUMNS,
    "timestampFormat": "seconds",
    "watermark": {"column": "at", "delay": "10s"},
}
PACKAGES = {"routes.zip": zipped({"routes.py": "N = 1\n"}), "fares.zip": zipped({"fares.py": "N = 2\n"})}
CODE, OTHER_CODE = (entry(f"file:{name}", content) for name, content in PACKAGES.items())
IN_CONFIG_MAP = {"configMap": {"name": "fares-1", "key": "fares.zip"}, "sha256": OTHER_CODE["sha256"]}
ON_CLUSTER = query(KAFKA, checkpoint={"claimName": "checkpoints"})


def to_text(document: dict[str, Any]) -> str:
    """Return a document as a file has it."""
    return yaml.safe_dump(document, sort_keys=False)


def write_inputs(folder: Path) -> None:
    """Write the files that the documents name."""
    (folder / "cities.csv").write_text(CITIES)
    for name, content in PACKAGES.items():
        (folder / name).write_bytes(content)
    (folder / "n=7").mkdir()
    (folder / "n=7" / "cities.csv").write_text(CITIES)
    (folder / "bare.csv").write_text(CITIES.partition("\n")[2])
    (folder / "others.csv").write_text(CITIES.replace("Oslo", "Bern"))
    (folder / "bad.csv").write_text(CITIES + "never,never,Nome,many\n")
    (folder / "numbers.csv").write_text("n\n" + "\n".join(map(str, range(1000))) + "\n")
    (folder / "cities.json").write_text('{"at": 1600000000, "city": "Oslo", "n": 1}\n')
    pq.write_table(pa.table({"city": ["Oslo", "Rome"], "n": ["1", "many"]}), folder / "bad.parquet")
    read = csv.read_csv(folder / "cities.csv")
    times = {name: read[name].cast(pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC")) for name in ("at", "seen")}
    cities = pa.table(times | {"city": read["city"], "n": read["n"].cast(pa.int32())})
    pq.write_table(cities, folder / "cities.parquet")
    (folder / "first.pem").write_text("the first secret")
    (folder / "second.pem").write_text("the second secret")
