"""The client of look-ups, for ``millrace get``: the request, the answer of a driver, and how it is shown."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

from rich.console import Console
from rich.table import Table
from rich.text import Text

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_support.terminal_texts import printable

TOKEN_VARIABLE = "MILLRACE_LOOKUPS_TOKEN"  # noqa: S105 - the name of a variable
"""Environment variable with the bearer token for a URL."""

TIMEOUT = 15.0
"""Seconds to connect, and to wait for each part of an answer."""

_LONGEST_ANSWER = 16 << 20
_WIDE = 160


@dataclass(frozen=True)
class Lookup:
    """What is looked up: rows by ``keys``; or, if there are none or ``prefix`` is true, a page of rows in key order."""

    keys: Sequence[str] = ()
    prefix: bool = False
    window: str | None = None
    at: str | None = None
    limit: int | None = None
    after: str | None = None

    def __post_init__(self) -> None:
        """Check that the options go together. Raises MillraceError."""
        if self.prefix and len(self.keys) != 1:
            message = f"--prefix takes one KEY, not {len(self.keys)}"
            raise MillraceError(Problem(message, "look up one prefix at a time"))

    @property
    def is_page(self) -> bool:
        """Whether the rows are those of a page, not one for each key."""
        return self.prefix or not (self.keys or self.window)

    @property
    def parameters(self) -> str:
        """The query part of the URL."""
        named = {"window": self.window, "at": self.at, "limit": self.limit, "after": self.after}
        given = [(name, str(value)) for name, value in named.items() if value is not None]
        return urlencode([*(("prefix" if self.prefix else "key", key) for key in self.keys), *given])


class Numeral(str):
    """The text of a number in an answer."""


@dataclass(frozen=True)
class TableAnswer:
    """Rows of a table at one batch, which is None before the first; ``next`` is the cursor of the next page.

    ``text`` is the answer as the driver gave it. ``at`` is the event time that was asked for, if one was; rows before
    ``final`` change no more.
    """

    text: str
    query: str
    batch: int | None
    rows: Sequence[Mapping[str, Any] | None]
    next: str | None
    at: str | None = None
    final: str | None = None

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse an answer. Numbers stay text, so that none of their digits is lost. Raises ValueError or KeyError."""
        found = json.loads(text, parse_float=Numeral, parse_int=Numeral)
        batch = None if found["batch"] is None else int(found["batch"])
        times = (found.get("at"), found.get("final"))
        return cls(text, found["query"], batch, found["rows"], found["next"], *times)


def look_up_at(url: str, lookup: Lookup, query: str | None = None, timeout: float = TIMEOUT) -> TableAnswer:
    """Look rows up at the URL of a run or a service; with ``query``, check that it is this query which answers.

    The token for a service is in the environment variable ``TOKEN_VARIABLE``.

    Raises:
        MillraceError: the URL is none, nothing answers there, or the request is refused.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if host is None or parts.scheme not in ("http", "https") or (port is None and parts.scheme == "http"):
        hint = "write it as http://127.0.0.1:PORT/table, or https://HOST/table"
        raise MillraceError(Problem(f"{url} is not a URL of look-ups", hint))
    if parts.scheme == "https":
        connection: HTTPConnection = HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
    else:
        connection = HTTPConnection(host, port, timeout=timeout)
    try:
        answer = look_up(connection, lookup, f"{host}:{connection.port}", os.environ.get(TOKEN_VARIABLE))
    finally:
        connection.close()
    if query is not None and answer.query != query:
        problem = f"{query} does not run on this machine: {answer.query} answers at {host}:{port}, where it ran last"
        raise MillraceError(Problem(problem, "start it with millrace run"))
    return answer


def look_up(connection: HTTPConnection, lookup: Lookup, place: str, token: str | None = None) -> TableAnswer:
    """Look rows up over a connection to a driver, with a bearer token; ``place`` names the driver in messages.

    Raises:
        TransientError: the driver does not answer, or has no rows yet.
        MillraceError: the request is refused.
    """
    try:
        login = {} if token is None else {"Authorization": f"Bearer {token.strip()}"}
        connection.request("GET", f"/table?{lookup.parameters}", headers=login)
        response = connection.getresponse()
        body = response.read(_LONGEST_ANSWER)
    except (OSError, HTTPException) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        problem = f"no look-ups are answered at {place}: {reason[:1].lower()}{reason[1:]}"
        raise TransientError(Problem(problem, "check that the query runs, and that its sink is a table")) from None
    try:
        text = body.decode()
        if response.status == HTTPStatus.OK:
            return TableAnswer.of(text)
        refusal = Problem(str(json.loads(text)["error"]))
    except (ValueError, KeyError, TypeError):
        problem = f"the answer at {place} is not that of a driver: HTTP status {response.status}"
        raise MillraceError(Problem(problem, "check the URL")) from None
    if response.status == HTTPStatus.UNAUTHORIZED:
        hint = f"set {TOKEN_VARIABLE} to one of the tokens of spec.lookups"
        raise MillraceError(Problem(f"the service at {place} rejects the token, or no token is set", hint))
    if response.status in (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS):
        raise TransientError(refusal)
    raise MillraceError(refusal)


def show_answer(answer: TableAnswer, lookup: Lookup, *, as_json: bool) -> bool:
    """Print an answer as a table or as JSON; return whether every key has a row."""
    missing = [] if lookup.is_page else _missing(answer, lookup)
    if as_json:
        print(answer.text, end="")
        return not missing
    console = Console(highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = _WIDE
    rows = [row for row in answer.rows if row is not None]
    if rows:
        console.print(_table(rows))
    batch = "before its first batch" if answer.batch is None else f"as of batch {answer.batch}"
    count = "1 row" if len(rows) == 1 else f"{len(rows):,} rows"
    console.print(Text(f"{count} of {answer.query} {_time(answer)}{batch}"))
    for key in missing:
        console.print(Text(f"no row has the key {printable(key)}"))
    if answer.next is not None:
        console.print(Text(f"there are more rows: --after {printable(answer.next)}", overflow="fold"))
    return not missing


def _time(answer: TableAnswer) -> str:
    """Return at which event time the rows are, and whether records that are still to come can change them."""
    if answer.at is None:
        return ""
    is_final = answer.final is not None and answer.at < answer.final
    return f"at {answer.at}, {'which is final' if is_final else 'which may still change'}, "


def _missing(answer: TableAnswer, lookup: Lookup) -> list[str]:
    asked = lookup.keys or [str(lookup.window)]
    return [key for key, row in zip(asked, answer.rows, strict=True) if row is None]


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    names = list(rows[0])
    for name in names:
        is_number = all(isinstance(row.get(name), Numeral | None) for row in rows)
        table.add_column(Text(printable(name)), overflow="fold", justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(Text(cell_text(row.get(name))) for name in names))
    return table


def cell_text(value: Any) -> str:
    """Format a value of a row on one line; control characters become escapes."""
    if value is None:
        return "NULL"
    return printable(value if isinstance(value, str) else _json(value))


def _json(value: Any) -> str:
    match value:
        case Numeral():
            return str(value)
        case list():
            return f"[{', '.join(map(_json, value))}]"
        case dict():
            return "{" + ", ".join(f"{_json(name)}: {_json(each)}" for name, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)
