"""Parsing of Structured Streaming SQL by sqlglot; this is the only module that knows the dialect."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import TokenType, exp, parse, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser

from millrace_api.errors import MillraceError, Problem

_AGGREGATES = {name for kind in exp.ALL_FUNCTIONS if issubclass(kind, exp.AggFunc) for name in kind.sql_names()}
_AGGREGATES |= {"APPROX_PERCENTILE", "BIT_AND", "BIT_OR", "BIT_XOR", "COLLECT_LIST", "COLLECT_SET", "LISTAGG",
                "PERCENTILE", "PERCENTILE_APPROX", "STRING_AGG"}  # fmt: skip
_CASTS = {"BOOLEAN", "DATE", "DOUBLE", "FLOAT", "INT", "STRING", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"}
_READ = _AGGREGATES | _CASTS | {"ARRAY", "LCASE", "LOWER", "MOD", "UCASE", "UPPER"}
"""Functions that sqlglot parses into their own node types: all aggregates, and the functions that are compiled."""

_HINTS = {"BROADCAST", "BROADCASTJOIN", "MAPJOIN", "MERGE", "MERGEJOIN", "SHUFFLEMERGE", "SHUFFLE_HASH",
          "SHUFFLE_REPLICATE_NL"}  # fmt: skip
_OWN_SYNTAX = {"CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTR", "SUBSTRING", "TRIM", "TRY_CAST"} | _HINTS
"""Calls whose parentheses hold more than a list of arguments."""

_OF_UNITS = {"DATEADD", "DATEDIFF", "DATE_ADD", "DATE_DIFF", "TIMESTAMPADD", "TIMESTAMPDIFF"}
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "DAYOFYEAR", "HOUR", "MINUTE", "SECOND", "MILLISECOND",
          "MICROSECOND"}  # fmt: skip
"""Units that may be the first of three arguments of a function in ``_OF_UNITS``, unless they are columns."""

_ALIAS_IN_GROUP_BY = "GROUP BY takes no alias"


class StreamingSql(Spark):
    """Spark SQL in which ``window`` is a function, as in ``GROUP BY window(at, '1 minute')``.

    By default, sqlglot reads the word as the start of a WINDOW clause, which a streaming query cannot have.
    """

    class Tokenizer(Spark.Tokenizer):
        """Tokenizer of Spark without the keyword WINDOW; a doubled quote is an escaped quote, as in Spark 4."""

        STRING_ESCAPES: ClassVar = ["\\", "'", '"']
        KEYWORDS: ClassVar = {word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}

    class Generator(SparkGenerator):
        """Generator of Spark that writes time-of-day literals, since Spark 4.1 has no cast to that type."""

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
            """Return the SQL of a cast, or of the literal that sqlglot parsed as a cast."""
            literal = expression.this
            if expression.is_type(exp.DType.TIME) and isinstance(literal, exp.Literal):
                return f"TIME {self.sql(literal)}"
            return super().cast_sql(expression, safe_prefix)

    class Parser(SparkParser):
        """Parser of Spark 4 in ANSI mode, in which a failed CAST raises an error instead of giving NULL.

        Functions that Millrace does not analyze are kept as they are written. sqlglot would rewrite those that it
        knows, which does not always keep their meaning: ``to_char``, for example, loses its format.
        """

        STRICT_CAST = True
        FUNCTIONS: ClassVar = {name: make for name, make in SparkParser.FUNCTIONS.items() if name in _READ}
        FUNCTION_PARSERS: ClassVar = {
            name: parse for name, parse in SparkParser.FUNCTION_PARSERS.items() if name in _READ | _OWN_SYNTAX
        }

        def _parse_function_call(self, *args: Any, **options: Any) -> exp.Expr | None:
            call = super()._parse_function_call(*args, **options)
            if isinstance(call, exp.Anonymous) and call.name.upper() in _OF_UNITS and len(call.expressions) == 3:
                unit = call.expressions[0]
                if isinstance(unit, exp.Column) and unit.name.upper() in _UNITS:
                    unit.replace(exp.Var(this=unit.name.upper()))
            return call

        def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
            interval = super()._parse_interval(require_interval, parse_function_unit)
            several = require_interval and isinstance(interval, exp.Add)  # 1 HOUR 30 MINUTES is parsed as a sum
            return self.expression(exp.Paren(this=interval)) if several else interval

        def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
            group = super()._parse_group(skip_group_by_token)
            if group is not None and self._curr and self._curr.token_type in (TokenType.ALIAS, TokenType.VAR):
                self.raise_error(_ALIAS_IN_GROUP_BY)
            return group


def parse_query(text: str) -> exp.Query:
    """Parse one SELECT (or WITH, or UNION); comments are removed.

    Raises:
        MillraceError: if the text does not parse or is not one query; syntax errors have line and column of the text.
    """
    try:
        statements = [statement for statement in parse(text, dialect=StreamingSql) if statement is not None]
    except ParseError as error:
        first = error.errors[0]
        column = first["col"] - len(first["highlight"] or " ") + 1  # sqlglot counts to the end of the token
        raise MillraceError(_problem(text, first["line"], column, first["description"])) from None
    except TokenError as error:
        raise MillraceError(Problem(f"the SQL does not parse: {error}")) from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        found = statements[0].key.upper() if len(statements) == 1 else f"{len(statements)} statements"
        raise MillraceError(Problem(f"the SQL is {found}", "write one SELECT statement"))
    _remove_comments(statements[0])
    return statements[0]


def parse_expression(text: str) -> exp.Expr:
    """Parse one expression that was generated from a parsed query; comments are removed."""
    expression = parse_one(text, dialect=StreamingSql)
    _remove_comments(expression)
    return expression


def to_sql(node: exp.Expr) -> str:
    """Return the Spark SQL text of a parsed expression."""
    return node.sql(dialect=StreamingSql)


def _remove_comments(tree: exp.Expr) -> None:
    """Remove the comments, which sqlglot would write into the texts by which expressions are compared."""
    for node in tree.walk():
        node.comments = None


def _problem(text: str, line: int, column: int, description: str) -> Problem:
    lines = text.splitlines()
    shown = lines[line - 1].rstrip() if 0 < line <= len(lines) else ""
    hint = "correct the SQL there"
    if description == _ALIAS_IN_GROUP_BY:
        hint = "move the alias to the SELECT list, as in SELECT window(at, '10 minutes') AS w ... GROUP BY w"
    message = f"the SQL does not parse at line {line}, column {column}: {description} in {shown!r}"
    return Problem(message, hint, line=line)
