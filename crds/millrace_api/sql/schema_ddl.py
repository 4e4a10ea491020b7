"""Parser of schemas in Spark DDL: ``medallion STRING, fare DECIMAL(10,2) NOT NULL, user STRUCT<country: STRING>``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NoReturn

from millrace_api.errors import MillraceError, Problem, nearest

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

_SIMPLE = {
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "BYTE": "TINYINT",
    "SMALLINT": "SMALLINT",
    "SHORT": "SMALLINT",
    "INT": "INT",
    "INTEGER": "INT",
    "BIGINT": "BIGINT",
    "LONG": "BIGINT",
    "FLOAT": "FLOAT",
    "REAL": "FLOAT",
    "DOUBLE": "DOUBLE",
    "STRING": "STRING",
    "BINARY": "BINARY",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMP_LTZ": "TIMESTAMP",
    "TIMESTAMP_NTZ": "TIMESTAMP_NTZ",
}
_SIZED = {"DECIMAL": "DECIMAL", "DEC": "DECIMAL", "NUMERIC": "DECIMAL", "CHAR": "CHAR", "VARCHAR": "VARCHAR"}
_NESTED = ("ARRAY", "MAP", "STRUCT")
_TYPE_NAMES = (*_SIMPLE, *_SIZED, *_NESTED)
_OTHER_NAMES = {
    "TEXT": "STRING",
    "STR": "STRING",
    "BOOL": "BOOLEAN",
    "INT64": "BIGINT",
    "INT32": "INT",
    "FLOAT64": "DOUBLE",
    "NUMBER": "DOUBLE",
    "DATETIME": "TIMESTAMP",
    "TIME": "TIMESTAMP",
    "BYTES": "BINARY",
}
"""Type names of other systems, each with Spark's name."""


MOST_LEVELS = 16
"""How deep STRUCT, ARRAY and MAP may be within each other: all code that follows a type is recursive."""

_PLAIN_NAME = re.compile(r"\w*[^\W\d]\w*")
"""A name that needs no backquotes in a schema."""


@dataclass(frozen=True)
class Column:
    """One column; ``type`` is Spark's canonical name, such as ``BIGINT`` or ``DECIMAL(10,2)``.

    ``parts`` are what a nested type consists of: the fields of a STRUCT, the element of an ARRAY, the key and the value
    of a MAP.
    """

    name: str
    type: str
    nullable: bool = True
    parts: tuple[Column, ...] = field(default=(), compare=False)

    @property
    def is_scalar(self) -> bool:
        """Whether the type is not nested, so that the column can be part of a key."""
        return not self.type.startswith(_NESTED)

    @property
    def is_time(self) -> bool:
        """Whether the values can be event times."""
        return self.type.startswith("TIMESTAMP")

    @property
    def is_struct(self) -> bool:
        """Whether the parts are fields, which SQL reads as ``column.field``."""
        return self.type.startswith("STRUCT")

    def field(self, name: str) -> Column | None:
        """Return the field of a STRUCT with this name in any case; None if there is none, or for another type."""
        known = self.parts if self.is_struct else ()
        return next((part for part in known if part.name.lower() == name.lower()), None)


def column_at(columns: Sequence[Column], path: Sequence[str]) -> Column | None:
    """Return the column, or the field of a STRUCT, that a path of names leads to in any case; None without one."""
    found = next((each for each in columns if each.name.lower() == path[0].lower()), None)
    for name in path[1:]:
        found = None if found is None else found.field(name)
    return found


EVENT_TIME: Final = "millrace_event_time"
"""Name of the column with an event time that is a field in the records; see ``nested_times``."""


def is_nested_time(column: str | None) -> bool:
    """Whether an event time is a field of a struct, such as ``event.time``."""
    return column is not None and "." in column


def time_paths(columns: Sequence[Column], prefix: str = "") -> Iterator[str]:
    """Yield the columns of type TIMESTAMP, and the fields of structs that are, as paths such as ``event.time``."""
    for column in columns:
        if column.is_time:
            yield prefix + column.name
        elif column.is_struct:
            yield from time_paths(column.parts, f"{prefix}{column.name}.")


_READABLE = (
    "STRING",
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "FLOAT",
    "DOUBLE",
    "DATE",
    "TIMESTAMP",
    "BINARY",
)


