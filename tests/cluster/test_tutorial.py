"""docs/tutorial-shop.md: its commands, run as they stand on the page, and both tables of its query, row by row."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pyarrow as pa
import pytest
import yaml
from pyiceberg.catalog import load_catalog

from lab import topics
from lab.alerts import faster_rules
from lab.deployed import Deployed
from lab.iceberg_catalog import running_catalog
from lab.installation import Installation, scraped_pods
from lab.parts.millrace_images import JOBS_IMAGE, ROOT, TAG
from lab.postgres import PostgresServer, running_postgres
from lab.prometheus import PrometheusServer, running_prometheus
from lab.s3_server import ACCESS, SECRET, S3Server
from lab.waiting import wait_until
from millrace_operator.metrics_source.client import Prometheus
from millrace_operator.metrics_source.settings import PrometheusSettings
from unit.monitoring.sources import dashboards

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=4), pytest.mark.timeout(1800)]

PAGE = (ROOT / "docs/tutorial-shop.md").read_text(encoding="utf-8")
FILES = ROOT / "examples/shop"
NAME, NAMESPACE, PASSWORD = "clicks-by-tier", "shop", "a-password-71"
COMMAND_SECONDS = 900.0

PER_WINDOW = """
    WITH versions AS (
        SELECT *, lead("at", 1, 'infinity') OVER (PARTITION BY id ORDER BY place) AS until FROM changes
    )
    SELECT time_bucket(INTERVAL '10 minutes', c."at") AS since, c.page, v.tier, count(*) AS clicks
    FROM clicks c JOIN versions v ON v.id = c.customer AND v."at" <= c."at" AND c."at" < v.until AND v.op <> 'd'
    GROUP BY ALL
"""
CLOSED = f"""
    SELECT * FROM ({PER_WINDOW})
    WHERE since + INTERVAL '10 minutes' <= (SELECT max("at") - INTERVAL '5 minutes' FROM clicks)
"""

Row = tuple[Any, ...]


def sections() -> dict[int, list[str]]:
    """Return the commands of each numbered section of the page: its blocks of shell."""
    parts = re.split(r"^## (\d+)\. .*$", PAGE, flags=re.M)[1:]
    blocks = (re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S) for text in parts[1::2])
    return dict(zip(map(int, parts[::2]), blocks, strict=True))


@dataclass
class Shop:
    """The servers of the tutorial, and the shell of its reader."""

    on: Installation
    s3: S3Server
    postgres: PostgresServer
    catalog: str
    """URL of the catalog."""

    prometheus: PrometheusServer
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The reader's environment: the variables of the page, and the programs that it asks for."""
        programs = self.folder / "bin"
        return os.environ | {
            "PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "KUBECONFIG": str(self.on.cluster.kubeconfig),
            "JOBS_IMAGE": f"{JOBS_IMAGE}:{TAG}",
            "DATABASE": f"postgresql://millrace@{self.postgres.host}/shop",
            "PGPASSWORD": PASSWORD,
            "S3_ACCESS_KEY": ACCESS,
            "S3_SECRET_KEY": SECRET,
        }

    def run(self, section: int) -> str:
        """Run the commands of a section of the page, which must succeed, and return their output."""
        said = ""
        for block in sections()[section]:
            shell = ["bash", "-euo", "pipefail", "-c", block]
            done = subprocess.run(
                shell,
                cwd=ROOT,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=COMMAND_SECONDS,
                check=False,
            )
            assert done.returncode == 0, f"{block}fails: {done.stdout}{done.stderr}{self._found()}"
            said += done.stdout
        return said

    def _found(self) -> str:
        """Return what is in the namespace, and what the Job has said."""
        questions = (["get", "pods,events", "-o", "wide"], ["logs", "job/shop", "--tail=20"])
        found = [self.on.cluster.kubectl("-n", NAMESPACE, *question) for question in questions]
        return "".join(f"{each.stdout}{each.stderr}" for each in found)

    def make_services(self) -> None:
        """Let the servers be found under the names of ``services.yaml``, whose objects the API server has to take."""
        documents = list(yaml.safe_load_all((FILES / "services.yaml").read_text(encoding="utf-8")))
        self.on.kubectl("-n", NAMESPACE, "apply", "--dry-run=server", "-f", FILES / "services.yaml")
        servers = {
            "kafka": self.on.broker.bootstrap,
            "postgres": self.postgres.host,
            "s3": self.s3.url.removeprefix("http://"),
            "catalog": self.catalog.removeprefix("http://"),
        }
        for each in documents:
            if each["kind"] == "Service":
                name, [port] = each["metadata"]["name"], each["spec"]["ports"]
                self.on.make_service(NAMESPACE, name, port["port"], servers.pop(name))
        assert not servers

    def expected(self, question: str) -> Counter[Row]:
        """Return what DuckDB makes of the messages in both topics."""
        messages = [(place, each.value) for place, each in enumerate(self._messages("shop.public.customers"))]
        changes = [(place, json.loads(value)) for place, value in messages if value is not None]
        rows = [
            {"place": place, "op": each["op"], "at": _time(each["source"]["ts_ms"])} | (each["after"] or each["before"])
            for place, each in changes
        ]
        clicks = [json.loads(each.value or b"") for each in self._messages("shop.clicks")]
        times = [each | {"at": datetime.fromisoformat(each["at"])} for each in clicks]
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("changes", pa.Table.from_pylist(rows))
            connection.register("clicks", pa.Table.from_pylist(times))
            return Counter(connection.sql(question).fetchall())

    def in_postgres(self) -> Counter[Row]:
        """Return the rows of the table in PostgreSQL."""
        with psycopg.connect(self.environment["DATABASE"], password=PASSWORD) as connection:
            return Counter(connection.execute("SELECT since, page, tier, clicks FROM clicks_by_tier").fetchall())

    def in_iceberg(self) -> Counter[Row]:
        """Return the rows of the data files that the Iceberg table has, as DuckDB reads them on the server's disk."""
        login = {"s3.access-key-id": ACCESS, "s3.secret-access-key": SECRET}
        place = {"s3.endpoint": self.s3.url, "s3.region": "us-east-1"}
        table = load_catalog("shop", type="rest", uri=self.catalog, **login, **place).load_table("shop.clicks_by_tier")
        objects = self.s3.folder / "objects"
        files = [str(objects / task.file.file_path.partition("://")[2]) for task in table.scan().plan_files()]
        if not files:
            return Counter()
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            found = connection.execute("SELECT since, page, tier, clicks FROM read_parquet(?)", [files])
            return Counter(found.fetchall())

    def unanswered(self) -> set[str]:
        """Return those panels that the page names and whose questions have no answer at all."""
        panels = {panel["title"]: panel for panel in dashboards()["query"]["panels"]}
        named = re.findall(r"^\| \*(.+?)\* \|", PAGE, re.M)
        assert len(named) >= 7
        with closing(Prometheus(PrometheusSettings(self.prometheus.url))) as client:
            return {
                title
                for title in named
                if not any(client.instant(_filled(target["expr"])) for target in panels[title]["targets"])
            }

    def _messages(self, topic: str) -> list[Any]:
        return topics.committed(self.on.broker, topic)


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _filled(expression: str) -> str:
    values = {"$__rate_interval": "30s", "$cluster": ".*", "$namespace": NAMESPACE, "$query": NAME}
    for name, value in values.items():
        expression = expression.replace(name, value)
    return expression


