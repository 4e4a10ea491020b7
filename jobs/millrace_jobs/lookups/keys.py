"""Keys as users write them, converted to the JSON text that identifies a row in the topic and in the store.

The text of a key is that of ``sinks.kafka.messages``: a JSON object with the key columns in their order, as Spark
writes it. The texts of keys with the same leading columns begin alike.
"""

from __future__ import annotations

import base64
import csv
import json
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any

from millrace_jobs.time_texts import date_text, micros_of, time_text

_INTEGERS = frozenset({"tinyint", "smallint", "int", "bigint"})
_TEXTS = frozenset({"string", "date", "timestamp", "timestamp_ntz"})
_SHORT_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES = str.maketrans({chr(code): f"\\u{code:04X}" for code in range(0x20)} | _SHORT_ESCAPES)
_PRECISE = Context(prec=80, rounding=ROUND_HALF_EVEN)


_JAVA_NUMBER = re.compile(r"-?\d+\.\d+(E-?\d+)?")


class _Numeral(str):
    """The text of a JSON number."""


class BadRequestError(ValueError):
    """A request that cannot be answered; the message is one sentence for the user."""


@dataclass(frozen=True)
class KeyColumn:
    """A column of a table's key.

    ``type`` is Spark's short name of its type, such as ``bigint``. If the column identifies a window, ``part`` is
    ``window``, ``start`` or ``end``, and ``size`` the window's length in microseconds.
    """

    name: str
    type: str
    part: str | None = None
    size: int = 0


def key_text(columns: Sequence[KeyColumn], written: str, window: str | None = None) -> bytes:
    """Return the text of a whole key.

    Args:
        columns: the columns of the key.
        written: the values, as described in ``_values``.
        window: the start of the window, from which the columns that identify a window are filled in; ``written`` then
            has only the others.

    Raises:
        BadRequestError: this is not a key of the table.
    """
    asked = [column for column in columns if window is None or column.part is None]
    values = _values(asked, written) if asked else []
    if len(values) != len(asked):
        raise BadRequestError(
            f"the key {written!r} has {_count(len(values), 'value')}: write one for each of {_names(asked)}, "
            "separated by commas or as a JSON array"
        )
    rest = iter(values)
    texts = [
        _encoded(next(rest), column) if window is None or column.part is None else _of_window(window, column)
        for column in columns
    ]
    return _object(columns, texts, "}")


def prefix_text(columns: Sequence[KeyColumn], written: str) -> bytes:
    """Return the text that begins every key with these leading columns.

    The last value of plain text may end with ``*``: then its column begins with the text before the ``*``.

    Raises:
        BadRequestError: no key of the table begins like this.
    """
    values = _values(columns, written)
    if len(values) > len(columns):
        raise BadRequestError(f"the prefix {written!r} has {len(values)} values, and the key only {_names(columns)}")
    leading = columns[: len(values)]
    last = values[-1] if values else None
    if isinstance(last, str) and last.endswith("*") and written[:1] not in ("[", "{"):
        if leading[-1].type not in _TEXTS:
            raise BadRequestError(f"{leading[-1].name} is a {leading[-1].type}: only text and times can end with *")
        texts = [_encoded(value, column) for value, column in zip(values[:-1], leading[:-1], strict=True)]
        return _object(leading, [*texts, _quoted(last[:-1])[:-1]], "")
    texts = [_encoded(value, column) for value, column in zip(values, leading, strict=True)]
    return _object(leading, texts, "}" if len(leading) == len(columns) else ",")


def time_of(written: str) -> int:
    """Return an event time in microseconds since 1970 from its text, in UTC without an offset.

    Raises:
        BadRequestError: it is no time.
    """
    try:
        return micros_of(written)
    except ValueError:
        raise BadRequestError(f"{written[:80]!r} is not a time: write it like 2024-03-01T12:00:00Z") from None


def _values(columns: Sequence[KeyColumn], written: str) -> list[Any]:
    """Return the values of a key, which is a JSON array, a JSON object, or plain text.

    Text that begins with ``[`` or ``{`` is JSON. Plain text is the value of the only column, or values separated by
    commas, as in a CSV file.
    """
    if written[:1] not in ("[", "{"):
        return [written] if len(columns) == 1 else next(csv.reader([written], strict=True), [])
    try:
        found = json.loads(written, parse_float=_Numeral, parse_int=_Numeral)
    except (ValueError, RecursionError):
        raise BadRequestError(
            f'the key {written!r} is not JSON: write text that begins with [ or {{ as ["{written[:1]}..."]'
        ) from None
    if isinstance(found, list):
        return found
    names = [column.name for column in columns[: len(found)]]
    if set(found) != set(names):
        raise BadRequestError(f"the key has the columns {_names(columns)}: {written!r} has to name them, or the first")
    return [found[name] for name in names]


def _object(columns: Sequence[KeyColumn], texts: Sequence[str], end: str) -> bytes:
    members = (f"{_quoted(column.name)}:{text}" for column, text in zip(columns, texts, strict=True))
    try:
        return ("{" + ",".join(members) + (end if columns else end.replace(",", ""))).encode()
    except UnicodeEncodeError:
        raise BadRequestError("the key is not valid UTF-8") from None


def _quoted(text: str) -> str:
    """Return a JSON string with exactly the escapes that Spark's JSON writer uses."""
    return f'"{text.translate(_ESCAPES)}"'


