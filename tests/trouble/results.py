"""The results that a query has written, in each format, as values that Python compares."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lab.topics import Message, table_of

from .answers import Row, rows_of

BATCH = "_batch_id"


def read_results(folder: Path, format: str, expected: pa.Schema) -> tuple[list[str], list[Row]]:
    """Return the names of the columns in a folder of results, and all rows."""
    files = sorted(folder.glob(f"batch-*.{format}"))
    names: list[str] = []
    rows: list[Row] = []
    for file in files:
        if format == "parquet":
            table = pq.read_table(file, coerce_int96_timestamp_unit="us")
            names = table.column_names
            rows += rows_of(table)
        elif format == "csv":
            header, *records = _csv_records(file.read_bytes().decode())
            names = [(name or "").lower() for name in header]
            rows += [
                tuple(_from_text(text, name, expected) for text, name in zip(r, names, strict=True)) for r in records
            ]
        else:
            with file.open(encoding="utf-8", newline="\n") as lines:
                objects = list(map(_object, lines))
            names, more = _json_rows(objects, expected)
            rows += more
    return names, rows


def rows_of_messages(
    messages: Sequence[Message], expected: pa.Schema, *, is_table: bool, is_final: bool
) -> tuple[list[str], list[Row]]:
    """Return the names of the columns in messages, and all rows or those of their table; with batches unless final."""
    if is_table:
        return _json_rows([_object(value) for value in table_of(messages).values()], expected)
    batches = [{} if is_final else {BATCH: int(each.headers["millrace-batch"] or b"")} for each in messages]
    objects = [_object(each.value or b"") | batch for each, batch in zip(messages, batches, strict=True)]
    return _json_rows(objects, expected)


def wrong_keys(messages: Sequence[Message]) -> list[Message]:
    """Return the messages whose key has a field that their value has not."""
    with_both = [each for each in messages if each.key is not None and each.value is not None]
    return [each for each in with_both if not _object(each.key).items() <= _object(each.value).items()]


def _object(text: str | bytes) -> dict[str, Any]:
    return json.loads(text, parse_float=str, parse_int=str)


def _json_rows(objects: list[dict[str, Any]], expected: pa.Schema) -> tuple[list[str], list[Row]]:
    objects = [{name.lower(): value for name, value in each.items()} for each in objects]
    known = {name.lower() for name in expected.names}
    names = [*expected.names, *sorted({name for each in objects for name in each if name not in known})]
    return names, [tuple(_from_json(each.get(name.lower()), name, expected) for name in names) for each in objects]


_CSV_FIELD = re.compile(r'(?:"((?:[^"]|"")*)"|([^,\n]*))(,|\n)')


def _csv_records(text: str) -> list[list[str | None]]:
    """Return the records of a CSV file, where an empty field without quotes is NULL."""
    records: list[list[str | None]] = [[]]
    for field in _CSV_FIELD.finditer(text):
        quoted, plain, end = field.groups()
        records[-1].append(plain or None if quoted is None else quoted.replace('""', '"'))
        if end == "\n":
            records.append([])
    return records[:-1]


def _from_text(text: str | None, name: str, expected: pa.Schema) -> Any:
    if text is None:
        return None
    return int(text) if name == BATCH else _typed(text, expected.field(name).type)


def _from_json(value: Any, name: str, expected: pa.Schema) -> Any:
    if value is None or name not in (*expected.names, BATCH):
        return value
    return int(value) if name == BATCH else _typed(value, expected.field(name).type)


def _typed(value: Any, kind: pa.DataType) -> Any:
    """Return a value in CSV or JSON that Spark wrote, as the type of DuckDB's answer."""
    if pa.types.is_struct(kind):
        return tuple(_typed(value[field.name], field.type) for field in kind)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else {"true": True, "false": False}[value]
    if pa.types.is_timestamp(kind):
        return _micros(value)
    if pa.types.is_date32(kind):
        return _micros(f"{value}T00:00:00.000000Z") // 86_400_000_000
    if pa.types.is_floating(kind):
        return float(np.float32(value)) if kind == pa.float32() else float(value)
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    return b64decode(value, validate=True) if pa.types.is_binary(kind) else value


def _micros(text: str) -> int:
    """Return a time of ISO 8601, in which years of five digits have a sign."""
    plain = text.removesuffix("Z").removeprefix("+")
    with duckdb.connect() as connection:
        return int(connection.execute("SELECT epoch_us(?::TIMESTAMP)", [plain]).fetchall()[0][0])
