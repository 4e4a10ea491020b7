"""Types of single values (durations, sizes, names, numbers), each with its pattern and its messages."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from millrace_api.model.base import problem

_MICROSECONDS = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_PART = "[0-9]{1,12}(?:us|ms|s|m|h|d)"
_LONGEST_DAYS = 36_500


class TextValue(str):
    """A string that is checked on creation and keeps the text as it was written."""

    __slots__ = ()

    pattern: ClassVar[str]
    max_length: ClassVar[int] = 32
    what: ClassVar[str]
    hint: ClassVar[str]

    def __new__(cls, text: str) -> Self:
        """Check the text; raise a ``ValueError`` that quotes it and says what to write."""
        if not isinstance(text, str) or len(text) > cls.max_length or not re.fullmatch(cls.pattern, text):
            raise problem(f"{quoted(text)} is not {cls.what}", cls.hint)
        return super().__new__(cls, text)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(cls, serialization=core_schema.to_string_ser_schema())

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "type": "string",
            "pattern": f"^{cls.pattern}$".replace("(?:", "("),
            "maxLength": cls.max_length,
        }


class Duration(TextValue):
    """A length of time in whole numbers with units, as in Go: ``500ms``, ``30s``, ``1h30m``; and ``d``, 24 hours."""

    __slots__ = ()
    pattern = f"(?:{_PART})+"
    what = "a duration"
    hint = "write whole numbers, each with one of d, h, m, s, ms, us, such as 500ms, 30s, 1h30m or 7d"

    def __new__(cls, text: str) -> Self:
        """Check the text; raise a ``ValueError`` that quotes it and says what to write."""
        value = super().__new__(cls, text)
        if value.microseconds > _LONGEST_DAYS * _MICROSECONDS["d"]:
            raise problem(f"{quoted(text)} is too long", f"write at most {_LONGEST_DAYS}d")
        return value

    @property
    def microseconds(self) -> int:
        """The whole length in microseconds (not a component of it)."""
        return sum(int(number) * _MICROSECONDS[unit] for number, unit in re.findall(r"([0-9]+)([a-z]+)", self))

    @property
    def timedelta(self) -> timedelta:
        """The same length as Python's own type."""
        return timedelta(microseconds=self.microseconds)

    @property
    def seconds(self) -> float:
        """The whole length in seconds."""
        return self.microseconds / 1e6


class PositiveDuration(Duration):
    """A :class:`Duration` longer than zero."""

    __slots__ = ()
    pattern = f"(?:{_PART})*0*[1-9][0-9]{{0,11}}(?:us|ms|s|m|h|d)(?:{_PART})*"
    what = "a duration longer than zero"


