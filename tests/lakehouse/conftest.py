"""Places for the tables of tests, a folder or a prefix in a real S3 server that the tests share, and catalogs of them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lab.hive_metastore import running_metastore
from lab.iceberg_catalog import running_catalog
from lab.mariadb import MariaDbServer, running_mariadb
from lab.postgres import DATABASE, OWNER, PASSWORD, PostgresServer, running_postgres
from lab.s3_server import BUCKET, S3Server, running_s3
from spark.conftest import spark, workspace  # noqa: F401


@pytest.fixture(scope="session")
def shared_s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """The server that tests share. Leave it running."""
    with running_s3(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture
def s3(shared_s3: S3Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> S3Server:  # noqa: F811
    """The shared server, as the environment of this process names it, of those that it starts, and of Spark's tasks."""
    for name, value in shared_s3.environment.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)  # its JVM runs since earlier tests
    return shared_s3


@pytest.fixture
def in_s3(s3: S3Server) -> str:
    """A place of its own in the bucket."""
    return f"s3a://{BUCKET}/{uuid.uuid4().hex[:12]}/table"


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a table, in a folder with an odd name or in S3."""
    if request.param == "s3":
        return str(request.getfixturevalue("in_s3"))
    return str(tmp_path / "a table, 50% done")


@pytest.fixture(scope="session")
def rest_catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the REST catalog that tests share."""
    with running_catalog(tmp_path_factory.mktemp("catalog")) as url:
        yield url


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of the Hive metastore that tests share."""
    with running_metastore(tmp_path_factory.mktemp("metastore")) as uri:
        yield uri


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The PostgreSQL server that tests share. Leave it running."""
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[MariaDbServer]:
    """The MariaDB server that tests share. Leave it running."""
    with running_mariadb() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_catalog(postgres_server: PostgresServer) -> dict[str, Any]:
    """The catalog in that server, as a query names it."""
    os.environ["LAB_DATABASE_PASSWORD"] = PASSWORD
    login = {"user": OWNER, "password": {"env": "LAB_DATABASE_PASSWORD"}}
    return {"host": postgres_server.host, "database": DATABASE, **login}


@pytest.fixture(params=["file", "postgres in S3", "rest", "hive"])
def iceberg(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Fields of a sink for a new table: one in a folder with an odd name, one in S3, and one where a catalog puts it."""
    name = f"a{uuid.uuid4().hex[:12]}.results"
    if request.param == "file":
        place = str(tmp_path / "a table, 50% done")
        return {"catalog": {"file": str(tmp_path / "catalog.db")}, "table": name, "location": place}
    if request.param == "hive":
        return {"catalog": {"hive": {"uri": request.getfixturevalue("metastore")}}, "table": name}
    if request.param == "rest":
        return {"catalog": {"rest": {"uri": request.getfixturevalue("rest_catalog")}}, "table": name}
    server, place = request.getfixturevalue("postgres_catalog"), request.getfixturevalue("in_s3")
    return {"catalog": {"postgres": server}, "table": name, "location": place}