def type_problem(column: Column) -> tuple[str, str] | None:
    """Return what is wrong with a type that no source can read, and the remedy; None if sources can read it."""
    if column.is_scalar:
        if column.type in _READABLE or column.type.startswith("DECIMAL"):
            return None
        hint = f"write one of {', '.join(_READABLE)}, DECIMAL(precision, scale)"
        return f"column {column.name} has the type {column.type}, which a source cannot have", hint
    found = (type_problem(replace(part, name=_path(column, part))) for part in column.parts)
    return next((problem for problem in found if problem is not None), None)


def not_in_csv(column: Column) -> tuple[str, str]:
    """Return what to say of a column of a nested type in a CSV source, and the remedy."""
    hint = f"write {column.name} STRING, and take it apart in the SQL, such as with from_json"
    return f"column {column.name} has the type {column.type}, which CSV cannot hold", hint


def parse_schema(text: str) -> tuple[Column, ...]:
    """Return the columns of a Spark DDL schema, in order.

    Raises:
        MillraceError: at the first mistake, with its position (``line`` counts from 1 within the text).
    """
    return _Parser(text).columns()


class _Parser:
    """Recursive-descent parser over sqlglot's tokens; sqlglot's own parser accepts mistakes such as ``a: INT``."""

    def __init__(self, text: str) -> None:
        from sqlglot.dialects.spark import Spark
        from sqlglot.errors import TokenError

        self._text = text
        try:
            self._tokens = Spark().tokenize(text)
        except TokenError as error:
            from millrace_api.sql.dialect import token_problem

            raise MillraceError(token_problem(text, error, "schema")) from None
        self._at = 0
        self._levels = 0

    def columns(self) -> tuple[Column, ...]:
        columns: dict[str, Column] = {}
        while True:
            name = self._name()
            if name.lower() in columns:
                self._at -= 1
                self._fail(f'column "{name}" is defined twice', "rename one; upper and lower case are the same")
            if self._peek() == ":":
                self._fail(f'":" stands after "{name}"', f"write {name} and its type with a space between")
            columns[name.lower()] = self._with_nullable(self._type(name))
            if self._at == len(self._tokens):
                return tuple(columns.values())
            self._expect(",", "write a comma between columns, such as city STRING, fare DOUBLE")

    def _name(self) -> str:
        token = self._token()
        text = "" if token is None else token.text
        is_word = text.replace("_", "a").isalnum() and not text.isdigit()
        if token is None or not (is_word or self._quoted(token)):
            self._fail("a column name is missing", "write a name and a type, such as city STRING")
        self._at += 1
        return text

    def _type(self, column: str) -> Column:
        """Return a column of the type that follows."""
        token = self._token()
        if token is not None and token.text == "-":
            self._fail(
                f'"-" stands after "{column}"', "write a name with a hyphen in backquotes, such as `user-id` STRING"
            )
        if token is None or not token.text.replace("_", "a").isalnum():
            self._fail(f'"{column}" has no type', f"write a type after the name, such as {column} STRING")
        name = token.text.upper()
        if name in _NESTED:
            return self._nested(name, column)
        if name in _SIZED:
            self._at += 1
            return Column(column, self._sized(_SIZED[name]))
        if name not in _SIMPLE:
            known = _OTHER_NAMES.get(name) or nearest(name, _TYPE_NAMES)
            hint = f"did you mean {known}?" if known else f"write one of {', '.join(dict.fromkeys(_SIMPLE.values()))}"
            self._fail(f'"{token.text}" is not a type that a schema can have', hint)
        self._at += 1
        return Column(column, _SIMPLE[name])

    def _sized(self, name: str) -> str:
        if not self._accept("("):
            if name == "DECIMAL":
                return "DECIMAL(10,0)"
            self._fail(f"{name} has no length", f"write {name}(20), or STRING")
        numbers = [self._number()]
        if name == "DECIMAL":
            numbers.append(0)
            if self._accept(","):
                numbers[1] = self._number()
            if not 0 < numbers[0] <= 38 or numbers[1] > numbers[0]:
                self._at -= 1
                self._fail(
                    f"DECIMAL({numbers[0]},{numbers[1]}) does not exist",
                    "write a precision of 1 to 38 and a scale not greater, such as DECIMAL(10,2)",
                )
        self._expect(")", f"close the bracket of {name}")
        return f"{name}({','.join(map(str, numbers))})"

    def _nested(self, name: str, column: str) -> Column:
        if self._levels == MOST_LEVELS:
            hint = f"write at most {MOST_LEVELS}, and a STRING for what is further within"
            self._fail(f"{name} is within {MOST_LEVELS} other nested types", hint)
        self._at += 1
        self._levels += 1
        self._expect("<", f"write {name}<...>, such as ARRAY<STRING>, MAP<STRING, INT> or STRUCT<x: INT>")
        parts = {"STRUCT": self._fields, "ARRAY": self._element, "MAP": self._entry}[name](column)
        self._expect(">", f"close {name} with >")
        self._levels -= 1
        texts = (f"{_quoted(part.name)}: {_declared(part)}" if name == "STRUCT" else part.type for part in parts)
        return Column(column, f"{name}<{', '.join(texts)}>", parts=parts)

    def _fields(self, column: str) -> tuple[Column, ...]:
        fields: dict[str, Column] = {}
        while True:
            name = self._name()
            if name.lower() in fields:
                self._at -= 1
                message = f'field "{name}" of "{column}" is defined twice'
                self._fail(message, "rename one; upper and lower case are the same")
            self._accept(":")
            fields[name.lower()] = self._with_nullable(self._type(name))
            if not self._accept(","):
                return tuple(fields.values())

    def _element(self, column: str) -> tuple[Column, ...]:
        return (self._named("element", column),)

    def _entry(self, column: str) -> tuple[Column, ...]:
        start = self._at
        key = self._named("key", column)
        if key.type != "STRING":
            self._at = start
            self._fail(f"the key of a MAP is {key.type}", "write MAP<STRING, ...>: names of fields are texts")
        if not self._accept(","):
            self._fail("MAP has no value type", "write both types, such as MAP<STRING, INT>")
        return key, self._named("value", column)

    def _named(self, part: str, column: str) -> Column:
        """Return the part of a nested type that follows; a mistake in it is reported by the column's name."""
        found = self._type(column)
        return Column(part, found.type, parts=found.parts)

    def _with_nullable(self, column: Column) -> Column:
        return replace(column, nullable=self._nullable())

    def _nullable(self) -> bool:
        nullable = not self._accept("NOT")
        if not nullable:
            self._expect("NULL", "write NOT NULL")
        if self._accept("COMMENT"):
            comment = self._token()
            if comment is None or not self._quoted(comment):
                self._fail("COMMENT has no text", "write COMMENT 'text'")
            self._at += 1
        return nullable

    def _number(self) -> int:
        token = self._token()
        if token is None or not token.text.isdigit():
            self._fail("a number is missing", "write a whole number, as in DECIMAL(10,2)")
        self._at += 1
        return int(token.text)

    def _token(self) -> Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _peek(self) -> str:
        token = self._token()
        return "" if token is None or self._quoted(token) else token.text.upper()

    def _quoted(self, token: Token) -> bool:
        return self._text[token.start] in "`'\""

    def _accept(self, text: str) -> bool:
        """Skip the next token if it is this one; return whether it was."""
        found = self._peek() == text
        self._at += found
        return found

    def _expect(self, text: str, hint: str) -> None:
        if not self._accept(text):
            token = self._token()
            self._fail(f'"{token.text}" stands where "{text}" should' if token else f'"{text}" is missing', hint)

    def _fail(self, message: str, hint: str) -> NoReturn:
        token = self._token()
        start = token.start if token else len(self._text)
        line = self._text.count("\n", 0, start) + 1
        column = start - (self._text.rfind("\n", 0, start) + 1) + 1
        raise MillraceError(Problem(f"{message} (line {line}, column {column} of the schema)", hint, line=line))


def _path(column: Column, part: Column) -> str:
    """Return what messages call a part of a column: ``user.country``, ``items[]`` or ``labels[value]``."""
    if column.is_struct:
        return f"{column.name}.{part.name}"
    return f"{column.name}[{part.name if column.type.startswith('MAP') else ''}]"


def _quoted(name: str) -> str:
    """Return a name as it stands in a schema."""
    return name if _PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _declared(column: Column) -> str:
    return column.type if column.nullable else f"{column.type} NOT NULL"
