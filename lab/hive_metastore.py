"""A Hive metastore for tests: the real one over a PostgreSQL server, both on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from xml.sax.saxutils import escape

from .cache import require
from .parts.hive_metastore import HIVE_METASTORE, SCHEMA
from .ports import free_port
from .postgres import DATABASE, OWNER, PASSWORD, running_postgres
from .processes import Process
from .waiting import wait_until

_JVM = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]

LOCK_SECONDS = 20
"""After how long the metastore takes a lock from a writer that is gone; by default it is 300."""

_HOST = "127.0.0.1"


@contextmanager
def running_metastore(folder: Path) -> Iterator[str]:
    """Run a metastore whose tables are in a folder unless they name another place; yield its URI.

    Raises:
        MissingError: Java is not installed, or the jars were not made.
    """
    require("java")
    jars = HIVE_METASTORE.find()
    with running_postgres() as database:
        database.execute((jars / SCHEMA).read_text(encoding="utf-8"))
        port = free_port()
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:postgresql://{_HOST}:{database.port}/{DATABASE}",
            "javax.jdo.option.ConnectionDriverName": "org.postgresql.Driver",
            "javax.jdo.option.ConnectionUserName": OWNER,
            "javax.jdo.option.ConnectionPassword": PASSWORD,
            "datanucleus.connectionPool.maxPoolSize": "5",
            "metastore.thrift.bind.host": _HOST,
            "metastore.warehouse.dir": f"file://{folder}/tables",
            "metastore.housekeeping.threads.on": "true",
            "metastore.txn.timeout": f"{LOCK_SECONDS}s",
            "metastore.acid.housekeeper.interval": "1s",
            "metastore.timedout.txn.reaper.start": "1s",
            "metastore.timedout.txn.reaper.interval": "1s",
        }
        (folder / "metastore-site.xml").write_text(_site(settings), encoding="utf-8")
        program = ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
        process = Process(["java", *_JVM, "-cp", f"{folder}:{jars}/*", *program], folder / "metastore.log")

        def answers() -> bool:
            with suppress(OSError), socket.create_connection((_HOST, port), timeout=5):
                return True
            return False

        try:
            wait_until(answers, lambda: f"the metastore answers: {process.said[-2000:]}", seconds=180)
            yield f"thrift://{_HOST}:{port}"
        finally:
            process.kill()


def _site(settings: dict[str, str]) -> str:
    properties = "".join(
        f"<property><name>{name}</name><value>{escape(value)}</value></property>\n" for name, value in settings.items()
    )
    return f"<configuration>\n{properties}</configuration>\n"
