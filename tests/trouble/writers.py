"""Files as others write them: CSV, JSON lines and Parquet of the same records in many spellings.

Nothing here uses the product: a value is written by hand, or by DuckDB, PyArrow or pandas.
"""

from __future__ import annotations

import base64
import codecs
import gzip
import json
import math
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from .tables import Column, Row, Table
from .values import BROKEN_TEXTS, EARLIEST, KINDS, LATEST, QUOTED_TEXTS, SECOND, TEXTS, WORDS, Kind, Value

FORMATS = ("csv", "json", "parquet")
_UNITS = {"seconds": SECOND, "milliseconds": 1000, "microseconds": 1}


@dataclass(frozen=True)
class Spelling:
    """How the files of a source are written: the fields of the source, and choices that they do not name."""

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``files`` beside path and format."""
    timestamps: str = "iso"
    seed: int = 0
    bom: bool = False
    crlf: bool = False
    final_newline: bool = True
    compressed: bool = False
    shuffled: bool = False
    """Whether columns stand in another order than in the schema."""
    extra: tuple[str, ...] = ()
    """Columns that the schema does not have."""
    parquet: str = "pyarrow"
    broken: bool = False
    """Whether there are records that do not decode, which the source drops."""

    @property
    def suffix(self) -> str:
        return f".{self.format}" + (".gz" if self.compressed else "")

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that a file can hold."""
        return WORDS + TEXTS + QUOTED_TEXTS + BROKEN_TEXTS

    def holds(self, kind: Kind) -> bool:
        """Whether the format has the type."""
        return self.format != "csv" or kind is not KINDS["binary"]

    def fits(self, table: Table) -> bool:
        """Whether the format holds the table."""
        texts = {value for row in table.rows for value in row if isinstance(value, str)}
        return all(self.holds(column.kind) for column in table.in_files) and texts <= set(self.texts)


def draw_spelling(chance: random.Random, format: str) -> Spelling:
    """Return a way to write files of a format."""
    seed = chance.randrange(2**31)
    if format == "parquet":
        return Spelling(
            format,
            seed=seed,
            shuffled=chance.random() < 0.3,
            parquet=chance.choice(PARQUET),
            extra=("other",) if chance.random() < 0.3 else (),
        )
    options: dict[str, Any] = {}
    header = True
    if format == "csv":
        header = chance.random() < 0.8
        options = {} if header else {"header": False}
        options |= {"delimiter": chance.choice(";|\t")} if chance.random() < 0.3 else {}
    return Spelling(
        format,
        options,
        chance.choice(["iso", "iso", "iso", "seconds", "milliseconds", "microseconds"]),
        seed,
        bom=chance.random() < 0.15,
        crlf=chance.random() < 0.25,
        final_newline=chance.random() < 0.8,
        compressed=chance.random() < 0.1,
        shuffled=header and chance.random() < 0.4,
        broken=chance.random() < 0.1,
        extra=chance.choice([(), (), ("other",), ("x y", "x y")]) if header and format == "csv" else
        chance.choice([(), ("other",)]) if format == "json" else (),
    )  # fmt: skip


def draw_messages(chance: random.Random, format: str) -> Spelling:
    """Return a way to write messages, which are Avro in place of Parquet."""
    if format == "parquet":
        extra, shuffled = chance.choice([(), ("other",)]), chance.random() < 0.3
        return Spelling(
            "avro", seed=chance.randrange(2**31), shuffled=shuffled, extra=extra, broken=chance.random() < 0.1
        )
    spelling = draw_spelling(chance, format)
    options = {"header": False} if spelling.format == "csv" else {}
    extra = spelling.extra if spelling.format == "json" else ()
    shuffled = spelling.shuffled and spelling.format == "json"
    plain = replace(spelling, bom=False, crlf=False, compressed=False, final_newline=True)
    return replace(plain, options=options, extra=extra, shuffled=shuffled)


def draw_fitting(
    chance: random.Random, table: Table, draw: Callable[[random.Random, str], Spelling] = draw_spelling
) -> Spelling:
    """Return a way to write a table."""
    spelling = draw(chance, chance.choice(FORMATS))
    while not spelling.fits(table):
        spelling = draw(chance, chance.choice(FORMATS))
    return spelling


