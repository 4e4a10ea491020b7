"""Avro schemas, from text or from a schema registry: parsed for fastavro, with the Arrow type of each field.

Times and dates are decoded as the plain numbers of the encoding. Arrow converts them to timestamps as whole columns.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import Request, urlopen

import pyarrow as pa
from fastavro.schema import SchemaParseException, expand_schema, parse_schema

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_api.sql.schema_ddl import MOST_LEVELS
from millrace_jobs.sources.formats.column_types import MAX_PRECISION, TIMESTAMP
from millrace_jobs.sources.formats.connect_types import LOGICAL_TYPES
from millrace_jobs.sources.formats.typed_columns import suitable_type

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "enum": pa.string(),
}
_LOGICAL = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("ms", tz="UTC"),
    ("long", "timestamp-micros"): TIMESTAMP,
    ("long", "timestamp-nanos"): pa.timestamp("ns", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("ms"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("long", "local-timestamp-nanos"): pa.timestamp("ns"),
}
_STORED = {pa.time32("ms"): pa.int32(), pa.time64("us"): pa.int64(), pa.uuid(): pa.binary()}

PATIENCE = 30.0
"""Seconds to keep trying while a registry does not answer."""

_TIMEOUT = 10.0
_PAUSE = 1.0
_URL_HINT = "write http://host:8081"
_JSON = "application/vnd.schemaregistry.v1+json, application/json"
_NO_SCHEMA = 40403
"""The error code of a registry without the schema; any other 404 means that the URL is not a registry's."""


_TOO_DEEP = "its types are too deep within each other"


@dataclass(frozen=True)
class AvroSchema:
    """A record schema; ``types`` maps each field to its Arrow type, or to the reason why no column can hold it."""

    parsed: Any
    types: Mapping[str, pa.DataType | str]


