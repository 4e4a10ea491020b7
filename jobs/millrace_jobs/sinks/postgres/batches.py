"""The batches that a table has: a row for each checkpoint that writes to it, in a table beside it.

A batch's results and its number are written in one transaction, so that a batch is in the table exactly if its number
is here. A driver that begins also writes a token of its own. A driver that another one has followed finds the other's
token when it locks the row, and writes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

from psycopg import Cursor, errors
from psycopg.sql import SQL, Composed, Identifier

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.postgres.connection import SINK, Session
from millrace_jobs.sinks.base import LastBatch, ResultBatch
from millrace_jobs.sinks.postgres.target import TargetTable

BATCHES = "millrace_batches"
"""Name of the table, in the schema of the results' table."""

NO_BATCH = -1
"""Number before that of the first batch."""

_CREATE = """
CREATE TABLE IF NOT EXISTS {} (
    "table" text NOT NULL,
    checkpoint text NOT NULL,
    query text NOT NULL,
    batch bigint NOT NULL,
    epoch bigint,
    driver uuid NOT NULL,
    written timestamp with time zone NOT NULL DEFAULT now(),
    PRIMARY KEY ("table", checkpoint)
)"""
_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"


class _Record(NamedTuple):
    batch: int
    driver: uuid.UUID


class BatchRecord:
    """The row of a checkpoint that writes to a table.

    Args:
        table: the table.
        query: name of the query.
        checkpoint_id: id of its checkpoint.
    """

    def __init__(self, table: TargetTable, query: str, checkpoint_id: str) -> None:
        self._table = table
        self._name = Identifier(table.schema, BATCHES)
        self._query = query
        self._checkpoint = checkpoint_id
        self._driver = uuid.uuid4()
        self._is_new = False
        self._last = NO_BATCH

    @property
    def table(self) -> TargetTable:
        """The table."""
        return self._table

    @property
    def last(self) -> int:
        """The last batch in the table; NO_BATCH if there is none."""
        return self._last

    def take(self, session: Session, last: LastBatch) -> None:
        """Fence all other drivers on this checkpoint, and determine which batch comes next.

        Raises:
            MillraceError: the record does not match Spark's log, or this user lacks the rights.
            psycopg.Error: the database has failed.
        """
        self._create(session)
        insert = SQL(
            'INSERT INTO {} ("table", checkpoint, query, batch, driver) '
            "VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"
        )
        update = SQL('UPDATE {} SET query = %s, batch = %s, driver = %s WHERE "table" = %s AND checkpoint = %s')
        with session.transaction():
            # Of two drivers that begin at once, the second one waits here: a row that is missing cannot be locked.
            values = [*self._key, self._query, NO_BATCH, self._driver]
            is_new = self._allowed(session, insert.format(self._name), values).rowcount == 1
            found = None if is_new else self._locked(session)
            self._require_known(session, found, last)
            self._last = self._before_next(found, last)
            values = [self._query, self._last, self._driver, *self._key]
            self._allowed(session, update.format(self._name), values)
        self._is_new = self._is_new or is_new

    def lock(self, session: Session, batch: ResultBatch) -> None:
        """Lock the row until the end of the transaction; the batch may be written if this succeeds.

        Raises:
            MillraceError: another driver has taken over.
        """
        found = self._locked(session)
        if found != (self._last, self._driver):
            message = (
                f"another driver has taken over writing the results of {self._query} to table {self._table.full_name}"
            )
            hint = "run only one driver on a checkpoint: stop this one or the other one"
            raise MillraceError(Problem(f"{message} before batch {batch.number}", hint, field=SINK))

    def add(self, session: Session, batch: ResultBatch) -> None:
        """Record the batch in the transaction that ``lock`` began."""
        command = SQL('UPDATE {} SET batch = %s, epoch = %s, written = now() WHERE "table" = %s AND checkpoint = %s')
        session.execute(command.format(self._name), [batch.number, batch.epoch, *self._key])

    def committed(self, batch: ResultBatch) -> None:
        """Take note that the transaction with this batch is committed."""
        self._last = batch.number

    def withdraw(self, session: Session) -> None:
        """Remove the row, if this run has made it and no driver has followed."""
        if self._is_new:
            command = SQL('DELETE FROM {} WHERE "table" = %s AND checkpoint = %s AND driver = %s')
            session.execute(command.format(self._name), [*self._key, self._driver])

    @property
    def _key(self) -> tuple[str, str]:
        return self._table.name, self._checkpoint

    def _create(self, session: Session) -> None:
        """Create the table if it is missing.

        Raises:
            MillraceError: this user may not create it, or not write to it.
        """
        command = SQL(_CREATE).format(self._name)
        full = self._name.as_string(session)
        try:
            if session.execute("SELECT to_regclass(%s)", [full]).fetchone() == (None,):
                session.execute(command)
        except (errors.UniqueViolation, errors.DuplicateTable):
            pass  # another query has just created it
        except errors.InsufficientPrivilege:
            user = Identifier(session.info.user).as_string(session)
            created = " ".join(command.as_string(session).split())
            message = f"user {session.info.user} may not create table {BATCHES} in schema {self._table.schema}"
            hint = f"create it as its owner: {created}; GRANT {_RIGHTS} ON {full} TO {user};"
            raise MillraceError(Problem(message, hint, field=f"{SINK}.user")) from None

    def _locked(self, session: Session) -> _Record | None:
        command = SQL('SELECT batch, driver FROM {} WHERE "table" = %s AND checkpoint = %s FOR UPDATE')
        found = self._allowed(session, command.format(self._name), self._key).fetchone()
        return None if found is None else _Record(*found)

    def _allowed(self, session: Session, command: Composed, values: Sequence[object]) -> Cursor[tuple[Any, ...]]:
        """Run a command on the table, and say which rights are missing if it is not allowed."""
        try:
            return session.execute(command, values)
        except errors.InsufficientPrivilege:
            user, full = Identifier(session.info.user).as_string(session), self._name.as_string(session)
            message = f"user {session.info.user} may not use table {self._table.schema}.{BATCHES}"
            hint = f"GRANT {_RIGHTS} ON {full} TO {user};"
            raise MillraceError(Problem(message, hint, field=f"{SINK}.user")) from None

    def _require_known(self, session: Session, found: _Record | None, last: LastBatch) -> None:
        """Refuse batches that Spark's log does not have, and a table that an earlier checkpoint has filled."""
        if found is not None and found.batch > (NO_BATCH if last.begun is None else last.begun):
            newest = "no batch" if last.begun is None else f"no batch after {last.begun}"
            raise self._mismatch(
                f"has results up to batch {found.batch}, but the checkpoint knows of {newest}",
                f"restore the newest checkpoint, or {self._start_over(session)}",
            )
        if found is None and last.begun is None:
            command = SQL('SELECT 1 FROM {} WHERE "table" = %s AND query = %s AND batch >= 0')
            if session.execute(command.format(self._name), [self._table.name, self._query]).fetchone():
                raise self._mismatch(
                    f"has results of an earlier run of {self._query}, which began with another checkpoint",
                    f"to start over, {self._start_over(session)}; or write another table",
                )

    def _before_next(self, found: _Record | None, last: LastBatch) -> int:
        """Return the last batch in the table, as its record says; see ``LastBatch`` for other sinks before this one.

        Raises:
            MillraceError: the record lacks batches that Spark's log has.
        """
        committed = NO_BATCH if last.committed is None else last.committed
        if last.elsewhere and (found is None or found.batch < committed):
            return committed
        known = NO_BATCH if found is None else found.batch
        if known < committed:
            has = "has no record of its batches" if found is None else f"has results up to batch {known} only"
            raise self._mismatch(
                f"{has}, but the checkpoint has finished batch {committed}",
                f"restore the database to a later time, or start over with an empty table and {ANOTHER_CHECKPOINT}",
            )
        return known

    def _start_over(self, session: Session) -> str:
        values = SQL("{}, {}").format(self._table.name, self._query).as_string(session)
        table, query = values.split(", ", 1)
        full = self._name.as_string(session)
        delete = f'DELETE FROM {full} WHERE "table" = {table} AND query = {query};'
        return f"empty the table and its record: TRUNCATE {self._table.identifier.as_string(session)}; {delete}"

    def _mismatch(self, what: str, hint: str) -> MillraceError:
        return MillraceError(Problem(f"table {self._table.full_name} {what}", hint, field=f"{SINK}.table"))
