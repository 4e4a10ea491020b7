"""Queries whose checkpoints are kept from each release, each stopped in the middle of its input.

``python -m spark.released_checkpoints VERSION``, with ``tests`` in the path, runs each query on the first half of the
input, and packs its folder into ``released/VERSION``. Run it with the code of the release, and never again for that one.
The folder of the run is ``/srv/shop``: the source's log and Spark's have absolute paths.
"""

from __future__ import annotations

import os
import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cli import Project

RELEASED = Path(__file__).parent / "released"

FOLDER = Path("/srv/shop")

_WINDOW = "window(at, '10 seconds')"
_TO_FIVE_SECONDS = "a.who = b.who AND b.at BETWEEN a.at AND a.at + INTERVAL 5 SECONDS AND a.n < b.n"


@dataclass(frozen=True)
class ReleasedQuery:
    """A query over ``events``, and the same for DuckDB; ``keys`` columns identify a result, all of them if it is 0."""

    sql: str
    expected: str
    keys: int
    algorithm: str

    def write(self, project: Project) -> str:
        """Write the query's file into a folder, and return its name."""
        source: dict[str, Any] = {"watermark": {"column": "at", "delay": "1h"}}
        parallelism = {"initial": 2, "max": 2}
        return project.query(
            self.sql,
            source=source,
            parallelism=parallelism,
            partitioner={"algorithm": self.algorithm},
            checkpoint=None,
        )


_COUNTS = f"SELECT window.start AS since, who, count(*) AS c, max(n) AS most, avg(n) AS mean FROM events GROUP BY {_WINDOW}, who"
_COUNTED = (
    """SELECT time_bucket(INTERVAL 10 SECONDS, "at") AS since, who, count(*), max(n), avg(n) FROM events GROUP BY ALL"""
)

QUERIES = {
    "routed": ReleasedQuery(_COUNTS, _COUNTED, 2, "pkg"),
    "native": ReleasedQuery(_COUNTS, _COUNTED, 2, "native"),
    "table": ReleasedQuery(
        f"SELECT window.start AS since, who, count(DISTINCT n % 7) AS c FROM events GROUP BY {_WINDOW}, who",
        """SELECT time_bucket(INTERVAL 10 SECONDS, "at"), who, count(DISTINCT n % 7) FROM events GROUP BY ALL""",
        2,
        "hash",
    ),
    "join": ReleasedQuery(
        f"SELECT a.at AS since, a.who, a.n, b.n AS m FROM events AS a JOIN events AS b ON {_TO_FIVE_SECONDS}",
        f"SELECT a.at, a.who, a.n, b.n FROM events AS a JOIN events AS b ON {_TO_FIVE_SECONDS}".replace(".at", '."at"'),
        0,
        "hash",
    ),
}


def records(half: int) -> str:
    """Return a half of the input as a csv file; the halves interleave, so that all windows have records of both."""
    numbers = range(half, 240, 2)
    lines = (f"2024-01-01T00:{n // 60:02}:{n % 60:02}Z,{'abcde'[n * n % 5]},{n * 31 % 97}\n" for n in numbers)
    return "at,who,n\n" + "".join(lines)


def record(version: str) -> None:
    """Run each query on the first half of the input with this code, and keep its folder."""
    target = RELEASED / version
    target.mkdir(parents=True)
    for name, query in QUERIES.items():
        FOLDER.mkdir(parents=True)
        try:
            project = Project(FOLDER)
            give_first_half(project)
            with project.start("run", query.write(project), "--once") as running:
                result = running.finish()
            assert result.status == 0, result
            with tarfile.open(target / f"{name}.tar.gz", "w:gz") as archive:
                for part in (".millrace", "out"):
                    archive.add(FOLDER / part, part, filter=_without_driver)
        finally:
            shutil.rmtree(FOLDER)


def unpack(version: str, name: str, folder: Path) -> Project:
    """Unpack the folder that a query of a release has left, with the input that it has read."""
    with tarfile.open(RELEASED / version / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")
    files = folder / ".millrace/query/sources/events/files.jsonl"
    files.write_text(files.read_text(encoding="utf-8").replace(str(FOLDER), str(folder)), encoding="utf-8")
    project = Project(folder)
    give_first_half(project)
    return project


def give_first_half(project: Project) -> None:
    """Give the first half of the input, always with the same time: the source tells files by it."""
    project.give("0.csv", records(0))
    os.utime(project.folder / "in/0.csv", (1_704_067_200, 1_704_067_200))


def _without_driver(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out the driver's files, the checksums of Hadoop, and who ran the query."""
    if Path(member.name).name in ("lock", "lease.json") or member.name.endswith(".crc"):
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


if __name__ == "__main__":
    record(sys.argv[1])