def read_avro_schema(text: str, *, of_connect: bool = False) -> AvroSchema:
    """Parse an Avro schema from JSON text. Raises ValueError if it is invalid, or not the schema of a record.

    ``of_connect``: fields have the types that the converter of Kafka Connect names, such as those of Debezium.
    """
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ValueError(f"it is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    try:
        parsed = parse_schema(_plain(document))
        expanded = expand_schema(_with_logical_types(document) if of_connect else document)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it is not an Avro schema: {type(error).__name__}: {error}") from None
    if not isinstance(expanded, dict) or expanded.get("type") not in ("record", "error"):
        raise ValueError("it is not the schema of a record")
    return AvroSchema(parsed, {field["name"]: _type_or_reason(field["type"]) for field in expanded["fields"]})


def spark_type_of(decoded: pa.DataType) -> pa.DataType:
    """Return the column type for a type of AvroSchema, such as Spark's TIMESTAMP for timestamps of any unit.

    Times of day and UUIDs that Avro stores as numbers and bytes stay so: checkpoints and SQL know them as these.
    """
    if pa.types.is_list(decoded):
        return pa.list_(spark_type_of(decoded.value_type))
    if pa.types.is_map(decoded):
        return pa.map_(pa.string(), spark_type_of(decoded.item_type))
    if pa.types.is_struct(decoded):
        return pa.struct([field.with_type(spark_type_of(field.type)) for field in decoded])
    return _STORED.get(decoded) or suitable_type(decoded) or decoded


def _with_logical_types(schema: Any) -> Any:
    """Return the schema with Avro's logical types in place of those of Kafka Connect."""
    if isinstance(schema, list):
        return [_with_logical_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _with_logical_types(value) for name, value in schema.items()}
    logical = LOGICAL_TYPES.get(str(schema.get("connect.name")))
    return found if logical is None or "logicalType" in found else found | {"logicalType": logical}


def _plain(schema: Any) -> Any:
    """Return the schema without its logical types, except decimals: their encoding is not a plain number."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {
        name: _plain(value) if name in ("type", "items", "values") else value
        for name, value in schema.items()
        if name != "logicalType" or value == "decimal"
    }
    if isinstance(schema.get("fields"), list):
        kept["fields"] = [_plain(field) for field in schema["fields"]]
    return kept


def _type_or_reason(schema: Any) -> pa.DataType | str:
    try:
        return _arrow_type(schema)
    except ValueError as error:
        return str(error)


def _arrow_type(schema: Any, levels: int = 0) -> pa.DataType:
    """Return the Arrow type of a field. Raises ValueError with a description if no column can hold it.

    ``levels`` is how many records, arrays and maps it is in.
    """
    if levels > MOST_LEVELS:
        raise ValueError(f"of a type with more than {MOST_LEVELS} levels of records, arrays and maps")
    if isinstance(schema, list):
        branches = [branch for branch in schema if branch != "null"]
        if len(branches) != 1:
            raise ValueError(f"a union of {', '.join(map(_name, branches)) or 'nothing but null'}")
        return _arrow_type(branches[0], levels)
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise ValueError("null" if schema == "null" else f"of type {schema}, which contains itself")
        return _PRIMITIVES[schema]
    kind, logical = schema["type"], schema.get("logicalType")
    if not isinstance(kind, str):
        return _arrow_type(kind, levels)
    if kind in ("record", "error"):
        return pa.struct([(field["name"], _nested_type(field["type"], levels)) for field in schema["fields"]])
    if kind == "array":
        return pa.list_(_nested_type(schema["items"], levels))
    if kind == "map":
        return pa.map_(pa.string(), _nested_type(schema["values"], levels))
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision = schema.get("precision")
        if not precision or precision > MAX_PRECISION:
            raise ValueError(f"a decimal of {precision} digits" if precision else "a decimal without a precision")
        return pa.decimal128(precision, schema.get("scale", 0))
    if kind == "fixed":
        if logical == "duration":
            raise ValueError("a duration")
        return pa.uuid() if logical == "uuid" and schema["size"] == 16 else pa.binary(schema["size"])
    return _LOGICAL.get((kind, logical)) or _arrow_type(kind)


def _nested_type(schema: Any, levels: int) -> pa.DataType:
    """Return the Arrow type of a part of a field, where Arrow does not make UUIDs."""
    found = _arrow_type(schema, levels + 1)
    return pa.binary(16) if found == pa.uuid() else found


def _name(schema: Any) -> str:
    return str(schema.get("name") or schema["type"]) if isinstance(schema, dict) else str(schema)


@dataclass(frozen=True)
class SchemaRegistry:
    """A schema registry, identified by its URL; ``of_connect`` as in ``read_avro_schema``.

    Raises MillraceError if the URL is malformed, is not HTTP or HTTPS, or contains a user or a password.
    """

    url: str
    of_connect: bool = False

    def __post_init__(self) -> None:
        parts = _split(self.url)
        if parts is None:  # the URL is not shown, because it may contain a password
            raise MillraceError(Problem("the registry's URL is malformed", _URL_HINT))
        if parts.username or parts.password:
            shown = parts._replace(netloc=f"...@{parts.hostname}").geturl()
            hint = "leave user and password out: a spec is no place for secrets"
            raise MillraceError(Problem(f"the registry's URL {shown} contains a login", hint))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise MillraceError(Problem(f"{self.url!r} is not the URL of a registry", _URL_HINT))

    def schema(self, number: int) -> AvroSchema | str:
        """Return the schema with this id, or the reason why no record can be read from messages with this id.

        Raises:
            MillraceError: the registry refuses the request, or its answer is not that of a registry.
            TransientError: the registry does not answer for ``PATIENCE`` seconds.
        """
        return _schema(self.url.rstrip("/"), number, of_connect=self.of_connect)


def _split(url: str) -> SplitResult | None:
    """Return the parts of a URL; None if a request could not be sent to it.

    Its characters are printable ASCII without blanks, its host has no empty label, and its port is at most 65535.
    """
    if not re.fullmatch("[!-~]*", url):
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        return None
    return parts


@lru_cache(maxsize=4096)
def _schema(url: str, number: int, *, of_connect: bool) -> AvroSchema | str:
    """Fetch a schema once per process: an id is registered before it is used, and its schema never changes."""
    document = _get(f"{url}/schemas/ids/{number}")
    if document is None:
        return f"the registry has no schema {number}"
    kind = document.get("schemaType", "AVRO")
    if kind != "AVRO":
        return f"schema {number} of the registry is {kind}, not Avro"
    if document.get("references"):
        hint = "register a schema in which the ones that it refers to are inlined"
        return f"schema {number} of the registry refers to other subjects, which is not supported: {hint}"
    text = document.get("schema")
    if not isinstance(text, str):
        raise _refused(url, f"its answer for schema {number} has no schema")
    try:
        return read_avro_schema(text, of_connect=of_connect)
    except ValueError as error:
        hint = "write the messages with the schema of a record"
        return f"schema {number} of the registry cannot be used: {error}: {hint}"


def _get(url: str) -> dict[str, Any] | None:
    """Return the JSON object at ``url``, or None if the registry lacks the schema; retry while it does not answer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urlopen(Request(url, headers={"Accept": _JSON}), timeout=_TIMEOUT) as answer:
                document = _object(answer.read())
            if document is None:
                raise _refused(url, "its answer is not a JSON object")
            return document
        except HTTPError as error:
            if error.code == HTTPStatus.NOT_FOUND and _is_missing_schema(error):
                return None
            why = f"HTTP {error.code} {error.reason}"
            if error.code < 500 and error.code != HTTPStatus.TOO_MANY_REQUESTS:
                raise _refused(url, why) from None
        except (URLError, OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, URLError) else error
            why = str(reason) or type(reason).__name__
            if isinstance(reason, ssl.SSLError):
                raise _refused(url, why) from None
        if time.monotonic() > deadline:
            hint = "check avro.registry, and whether the registry runs"
            raise TransientError(Problem(f"the schema registry does not answer at {url}: {why}", hint))
        time.sleep(_PAUSE)


def _is_missing_schema(answer: HTTPError) -> bool:
    try:
        document = _object(answer.read())
    except (OSError, HTTPException):
        return False
    return document is not None and document.get("error_code") == _NO_SCHEMA


def _object(body: bytes) -> dict[str, Any] | None:
    """Return the JSON object that ``body`` holds, or None if it holds anything else."""
    try:
        document = json.loads(body)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _refused(url: str, why: str) -> MillraceError:
    return MillraceError(Problem(f"the schema registry cannot be used at {url}: {why}", "check avro.registry"))
