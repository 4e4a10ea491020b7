"""Requests to ``/table``: their parameters, and their answers as JSON.

- ``key=K``, up to ``MAX_KEYS`` times: the rows with these keys, in this order; null for a key that has no row.
- ``window=START`` beside them: the columns that identify a window are filled in from its start.
- ``at=TIME`` beside them, in a table with a history: the rows that were valid at this event time.
- ``prefix=P``: the rows whose leading key columns are P, in the order of keys; all rows without ``key`` and ``prefix``.
- ``limit=N`` and ``after=CURSOR`` for these: at most N rows, after the page that ended with this ``next``.

An answer is of one batch: ``{"query": ..., "batch": ..., "rows": [...], "next": ...}``. A row is the value of its
message. ``next`` is null if there are no further rows. A later page may be of a later batch, which its ``batch`` shows.
With ``at``, an answer also has this time, ``final``, the time before which rows change no more, and ``since``, how far
back the history goes; the latter two are null before there is a watermark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs

from millrace_jobs.lookups.history import NO_TIMES
from millrace_jobs.lookups.keys import BadRequestError, KeyColumn, key_text, prefix_text, time_of
from millrace_jobs.lookups.store import NotReadyError, TableReader, TableSnapshot
from millrace_jobs.time_texts import time_text

MAX_KEYS = 1_000
"""Most keys of a request."""

MAX_LIMIT, DEFAULT_LIMIT = 1_000, 100
"""Most rows of a page, and rows of a page without ``limit``."""

MAX_ANSWER = 4 << 20
"""Largest answer in bytes; a page ends before it, unless it has only one row."""

_PARAMETERS = frozenset({"key", "window", "at", "prefix", "limit", "after"})


class UnavailableError(Exception):
    """There are no look-ups at present; the message says why."""


@dataclass(frozen=True)
class TableRequest:
    """A parsed request: the texts of ``keys``; or, if they are None, a page of the rows that begin with ``prefix``.

    ``at`` is the event time of the versions that are asked for, in microseconds since 1970; None is the latest.
    """

    keys: tuple[bytes, ...] | None = None
    at: int | None = None
    prefix: bytes = b""
    limit: int = DEFAULT_LIMIT
    after: str | None = None


def parse_request(parameters: str, columns: Sequence[KeyColumn]) -> TableRequest:
    """Return the request that the query part of a URL describes.

    Raises:
        BadRequestError: it does not describe one.
    """
    try:
        given = parse_qs(parameters, keep_blank_values=True, errors="strict", max_num_fields=MAX_KEYS + 10)
    except UnicodeDecodeError:
        raise BadRequestError("the URL is not valid UTF-8") from None
    except ValueError:
        raise BadRequestError(f"a request has at most {MAX_KEYS} keys: ask for fewer at a time") from None
    unknown = sorted(given.keys() - _PARAMETERS)
    if unknown:
        raise BadRequestError(f"there is no parameter {unknown[0][:80]!r}: write {', '.join(sorted(_PARAMETERS))}")
    for name, values in given.items():
        if name != "key" and len(values) > 1:
            raise BadRequestError(f"{name} is given {len(values)} times: write it once")
    keys = given.get("key")
    single = {name: values[0] for name, values in given.items() if name != "key"}
    window = single.pop("window", None)
    if window is not None:
        _check_window(columns, has_prefix="prefix" in single)
        if keys is None and all(column.part is not None for column in columns):
            keys = [""]
    at = single.pop("at", None)
    if keys is None:
        if window is not None:
            raise BadRequestError("window completes a key: write key as well")
        if at is not None:
            raise BadRequestError("at is for single rows: write key as well")
        return _page(single, columns)
    if single:
        raise BadRequestError(f"{min(single)} cannot be combined with key: leave one of them out")
    if len(keys) > MAX_KEYS:
        raise BadRequestError(f"a request has at most {MAX_KEYS} keys: ask for fewer at a time")
    time = None if at is None else time_of(at)
    return TableRequest(tuple(key_text(columns, key, window) for key in keys), time)


def answer(request: TableRequest, reader: TableReader, query: str, columns: Sequence[KeyColumn]) -> bytes:
    """Return the answer to a request, from one snapshot.

    Raises:
        BadRequestError: the answer would be too large, the request has a cursor that is none, or the table has no
            history of the time that is asked for.
        UnavailableError: no batch is visible yet.
    """
    try:
        with reader.snapshot() as table:
            rows, cursor = _page_of(table, request) if request.keys is None else (_rows(table, request), None)
            about = {"query": query, "batch": table.batch, "key": [column.name for column in columns], "next": cursor}
            if request.at is not None:
                times = {"at": request.at} | (table.visible.times or NO_TIMES)._asdict()
                about |= {name: None if time is None else time_text(time) for name, time in times.items()}
            return json.dumps(about)[:-1].encode() + b', "rows": [' + b",".join(rows) + b"]}\n"
    except NotReadyError:
        raise UnavailableError("the table is still being read from its topic: try again") from None


def _check_window(columns: Sequence[KeyColumn], *, has_prefix: bool) -> None:
    if has_prefix:
        raise BadRequestError("window cannot be combined with prefix: write the window as a value of the prefix")
    if all(column.part is None for column in columns):
        names = ", ".join(column.name for column in columns) or "no columns"
        raise BadRequestError(f"the key has {names}, none of which is a window: leave out window")


def _page(given: dict[str, str], columns: Sequence[KeyColumn]) -> TableRequest:
    written = given.get("limit", str(DEFAULT_LIMIT))
    if not (written.isascii() and written.isdigit() and 1 <= int(written[:9]) <= MAX_LIMIT):
        raise BadRequestError(f"limit {written[:80]!r} is not a number of rows: write 1 to {MAX_LIMIT}")
    prefix = prefix_text(columns, given["prefix"]) if "prefix" in given else b""
    return TableRequest(None, None, prefix, int(written), given.get("after"))


def _rows(table: TableSnapshot, request: TableRequest) -> list[bytes]:
    keys, at = request.keys or (), request.at
    if at is None:
        rows = [table.get(key) or b"null" for key in keys]
    else:
        _check_time(table, at)
        rows = [table.get_at(key, at) or b"null" for key in keys]
    if sum(map(len, rows)) > MAX_ANSWER:
        raise BadRequestError(f"the rows have more than {MAX_ANSWER >> 20} MiB: ask for fewer keys at a time")
    return rows


def _check_time(table: TableSnapshot, at: int) -> None:
    times = table.visible.times
    if times is None:
        raise BadRequestError("the table has only its latest rows: leave at out, or add history to its sink")
    since = times.since
    if since is not None and at < since:
        raise BadRequestError(f"the history goes back to {time_text(since)}: {time_text(at)} is before that")


def _page_of(table: TableSnapshot, request: TableRequest) -> tuple[list[bytes], str | None]:
    """Return the rows of a page, and the cursor of its last row if there are further ones."""
    rows: list[bytes] = []
    size, last = 0, None
    for cursor, row in table.scan(request.prefix, request.after):
        size += len(row)
        if len(rows) == request.limit or (rows and size > MAX_ANSWER):
            return rows, last
        rows.append(row)
        last = cursor
    return rows, None