class ByteSize(TextValue):
    """An amount of memory in powers of 1024, as Kubernetes writes it, ``2Gi``, or as Spark does, ``2g``.

    The text is Spark's, whichever was written, so that both are the same size.
    """

    __slots__ = ()
    pattern = "[1-9][0-9]{0,8}(?:[kmgt]|[KMGT]i)"
    what = "a size"
    hint = "write a whole number and one of Ki, Mi, Gi, Ti, such as 512Mi or 2Gi, or Spark's k, m, g, t for the same"

    def __new__(cls, text: str) -> Self:
        """Check the text; raise a ``ValueError`` that quotes it and says what to write."""
        checked = super().__new__(cls, text)
        return super().__new__(cls, checked.removesuffix("i").lower())

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return int(self[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[self[-1]]


class Cores(Decimal):
    """A number of CPU cores, as Kubernetes writes it: ``2``, ``"2"``, ``"1.5"`` or ``1500m``.

    Whichever was written, equal numbers are the same value: documents have ``2`` or ``1500m``.
    """

    __slots__ = ()
    most: ClassVar[int] = 999_999
    max_length: ClassVar[int] = 10
    pattern: ClassVar[str] = (
        r"[1-9][0-9]{0,8}m|[1-9][0-9]{0,5}(\.[0-9]{1,3})?|0\.([1-9][0-9]{0,2}|0[1-9][0-9]?|00[1-9])"
    )
    what: ClassVar[str] = "a number of CPU cores"
    hint: ClassVar[str] = 'write a whole number from 1 to 999999, or a quantity such as 500m or, in quotes, "1.5"'

    def __new__(cls, written: object) -> Self:
        """Check a whole number or a text; raise a ``ValueError`` that quotes it and says what to write."""
        if isinstance(written, cls):
            return written
        if isinstance(written, int) and not isinstance(written, bool) and 1 <= written <= cls.most:
            return super().__new__(cls, written)
        if not isinstance(written, str) or len(written) > cls.max_length or not re.fullmatch(cls.pattern, written):
            raise problem(f"{quoted(written)} is not {cls.what}", cls.hint)
        return super().__new__(cls, Decimal(written[:-1]) / 1000 if written.endswith("m") else written)

    @property
    def slots(self) -> int:
        """The number of tasks that Spark runs at once on these cores, which is the next whole number."""
        return math.ceil(self)

    @property
    def quantity(self) -> str:
        """The number as the API server stores it, so that a manifest does not differ from its stored object."""
        return str(int(self)) if self == int(self) else f"{int(self * 1000)}m"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        def in_documents(cores: Cores) -> int | str:
            return int(cores) if cores == int(cores) else cores.quantity

        return core_schema.no_info_plain_validator_function(
            cls, serialization=core_schema.plain_serializer_function_ser_schema(in_documents)
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "type": ["integer", "string"],
            "minimum": 1,
            "maximum": cls.most,
            "pattern": f"^({cls.pattern})$",
            "maxLength": cls.max_length,
        }


def quoted(value: Any) -> str:
    """Return a value as messages have it: texts in quotes, the rest as in YAML."""
    if isinstance(value, bool):
        return str(value).lower()  # as YAML has it
    return f'"{value}"' if isinstance(value, str) else str(value)


def text(pattern: str, max_length: int, what: str, hint: str) -> tuple[AfterValidator, WithJsonSchema]:
    """Return what ``Annotated[str, *text(...)]`` needs to check a text, all of which must match ``pattern``."""

    def check(value: str) -> str:
        if len(value) > max_length or not re.fullmatch(pattern, value):
            raise problem(f"{quoted(value)} is not {what}", hint)
        return value

    schema = {"type": "string", "pattern": f"^({pattern})$", "minLength": 1, "maxLength": max_length}
    return AfterValidator(check), WithJsonSchema(schema)


OBJECT_NAME_LENGTH = 63
"""Maximum length of a query's name, which is the value of a label of all objects made from the query."""

ObjectName = Annotated[
    str,
    *text(
        "[a-z]([-a-z0-9]*[a-z0-9])?",
        OBJECT_NAME_LENGTH,
        "a name for a StreamQuery",
        f"write at most {OBJECT_NAME_LENGTH} lower-case letters, digits and '-', a letter first and no '-' last",
    ),
]
"""The name of a query."""

ConnectionName = Annotated[
    str,
    *text(
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
        63,
        "a name for a Connection",
        "write at most 63 lower-case letters, digits and '-', no '-' first or last",
    ),
]
"""The name of a Connection."""

SNAPSHOT_NAME = "[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"
SNAPSHOT_NAME_HINT = "write at most 63 of the characters a-z, 0-9, - and ., with a letter or digit at both ends"
SnapshotName = Annotated[str, *text(SNAPSHOT_NAME, 63, "a name for a snapshot", SNAPSHOT_NAME_HINT)]
"""The name of a snapshot of a checkpoint."""

SOURCE_NAME = "[a-z_][a-z0-9_]*"
SourceName = Annotated[
    str,
    *text(
        SOURCE_NAME,
        63,
        "a name for a source",
        "write lower-case letters, digits and '_', not a digit first: it is the table's name in the SQL",
    ),
]

OutputName = Annotated[
    str, *text(SOURCE_NAME, 63, "a name for an output", "write lower-case letters, digits and '_', not a digit first")
]

ColumnName = Annotated[
    str, *text("[^`.\\n]+", 255, "a column name", "write one column of the schema, without '.' or backquotes")
]
ColumnPath = Annotated[
    str,
    *text(
        "[^`.\\n]+(\\.[^`.\\n]+)*",
        1024,
        "a column name or a path to a field",
        "write one column of the schema, or a field of a STRUCT such as event.time, without backquotes",
    ),
]
TimeFormat = Annotated[
    str,
    *text(
        "[^\\n]+",
        100,
        "a format of times",
        "write iso, seconds, milliseconds, microseconds, or a pattern such as dd.MM.yyyy",
    ),
]
Path = Annotated[str, *text("[^\\n]+", 4096, "a path", "write a file, folder or glob pattern such as data/*.csv")]
Uri = Annotated[
    str,
    *text(
        "[a-z][a-z0-9+.-]*:/[^\\s]+",
        2048,
        "a URI",
        "write file:// and an absolute path, such as file:///var/lib/millrace",
    ),
]
Delimiter = Annotated[str, *text("[^\\n]", 1, "a delimiter", 'write one character such as "," or "|" or "\\t"')]
Topic = Annotated[
    str,
    *text("[A-Za-z0-9._-]+", 249, "a Kafka topic", "write letters, digits, '.', '_' and '-' (at most 249)"),
]
Timestamp = Annotated[
    str,
    *text(
        "\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d{1,6})?(Z|[+-]\\d\\d:\\d\\d)",
        35,
        "a time",
        "write it with its offset, such as 2026-01-31T12:00:00Z",
    ),
]
Text = Annotated[str, Field(min_length=1, max_length=65536)]
"""Free text, never empty."""

Flag = Annotated[bool, Field(strict=True)]
Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
WholeNumber = Annotated[int, Field(strict=True, ge=0, le=2**53)]
Number = Annotated[float, Field(strict=True)]
Positive = Annotated[float, Field(strict=True, gt=0)]


def _scalar(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise problem(f"{quoted(value)} is not a single value", "write a number, a text, true or false")
    return value


Scalar = Annotated[
    bool | int | float | str,
    PlainValidator(_scalar),
    WithJsonSchema({"type": ["boolean", "integer", "number", "string"]}),
]
Parameters = Mapping[str, Scalar]
"""Named settings of an algorithm; each algorithm defines its own names."""
