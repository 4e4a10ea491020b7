"""Positions of names and keywords in the SQL text; the parsed query keeps no keyword positions."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from millrace_api.errors import Problem
from millrace_api.sql.parsing import StreamingSql


def problem_at(text: str, start: int | None, message: str, hint: str) -> Problem:
    """Return a problem at a position in the text; ``start`` counts characters from 0, None is the whole text."""
    if start is None:
        return Problem(f"{message} in the SQL", hint)
    line = text.count("\n", 0, start) + 1
    column = start - text.rfind("\n", 0, start)
    return Problem(f"{message} (line {line}, column {column} of the SQL)", hint, line=line)


def start_of(node: exp.Expr) -> int | None:
    """Return the start of the first name in an expression; None if it has no names."""
    return min((each.meta["start"] for each in node.walk() if "start" in each.meta), default=None)


class Keywords:
    """Keyword positions in a SQL text that parses."""

    def __init__(self, text: str) -> None:
        self._tokens = StreamingSql().tokenize(text)

    def before(self, node: exp.Expr, *kinds: TokenType) -> int | None:
        """Return the start of the last keyword of these kinds that is not after the first name in ``node``."""
        limit = start_of(node)
        starts = [token.start for token in self._tokens if token.token_type in kinds]
        return max((start for start in starts if limit is None or start <= limit), default=limit)
