"""Logs of Delta tables, written by hand with features that deltalake does not write."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_MAGIC = 1681511377
"""The number that a deletion vector begins with, little-endian."""


class WrittenLog:
    """A table whose log is written here."""

    def __init__(
        self, folder: Path, fields: Sequence[dict[str, Any]], features: Sequence[str] = (), **configuration: str
    ) -> None:
        self.folder, self.version = folder, 0
        (folder / "_delta_log").mkdir(parents=True)
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
        self._metadata = {
            "id": "a-table",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [],
            "configuration": configuration,
        }
        self.commit({"protocol": protocol}, {"metaData": self._metadata})

    def commit(self, *actions: dict[str, Any]) -> None:
        """Write the next version."""
        lines = "".join(f"{json.dumps(action)}\n" for action in actions)
        (self.folder / "_delta_log" / f"{self.version:020d}.json").write_text(lines)
        self.version += 1

    def file(self, name: str, content: pa.Table, *, in_96_bits: bool = False, **more: Any) -> dict[str, Any]:
        """Write a data file, with times in 96 bits or 64, and return the action that adds it."""
        pq.write_table(content, self.folder / name, use_deprecated_int96_timestamps=in_96_bits)
        size = (self.folder / name).stat().st_size
        stats = json.dumps({"numRecords": len(content)})
        add = {"path": name, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
        return {"add": add | {"stats": stats} | more}

    def renamed(self, fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the action that gives the table these columns."""
        return {"metaData": self._metadata | {"schemaString": json.dumps({"type": "struct", "fields": fields})}}


def column(name: str, kind: Any, physical: str = "", number: int = 0) -> dict[str, Any]:
    mapped = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical} if physical else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": mapped}


OUTSIDE = ["../other/a.parquet", "%2E%2E/other/a.parquet", "file://{table}/../other/a.parquet"]
"""Paths of a file beside a table, as its log may have them."""
PLAIN = [column("id", "long"), column("city", "string")]


def numbers(first: int, count: int = 10) -> pa.Table:
    found = range(first, first + count)
    return pa.table({"id": pa.array(found, pa.int64()), "city": [str(number) for number in found]})


def bitmap(deleted: Sequence[int]) -> bytes:
    """Return deleted rows as a deletion vector has them: bitmaps of 32 bits by the upper 32 bits of their rows."""
    return struct.pack("<iqi", _MAGIC, 1, 0) + BitMap(deleted).serialize()


def z85(content: bytes) -> str:
    return base64.b85encode(content, pad=True).decode().translate(str.maketrans(_B85, _Z85))


def inline(deleted: Sequence[int]) -> dict[str, Any]:
    content = bitmap(deleted)
    padded = content + b"\0" * (-len(content) % 4)
    size, count = len(content), len(deleted)
    return {"storageType": "i", "pathOrInlineDv": z85(padded), "sizeInBytes": size, "cardinality": count}
