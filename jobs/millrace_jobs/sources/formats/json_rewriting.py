"""JSON objects written again for Arrow's reader, where that does not take them as they are.

Arrow reads no object as a map: it becomes an array of objects with ``key`` and ``value``. NaN and infinities as text
become the literals of JavaScript, where a FLOAT or DOUBLE is declared. Everything else keeps its text, so that Arrow
finds the same mistakes in it as in the original; a field that the schema does not name is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa

_SPECIAL = ("NaN", "Infinity", "-Infinity")


class _Literal(str):
    """The text of a number, as it stands in the JSON."""


class _Object(tuple[tuple[str, Any], ...]):
    """The fields of an object in their order; a name can be there twice."""


_decoder = json.JSONDecoder(
    object_pairs_hook=_Object, parse_float=_Literal, parse_int=_Literal, parse_constant=_Literal
)
_text = partial(json.dumps, ensure_ascii=False)


def rewritten(text: bytes, schema: pa.Schema) -> bytes:
    """Return lines of JSON objects with maps as arrays of entries, one line for each that is not blank.

    Raises ValueError if a line is not one JSON object, or an object that is a map has a key twice.
    """
    fields = pa.struct(list(schema))
    lines = (line for line in text.decode().split("\n") if line.strip())
    try:
        return "".join(f"{_written(parsed_object(line), fields, '')}\n" for line in lines).encode()
    except UnicodeEncodeError:
        raise ValueError("invalid JSON: half of a surrogate pair in a string") from None
    except RecursionError:
        raise ValueError("invalid JSON: arrays or objects are too deep within each other") from None


def parsed_object(line: str) -> _Object:
    """Return the fields of a JSON object, whose numbers keep their text. Raises ValueError if it is none."""
    try:
        value = _decoder.decode(line)
    except json.JSONDecodeError as error:
        reason = "more than one JSON value" if error.msg == "Extra data" else f"invalid JSON: {error.msg}"
        raise ValueError(reason) from None
    if not isinstance(value, _Object):
        raise ValueError("not a JSON object")
    return value


def _written(value: Any, declared: pa.DataType, path: str) -> str:
    """Return the text of a value for a column of a type; a value of another kind keeps its text."""
    if isinstance(value, _Object):
        if pa.types.is_map(declared):
            return _entries(value, declared.item_type, path)
        known = {field.name: field.type for field in declared} if pa.types.is_struct(declared) else {}
        below = f"{path}." if path else ""
        fields = (f"{_text(name)}:{_written(part, known[name], below + name)}" for name, part in value if name in known)
        return f"{{{','.join(fields)}}}"
    if isinstance(value, list):
        kind = declared.value_type if pa.types.is_list(declared) else pa.null()
        if pa.types.is_map(declared):
            raise ValueError(f"field {path}: array where MAP is expected: write an object")
        return f"[{','.join(_written(part, kind, f'{path}[]') for part in value)}]"
    if isinstance(value, _Literal):
        return value
    if pa.types.is_floating(declared) and value in _SPECIAL:
        return str(value)
    return _text(value)


def written_value(value: Any) -> str:
    """Return the text of a value of a parsed object, with all its fields."""
    if isinstance(value, _Object):
        return f"{{{','.join(f'{_text(name)}:{written_value(part)}' for name, part in value)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(written_value, value))}]"
    return value if isinstance(value, _Literal) else _text(value)


def _entries(entries: Sequence[tuple[str, Any]], kind: pa.DataType, path: str) -> str:
    seen: set[str] = set()
    texts = []
    for key, value in entries:
        if key in seen:
            raise ValueError(f"field {path}: the key {_text(key)} is there twice: write it once")
        seen.add(key)
        texts.append(f'{{"key":{_text(key)},"value":{_written(value, kind, f"{path}[value]")}}}')
    return f"[{','.join(texts)}]"
