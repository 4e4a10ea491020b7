"""A Hive metastore: the jars, and the SQL that makes its tables in PostgreSQL."""

from __future__ import annotations

import tarfile
from pathlib import Path

from .maven_jars import MavenJars
from .part import Report

SCHEMA = "schema.sql"
"""Name of the file with the SQL."""

_SCRIPT = "scripts/metastore/upgrade/postgres/hive-schema-4.0.0.postgres.sql"


class _HiveMetastore(MavenJars):
    """The jars of a pom, one of which is an archive with the others."""

    def fill(self, folder: Path, report: Report) -> None:
        super().fill(folder, report)
        (packed,) = folder.glob("*.tar.gz")
        with tarfile.open(packed) as archive:
            for member in archive:
                path = member.name.partition("/")[2]
                content = archive.extractfile(member)
                if content is not None and (path == _SCRIPT or path.startswith("lib/")):
                    name = SCHEMA if path == _SCRIPT else Path(path).name
                    (folder / name).write_bytes(content.read())
        packed.unlink()


HIVE_METASTORE = _HiveMetastore("the Hive metastore", "hive", Path(__file__).with_name("hive.pom.xml"))
