"""Messages in Avro, as ``fastavro`` writes them: each type of a column in the types of Avro that hold it."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import fastavro

from .tables import Column, Row, Table
from .values import KINDS
from .writers import Spelling

_TYPES = {
    "boolean": ("boolean",),
    "tinyint": ("int", "long"),
    "smallint": ("int", "long"),
    "int": ("int", "long"),
    "bigint": ("long",),
    "float": ("float",),
    "double": ("double",),
    "string": ("string",),
    "binary": ("bytes",),
}
_MILLISECONDS = 1000


def writer_schema(table: Table, spelling: Spelling) -> str:
    """Return the schema of a table's messages, which is the same each time."""
    chance = random.Random(spelling.seed)
    fields: list[dict[str, Any]] = []
    for index, column in enumerate(table.in_files):
        type_ = _type_of(column, [row[index] for row in table.rows], chance)
        fields.append({"name": column.name, "type": chance.choice([["null", type_], [type_, "null"]])})
    fields += [{"name": name, "type": {"type": "array", "items": "string"}} for name in spelling.extra]
    if spelling.shuffled:
        chance.shuffle(fields)
    return json.dumps({"type": "record", "name": "Trouble", "fields": fields})


def _type_of(column: Column, values: Sequence[Any], chance: random.Random) -> str | dict[str, Any]:
    kind = column.kind
    if kind.is_decimal:
        logical = {"logicalType": "decimal", "precision": kind.arrow.precision, "scale": kind.arrow.scale}
        fixed = {"type": "fixed", "name": f"Of_{column.name}", "size": 16}
        return chance.choice([{"type": "bytes"}, fixed]) | logical
    if kind is KINDS["date"]:
        return {"type": "int", "logicalType": "date"}
    if kind is KINDS["timestamp"]:
        return {"type": "long", "logicalType": chance.choice(["", "local-"]) + "timestamp-" + _unit(values, chance)}
    return chance.choice(next(types for name, types in _TYPES.items() if KINDS[name] is kind))


def _unit(values: Sequence[Any], chance: random.Random) -> str:
    """Return a unit that holds these times."""
    is_whole = all(value is None or value % _MILLISECONDS == 0 for value in values)
    return chance.choice(["millis", "micros"]) if is_whole else "micros"


def avro_messages(table: Table, row: Row, spelling: Spelling, chance: random.Random) -> Iterator[bytes]:
    """Yield a row as a message without framing, and one that is cut off where the spelling has broken ones."""
    schema = _parsed(writer_schema(table, spelling))
    in_milliseconds = {field["name"] for field in schema["fields"] if "timestamp-millis" in json.dumps(field["type"])}
    values: dict[str, Any] = {name: [chance.choice(["", "other"])] for name in spelling.extra}
    for column, value in zip(table.in_files, row, strict=False):  # what is not in the value comes last
        is_finer = column.name in in_milliseconds and value is not None
        values[column.name] = value // _MILLISECONDS if is_finer else value
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, values)
    yield stream.getvalue()
    if spelling.broken and chance.random() < 0.3:
        yield stream.getvalue()[: chance.randrange(len(stream.getvalue()))]


@cache
def _parsed(schema: str) -> Any:
    return fastavro.parse_schema(json.loads(schema))
