"""Parser of schemas in Spark DDL: ``medallion STRING, fare DECIMAL(10,2) NOT NULL, at TIMESTAMP``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

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


@dataclass(frozen=True)
class Column:
    """One column; ``type`` is Spark's canonical name, such as ``BIGINT`` or ``DECIMAL(10,2)``."""

    name: str
    type: str
    nullable: bool = True

    @property
    def is_scalar(self) -> bool:
        """Whether the type is not nested, so that the column can be part of a key."""
        return not self.type.startswith(_NESTED)


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
    return None if column.type in _READABLE or column.type.startswith("DECIMAL") else unreadable(column)


def unreadable(column: Column) -> tuple[str, str]:
    """Return what to say of a column whose type no source can read, and the remedy."""
    hint = f"write one of {', '.join(_READABLE)}, DECIMAL(precision, scale)"
    if not column.is_scalar:
        hint = f"write {column.name} STRING, and take it apart in the SQL, such as with from_json"
    return f"column {column.name} has the type {column.type}, which a source cannot have", hint


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

    def columns(self) -> tuple[Column, ...]:
        columns: dict[str, Column] = {}
        while True:
            name = self._name()
            if name.lower() in columns:
                self._at -= 1
                self._fail(f'column "{name}" is defined twice', "rename one; upper and lower case are the same")
            if self._peek() == ":":
                self._fail(f'":" stands after "{name}"', f"write {name} and its type with a space between")
            columns[name.lower()] = Column(name, self._type(name), self._nullable())
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

    def _type(self, column: str) -> str:
        token = self._token()
        if token is not None and token.text == "-":
            self._fail(
                f'"-" stands after "{column}"', "write a name with a hyphen in backquotes, such as `user-id` STRING"
            )
        if token is None or not token.text.replace("_", "a").isalnum():
            self._fail(f'"{column}" has no type', f"write a type after the name, such as {column} STRING")
        name = token.text.upper()
        if name in _NESTED:
            self._at += 1
            return self._nested(name, column)
        if name in _SIZED:
            self._at += 1
            return self._sized(_SIZED[name])
        if name not in _SIMPLE:
            known = _OTHER_NAMES.get(name) or nearest(name, _TYPE_NAMES)
            hint = f"did you mean {known}?" if known else f"write one of {', '.join(dict.fromkeys(_SIMPLE.values()))}"
            self._fail(f'"{token.text}" is not a type that a schema can have', hint)
        self._at += 1
        return _SIMPLE[name]

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

    def _nested(self, name: str, column: str) -> str:
        self._expect("<", f"write {name}<...>, such as ARRAY<STRING>, MAP<STRING, INT> or STRUCT<x: INT>")
        parts = [self._member(name, column)]
        while self._peek() == "," and (name == "STRUCT" or (name == "MAP" and len(parts) == 1)):
            self._at += 1
            parts.append(self._member(name, column))
        if name == "MAP" and len(parts) != 2:
            self._fail("MAP has no value type", "write both types, such as MAP<STRING, INT>")
        self._expect(">", f"close {name} with >")
        return f"{name}<{', '.join(parts)}>"

    def _member(self, name: str, column: str) -> str:
        if name != "STRUCT":
            return self._type(column)
        field = self._name()
        self._accept(":")
        text = f"{field}: {self._type(field)}"
        return text if self._nullable() else f"{text} NOT NULL"

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
