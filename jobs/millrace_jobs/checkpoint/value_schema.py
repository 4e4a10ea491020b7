"""The file in which Spark keeps the schemas of a state: of its keys, and of the values that it holds for each.

Spark compares the schema of a query's state with it when the query starts. In version 2 of the format, the file has the
version and two texts of JSON in Java's ``DataOutput`` form: a text is cut into parts, which follow their number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import error as struct_error
from struct import pack, unpack_from
from typing import Any

from millrace_jobs.checkpoint.spark_folder import damaged
from millrace_jobs.places import write_durably

_VERSION = "v2"
_LONGEST_PART = 60_000


@dataclass(frozen=True)
class StateSchema:
    """The schemas of a state that is kept by one operator, without names of column families.

    ``file`` has them; ``key`` is JSON, and ``fields`` are those of the values as JSON has them.
    """

    file: Path
    key: str
    fields: tuple[Mapping[str, Any], ...]

    @property
    def types(self) -> list[Any]:
        """The types of the values' fields, in the form of JSON."""
        return [field["type"] for field in self.fields]

    def write(self, fields: Sequence[Mapping[str, Any]]) -> None:
        """Replace the file by one whose values have these fields."""
        value = json.dumps({"type": "struct", "fields": list(fields)}, separators=(",", ":"))
        self.file.with_name(f".{self.file.name}.crc").unlink(missing_ok=True)  # it would not match any more
        write_durably(self.file, _written(_VERSION) + _in_parts(self.key) + _in_parts(value))


def state_schema(spark: Path) -> StateSchema | None:
    """Return the schemas in Spark's part of a checkpoint; None if it has other operators than one aggregation.

    Raises:
        MillraceError: the file is damaged.
    """
    operators = sorted(each.name for each in (spark / "state").iterdir())
    files = [spark / "state" / "0" / place / "_metadata" / "schema" for place in ("0", ".")]
    file = next((each for each in files if each.is_file()), None)
    if operators != ["0"] or file is None:
        return None
    content = file.read_bytes()
    try:
        version, place = _text(content, 0)
        if version != _VERSION:
            return None
        key, place = _parts(content, place)
        value, place = _parts(content, place)
        if place != len(content):
            raise ValueError("more follows")
        return StateSchema(file, key, tuple(json.loads(value)["fields"]))
    except (ValueError, KeyError, TypeError, struct_error):
        raise damaged(file, "it is not what Spark writes there") from None


def _text(content: bytes, place: int) -> tuple[str, int]:
    (length,) = unpack_from(">H", content, place)
    end = place + 2 + length
    return content[place + 2 : end].decode(), end


def _parts(content: bytes, place: int) -> tuple[str, int]:
    (number,) = unpack_from(">i", content, place)
    place, texts = place + 4, []
    for _ in range(number):
        text, place = _text(content, place)
        texts.append(text)
    return "".join(texts), place


def _written(text: str) -> bytes:
    content = text.encode()
    return pack(">H", len(content)) + content


def _in_parts(text: str) -> bytes:
    parts = [text[place : place + _LONGEST_PART // 3] for place in range(0, len(text), _LONGEST_PART // 3)]
    return pack(">i", len(parts)) + b"".join(map(_written, parts))