def write_table(table: Table, spelling: Spelling, folder: Path, numbers: Iterable[int] | None = None) -> None:
    """Write the files of a table with these numbers, or all, which a source reads in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(len(table.files)) if numbers is None else numbers:
        rows = table.files[index]
        path = folder / f"{index:03d}{spelling.suffix}"
        chance = random.Random(spelling.seed + index)
        if spelling.format == "parquet":
            _write_parquet(table, rows, spelling, path)
        else:
            _write_lines(record_lines(table.in_files, rows, spelling, chance), spelling, path)
        os.utime(path, ns=(10**18 + index * 10**9,) * 2)  # files are read in the order of their times


def record_lines(
    columns: Sequence[Column], rows: Sequence[Row], spelling: Spelling, chance: random.Random
) -> list[str]:
    """Return rows as lines of a file, with its header, or as messages."""
    return (_csv_lines if spelling.format == "csv" else _json_lines)(columns, rows, spelling, chance)


def _write_lines(lines: Sequence[str], spelling: Spelling, path: Path) -> None:
    end = "\r\n" if spelling.crlf else "\n"
    text = end.join(lines) + (end if lines and spelling.final_newline else "")
    content = (codecs.BOM_UTF8 if spelling.bom else b"") + text.encode()
    path.write_bytes(gzip.compress(content) if spelling.compressed else content)


def _order(columns: Sequence[Column], spelling: Spelling) -> list[int | str]:
    """Return what stands in a file, in this order: the index of a column of the schema, or the name of another."""
    found: list[int | str] = [*range(len(columns)), *spelling.extra]
    if spelling.shuffled:
        random.Random(spelling.seed).shuffle(found)
    return found


def _csv_lines(columns: Sequence[Column], rows: Sequence[Row], spelling: Spelling, chance: random.Random) -> list[str]:
    delimiter = spelling.options.get("delimiter", ",")
    order = _order(columns, spelling)
    header = [columns[item].name if isinstance(item, int) else item for item in order]
    lines = [delimiter.join(header)] if spelling.options.get("header", True) else []
    for row in rows:
        fields = [
            _csv_field(columns[item].kind, row[item], spelling.timestamps, delimiter, chance)
            if isinstance(item, int)
            else chance.choice(["", "1", '"a""b"'])
            for item in order
        ]
        lines.append(delimiter.join(fields))
        if spelling.broken and chance.random() < 0.3:
            lines.append(
                _broken_csv(fields, [columns[i].kind if isinstance(i, int) else None for i in order], delimiter, chance)
            )
    return lines


_BROKEN = {
    "integer": ("0x10", "abc", "1.5", "--1", "1e3", "99999999999999999999", "1 2", "1_000", "NaN", "١"),
    "floating": ("abc", "1.2.3", "--1", "0x1p3", "1e", "1_000"),
    "decimal": ("abc", "NaN", "1.2.3", "1" * 60),
    "boolean": ("maybe", "2", "tru"),
    "date": ("2024-02-30", "31.12.2024", "tomorrow", "2024-13-01", "2024-1"),
    "timestamp": ("2024-02-30T00:00:00", "2024-01-01T25:00:00", "2016-12-31T23:59:61Z", "noon", "01.05.2024 10:00"),
}
"""Texts that are no values of a type."""


def _nonsense(kind: Kind | None, timestamps: str, chance: random.Random) -> str | None:
    """Return a text that is no value of the type; None if there is none."""
    if kind is None or kind in (KINDS["string"], KINDS["binary"]):
        return None
    sort = "integer" if kind.is_integer else "floating" if kind.is_floating else "decimal" if kind.is_decimal else None
    name = sort or next(name for name in ("boolean", "date", "timestamp") if kind is KINDS[name])
    return chance.choice(_BROKEN["floating"] if name == "timestamp" and timestamps in _UNITS else _BROKEN[name])


def _broken_csv(fields: list[str], kinds: list[Kind | None], delimiter: str, chance: random.Random) -> str:
    """Return a record with a field that is no value of its type, or with one field too many."""
    index = chance.randrange(len(fields))
    text = _nonsense(kinds[index], "iso", chance)
    if text is None or delimiter in text:
        return delimiter.join([*fields, "1"])
    return delimiter.join([*fields[:index], text, *fields[index + 1 :]])


def _csv_field(kind: Kind, value: Value, timestamps: str, delimiter: str, chance: random.Random) -> str:
    if value is None:
        return "" if kind is KINDS["string"] else chance.choice(["", "", '""'])
    if kind is KINDS["string"]:
        needed = not value or value[:1] == '"' or any(mark in value for mark in (delimiter, "\r", "\n"))
        quoted = needed or chance.random() < 0.3
        return '"' + value.replace('"', '""') + '"' if quoted else value
    text = text_of(kind, value, timestamps, chance)
    return f'"{text}"' if chance.random() < 0.1 or delimiter in text else text


def text_of(kind: Kind, value: Value, timestamps: str, chance: random.Random) -> str:
    """Return one of the spellings of a value that is neither NULL, nor text, nor bytes."""
    if kind is KINDS["boolean"]:
        return chance.choice(["true", "True", "TRUE"] if value else ["false", "False", "FALSE"])
    if kind is KINDS["timestamp"]:
        return timestamp_text(value, timestamps, chance)
    if kind is KINDS["date"]:
        return _moment(value * 86_400 * SECOND)[:10]
    if kind.is_floating:
        return _float_text(kind, value, chance)
    if kind.is_decimal:
        return f"{value:f}"
    return str(value)


def _float_text(kind: Kind, value: float, chance: random.Random) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    return text.upper() if "e" in text and chance.random() < 0.5 else text


def timestamp_text(value: int, timestamps: str, chance: random.Random) -> str:
    """Return one of the spellings of a time: a number in its unit, or ISO 8601 with or without a zone."""
    if timestamps in _UNITS:
        unit = _UNITS[timestamps]
        whole, part = divmod(value, unit)
        if not part:
            return str(whole)
        digits = len(str(unit)) - 1
        sign = "-" if value < 0 else ""
        whole, part = divmod(abs(value), unit)
        return f"{sign}{whole}.{part:0{digits}d}"
    zone = chance.choice(["", "Z", "Z", "+01:00", "-05:30", "+14:00", "+0200", "-03"])
    offset = _offset(zone)
    if not EARLIEST <= value + offset <= LATEST:
        zone, offset = "Z", 0
    text = _moment(value + offset)
    fraction = text[19:]
    if not fraction.strip(".0"):
        fraction = chance.choice(["", ".0", ".000", ".000000"])
    elif chance.random() < 0.3:
        fraction = fraction.rstrip("0")
    elif chance.random() < 0.2:
        fraction += "000"
    return text[:10] + chance.choice("T ") + text[11:19] + fraction + zone


def _offset(zone: str) -> int:
    if zone in ("", "Z"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return (-seconds if zone[0] == "-" else seconds) * SECOND


def _moment(value: int) -> str:
    """Return ``yyyy-mm-dd hh:mm:ss.ffffff`` of a time."""
    moment = pa.array([value], pa.int64()).cast(pa.timestamp("us")).to_pylist()[0]
    return f"{moment.year:04d}-{moment:%m-%d %H:%M:%S.%f}"


def _json_lines(columns: Sequence[Column], rows: Sequence[Row], spelling: Spelling, chance: random.Random) -> list[str]:
    lines = []
    for row in rows:
        parts = []
        for item in _order(columns, spelling):
            if isinstance(item, str):
                parts.append((item, chance.choice(["1", '"a"', "null", "[1, {}]", '{"a": null}'])))
            elif row[item] is not None or chance.random() < 0.5:
                parts.append((columns[item].name, json_value(columns[item].kind, row[item], spelling, chance)))
        space = chance.choice(["", " "])
        lines.append("{" + f",{space}".join(f"{json.dumps(name)}:{space}{value}" for name, value in parts) + "}")
        if spelling.broken and chance.random() < 0.3:
            lines.append(_broken_json(columns, spelling.timestamps, chance))
    return lines


def _broken_json(columns: Sequence[Column], timestamps: str, chance: random.Random) -> str:
    """Return a line that is no object, or an object with a value of another type."""
    column = chance.choice(columns)
    text = _nonsense(column.kind, timestamps, chance)
    wrong = ["{}", "[1]", "true" if column.kind is not KINDS["boolean"] else "1", *([json.dumps(text)] if text else [])]
    whole = ["nonsense", "[1]", "null", '{"a":', "1", '"a"', '{"a": 1} {"a": 2}', "{'a': 1}", "{,}"]
    return chance.choice([f'{{"{column.name}": {chance.choice(wrong)}}}', chance.choice(whole)])


def json_value(kind: Kind, value: Value, spelling: Spelling, chance: random.Random) -> str:
    if value is None:
        return "null"
    if kind is KINDS["boolean"]:
        return json.dumps(value)
    if kind is KINDS["string"]:
        return json.dumps(value, ensure_ascii=chance.random() < 0.5)
    if kind is KINDS["binary"]:
        return json.dumps(base64.b64encode(value).decode())
    text = text_of(kind, value, spelling.timestamps, chance)
    is_number = not (kind.is_floating and not math.isfinite(value)) and kind is not KINDS["date"]
    if kind is KINDS["timestamp"]:
        is_number = spelling.timestamps in _UNITS
    return text if is_number else json.dumps(text)


PARQUET = ("pyarrow", "dictionary", "int96", "large", "nanoseconds", "milliseconds", "zoned", "duckdb", "old", "nulls",
           "bytes", "texts", "wide", "views")  # fmt: skip
"""The writers of Parquet, and what they do to the types of columns."""


def _write_parquet(table: Table, rows: Sequence[Row], spelling: Spelling, path: Path) -> None:
    data = table.arrow(rows)
    for name in spelling.extra:
        data = data.append_column(name, pa.array([{"a": [1]}] * len(rows)))
    order = _order(table.columns, spelling)
    data = data.select([table.columns[item].name if isinstance(item, int) else item for item in order])
    options: dict[str, Any] = {"row_group_size": 5, "compression": "zstd"}
    match spelling.parquet:
        case "duckdb":
            with duckdb.connect() as connection:
                connection.register("data", data)
                connection.execute("COPY data TO '{}' (FORMAT parquet)".format(str(path).replace("'", "''")))
            return
        case "dictionary":
            data = _each(data, lambda column: column.dictionary_encode() if pa.types.is_string(column.type) else column)
        case "int96":
            options = {"use_deprecated_int96_timestamps": True}
        case "old":
            options = {"version": "1.0", "data_page_version": "1.0", "store_schema": False, "compression": "none"}
        case "nulls":
            data = _each(data, lambda column: _nulls(column) if column.null_count == len(column) else column)
        case other:
            data = _cast(data, _TYPES.get(other, {}))
    pq.write_table(data, path, **options)


_TYPES: Mapping[str, Mapping[pa.DataType, pa.DataType]] = {
    "large": {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()},
    "views": {pa.string(): pa.string_view(), pa.binary(): pa.binary_view()},
    "bytes": {pa.string(): pa.binary()},
    "texts": {pa.binary(): pa.string()},
    "nanoseconds": {pa.timestamp("us"): pa.timestamp("ns")},
    "milliseconds": {pa.timestamp("us"): pa.timestamp("ms")},
    "zoned": {pa.timestamp("us"): pa.timestamp("us", "Europe/Oslo")},
    "wide": {
        pa.int8(): pa.int64(),
        pa.int16(): pa.int32(),
        pa.int32(): pa.int64(),
        pa.float32(): pa.float64(),
        pa.decimal128(10, 2): pa.decimal128(20, 2),
        pa.decimal128(5, 5): pa.decimal256(50, 5),
    },
}
"""What a writer makes of types, where each value has a place in the other type."""


def _nulls(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pa.chunked_array([pa.nulls(len(column))])


def _each(data: pa.Table, change: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.Table:
    return pa.table([change(column) for column in data.columns], data.column_names)


def _cast(data: pa.Table, types: Mapping[pa.DataType, pa.DataType]) -> pa.Table:
    def cast(column: pa.ChunkedArray) -> pa.ChunkedArray:
        try:
            return column.cast(types.get(column.type, column.type))
        except pa.ArrowInvalid:  # nanoseconds and milliseconds do not hold every time
            return column

    return _each(data, cast)