@pytest.fixture
def shop(installation: Installation, shared_s3: S3Server, tmp_path: Path) -> Iterator[Shop]:
    """The servers, and the programs under the names that a reader calls them by."""
    cluster, address = installation.cluster, installation.cluster.node_address
    (tmp_path / "bin").mkdir()
    for name in ("kubectl", "helm"):
        (tmp_path / "bin" / name).symlink_to(cluster.program(name))
    with ExitStack() as stack:
        postgres = stack.enter_context(running_postgres(address))
        postgres.execute(f"CREATE ROLE millrace LOGIN PASSWORD '{PASSWORD}'")
        postgres.execute("CREATE DATABASE shop OWNER millrace")
        catalog = stack.enter_context(running_catalog(tmp_path, address))
        jobs, rules = [scraped_pods(cluster.kubeconfig)], faster_rules(10)
        (tmp_path / "prometheus").mkdir()
        prometheus = running_prometheus(tmp_path / "prometheus", host=address, jobs=jobs, rules=rules)
        yield Shop(installation, shared_s3, postgres, catalog, stack.enter_context(prometheus), tmp_path)


def test_every_command_of_the_page_works_and_both_tables_have_every_row_once(shop: Shop) -> None:
    query = Deployed(shop.on, NAMESPACE, NAME)
    shop.run(1)
    shop.make_services()
    for section in (2, 3):
        shop.run(section)
    said = shop.run(4)
    assert f"streamquery.millrace.io/{NAME}" in said
    wait_until(shop.in_postgres, "there are rows in PostgreSQL")
    wait_until(shop.in_iceberg, "there are rows in Iceberg")
    assert "snapshots; the latest window: 2024-05-01" in shop.run(5)
    assert "millrace-dashboard-query" in shop.run(6)
    wait_until(lambda: not shop.unanswered(), lambda: f"the panels have answers: {shop.unanswered()}")

    driver = query.driver["metadata"]["uid"]
    shop.run(7)
    assert query.driver["metadata"]["uid"] != driver
    expected, closed = shop.expected(PER_WINDOW), shop.expected(CLOSED)
    wait_until(lambda: shop.in_postgres() == expected, lambda: _difference(shop.in_postgres(), expected))
    wait_until(lambda: shop.in_iceberg() == closed, lambda: _difference(shop.in_iceberg(), closed))
    for rows in (expected, closed):
        assert f"{len(rows):,} rows with {sum(row[3] for row in rows):,} clicks" in " ".join(PAGE.split())
    for text in (query.log, query.kubectl("get", "sq,cm,sts,pods,events", "-o", "json")):
        assert PASSWORD not in text
        assert SECRET not in text
    shop.run(8)
    assert not shop.on.kubectl("get", "namespace", NAMESPACE, "--ignore-not-found", "-o", "name")


def _difference(found: Counter[Row], expected: Counter[Row]) -> str:
    missing, more = expected - found, found - expected
    return f"{missing.total()} rows are missing and {more.total()} too many: {[*missing][:3]} {[*more][:3]}"