def _of_window(start: str, column: KeyColumn) -> str:
    """Return the text of a column that identifies the window with this start."""
    if column.part == "window":
        return _encoded(start, column)
    zoned = column.type != "timestamp_ntz"
    begin = _micros(start, zoned=zoned, column=column)
    return _time(begin if column.part == "start" else begin + column.size, zoned=zoned)


def _encoded(value: Any, column: KeyColumn) -> str:
    """Return the JSON text of one value, as Spark writes it for the column's type."""
    if value is None:
        return "null"
    try:
        return _typed(value, column)
    except BadRequestError:
        raise
    except (ValueError, TypeError, ArithmeticError, LookupError):
        shown = value if isinstance(value, str) else _json(value)
        raise BadRequestError(f"{column.name} is a {column.type}, and {shown!r} is not one") from None


def _typed(value: Any, column: KeyColumn) -> str:
    kind = column.type
    if column.part == "window":
        return _window(value, column)
    if kind in ("timestamp", "timestamp_ntz"):
        zoned = kind == "timestamp"
        return _time(_micros(value, zoned=zoned, column=column), zoned=zoned)
    if kind == "boolean":
        return {"true": "true", "false": "false"}[str(value).lower()]
    if kind in _INTEGERS:
        if not re.fullmatch(r"[+-]?\d+", str(value)):
            raise ValueError
        return str(int(str(value)))
    if kind.startswith("decimal"):
        scale = int(kind.rpartition(",")[2].rstrip(")"))
        return str(Decimal(str(value)).quantize(Decimal(1).scaleb(-scale), context=_PRECISE))
    if kind in ("double", "float"):
        return _floating(str(value), single=kind == "float")
    if kind == "date":
        return _quoted(date_text(_text(value)))
    if kind == "binary":
        return _quoted(base64.b64encode(base64.b64decode(_text(value), validate=True)).decode())
    return _quoted(_text(value)) if kind == "string" else _json(value)


def _text(value: Any) -> str:
    if not isinstance(value, str) or isinstance(value, _Numeral):
        raise TypeError
    return value


def _json(value: Any) -> str:
    """Return a value of another type, such as an array, as it was written."""
    match value:
        case _Numeral():
            return str(value)
        case str():
            return _quoted(value)
        case list():
            return f"[{','.join(map(_json, value))}]"
        case dict():
            return "{" + ",".join(f"{_quoted(name)}:{_json(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)


def _window(value: Any, column: KeyColumn) -> str:
    """Return a window from its start, or from an object with its start and perhaps its end."""
    zoned = "timestamp_ntz" not in column.type
    start = _micros(value["start"] if isinstance(value, dict) else value, zoned=zoned, column=column)
    end = start + column.size
    if isinstance(value, dict) and "end" in value:
        end = _micros(value["end"], zoned=zoned, column=column)
    return f'{{"start":{_time(start, zoned=zoned)},"end":{_time(end, zoned=zoned)}}}'


def _micros(value: Any, *, zoned: bool, column: KeyColumn) -> int:
    try:
        return micros_of(_text(value), zoned=zoned)
    except (ValueError, TypeError):
        raise BadRequestError(
            f"{column.name} is a time, and {value!r} is not one: write it like 2024-03-01T12:00:00Z"
        ) from None


def _time(micros: int, *, zoned: bool) -> str:
    return f'"{time_text(micros, zoned=zoned)}"'


def _floating(written: str, *, single: bool) -> str:
    """Return a number as Java writes it: ``1.5``, ``1.0E10``; the special values are text.

    A number that is written like this stays as it is, since before version 19 Java does not always write the shortest.
    """
    value = float(written)
    if not value:
        return "0.0"  # also for -0.0, to which it is equal
    is_plain = 1e-3 <= abs(value) < 1e7
    digits_of_java = re.sub(r"E.*|\D", "", written)
    if (
        _JAVA_NUMBER.fullmatch(written)
        and is_plain != ("E" in written)
        and len(digits_of_java) <= (9 if single else 18)
    ):
        return written
    if value != value or value in (float("inf"), float("-inf")):
        return '"NaN"' if value != value else f'"{"-" if value < 0 else ""}Infinity"'
    digits = Decimal(_shortest_single(value) if single else repr(value)).normalize(_PRECISE)
    if len(digits.as_tuple().digits) == 1 and digits:
        digits = Decimal(f"{value:.1e}").normalize(_PRECISE)  # Java chooses among numbers of two digits
    sign, figures, exponent = digits.as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, figures))
    power = len(text) + exponent - 1
    minus = "-" * sign
    if not -3 <= power < 7:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{power}"
    if power < 0:
        return f"{minus}0.{'0' * (-power - 1)}{text}"
    whole = text[: power + 1].ljust(power + 1, "0")
    return f"{minus}{whole}.{text[power + 1 :] or '0'}"


def _shortest_single(value: float) -> str:
    """Return the shortest decimal that is this number in single precision."""
    single = struct.pack("f", value)
    texts = (f"{value:.{precision}g}" for precision in range(1, 10))
    return next((text for text in texts if struct.pack("f", float(text)) == single), repr(value))


def _names(columns: Sequence[KeyColumn]) -> str:
    return ", ".join(column.name for column in columns) or "no columns"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
