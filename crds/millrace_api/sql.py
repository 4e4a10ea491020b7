"""SQL of Structured Streaming, parsed by sqlglot: the one place that knows the dialect."""

from __future__ import annotations

from typing import ClassVar

from sqlglot import TokenType, exp, parse, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser

from millrace_api.errors import MillraceError, Problem

_ALIAS_IN_GROUP_BY = "GROUP BY takes no alias"


class StreamingSql(Spark):
    """Spark SQL in which ``window`` is a function, as in ``GROUP BY window(at, '1 minute')``.

    sqlglot takes the word for the start of a WINDOW clause, which a streaming query cannot have.
    """

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens without the keyword WINDOW."""

        KEYWORDS: ClassVar = {word: token for word, token in Spark.Tokenizer.KEYWORDS.items() if word != "WINDOW"}

    class Parser(SparkParser):
        """Spark 4 is ANSI: CAST raises an error where sqlglot takes it for one that gives NULL."""

        STRICT_CAST = True

        def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
            group = super()._parse_group(skip_group_by_token)
            if group is not None and self._curr and self._curr.token_type in (TokenType.ALIAS, TokenType.VAR):
                self.raise_error(_ALIAS_IN_GROUP_BY)
            return group


def parse_query(text: str) -> exp.Query:
    """Parse one SELECT (or WITH, or UNION); comments are left out.

    Raises:
        MillraceError: the text does not parse, or is not one query; ``line`` and column of the text are in it.
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
    """Parse one expression that was generated from a query which parsed; comments are left out."""
    expression = parse_one(text, dialect=StreamingSql)
    _remove_comments(expression)
    return expression


def to_sql(node: exp.Expr) -> str:
    """The Spark SQL text of a parsed expression."""
    return node.sql(dialect=StreamingSql)


def _remove_comments(tree: exp.Expr) -> None:
    """Remove the comments: sqlglot writes them into the text of an expression, by which expressions are compared."""
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
