"""The batches that a table has: a row for each checkpoint that writes to it, in a table beside it.

A batch's results and its number are written in one transaction, so that a batch is in the table exactly if its number
is here. A driver that begins also writes a token of its own. A driver that another one has followed finds the other's
token when it locks the row, and writes nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.deployment import ANOTHER_CHECKPOINT
from millrace_jobs.databases.connection import Rows, Session
from millrace_jobs.sinks.base import NO_BATCH, LastBatch, ResultBatch
from millrace_jobs.sinks.databases.dialect import Dialect, TargetTable

BATCHES = "millrace_batches"
"""Name of the table, in the schema of the results' table."""

_RIGHTS = "SELECT, INSERT, UPDATE, DELETE"


class _Record(NamedTuple):
    batch: int
    driver: str


class BatchRecord:
    """The row of a checkpoint that writes to a table."""

    def __init__(self, dialect: Dialect, table: TargetTable, query: str, checkpoint_id: str) -> None:
        self._dialect = dialect
        self.table = table
        self._name = dialect.quoted(table.schema, BATCHES)
        self._where = f"{dialect.quoted('table')} = %s AND checkpoint = %s"
        self._query, self._key = query, (table.name, checkpoint_id)
        self._driver = str(uuid.uuid4())
        self._is_new = False
        self.last = NO_BATCH
        """The last batch in the table; NO_BATCH if there is none."""

    def take(self, session: Session, last: LastBatch) -> None:
        """Fence all other drivers on this checkpoint, and determine which batch comes next.

        Raises:
            MillraceError: the record does not match Spark's log, or this user lacks the rights.
            Exception: the client library's error: the database has failed.
        """
        self._create(session)
        with session.transaction():
            # Of two drivers that begin at once, the second one waits here: a row that is missing cannot be locked.
            row = f"({self._dialect.quoted('table')}, checkpoint, query, batch, driver) VALUES (%s, %s, %s, %s, %s)"
            insert = self._dialect.insert_if_missing.format(rest=f"{self._with_values} {row}")
            values = [*self._key, self._query, NO_BATCH, self._driver]
            is_new = self._allowed(session, insert, values).rowcount == 1
            found = None if is_new else self._locked(session)
            self._require_known(session, found, last)
            self.last = self._before_next(found, last)
            update = f"UPDATE {self._with_values} SET query = %s, batch = %s, driver = %s WHERE {self._where}"
            self._allowed(session, update, [self._query, self.last, self._driver, *self._key])
        self._is_new = self._is_new or is_new

    def lock(self, session: Session, batch: ResultBatch) -> None:
        """Lock the row until the end of the transaction; the batch may be written if this succeeds.

        Raises MillraceError if another driver has taken over.
        """
        found = self._locked(session)
        if found != (self.last, self._driver):
            to = f"to table {self.table.full_name} before batch {batch.number}"
            message = f"another driver has taken over writing the results of {self._query} {to}"
            hint = "run only one driver on a checkpoint: stop this one or the other one"
            raise MillraceError(Problem(message, hint, field=self._dialect.connection.field))

    def add(self, session: Session, batch: ResultBatch) -> None:
        """Record the batch in the transaction that ``lock`` began."""
        changes = "batch = %s, epoch = %s, written = CURRENT_TIMESTAMP"
        command = f"UPDATE {self._with_values} SET {changes} WHERE {self._where}"
        session.execute(command, [batch.number, batch.epoch, *self._key])

    def withdraw(self, session: Session) -> None:
        """Remove the row, if this run has made it and no driver has followed."""
        if self._is_new:
            command = f"DELETE FROM {self._with_values} WHERE {self._where} AND driver = %s"
            session.execute(command, [*self._key, self._driver])

    @property
    def _with_values(self) -> str:
        """The name of the table of batches for a statement that has values, in which a percent sign is doubled."""
        return self._name.replace("%", "%%")

    def _create(self, session: Session) -> None:
        exists, command = self._dialect.batches(session, self._name)
        if exists:
            return
        try:
            session.execute(command)
        except self._dialect.error as error:
            if self._dialect.is_there(error) and self._dialect.batches(session, self._name)[0]:
                return  # another query has just created it
            if not self._dialect.is_denied(error):
                raise
            user, created = self._dialect.connection.user, " ".join(command.split())
            message = f"user {user} may not create table {BATCHES} in schema {self.table.schema}"
            raise self._denied(message, f"create it as its owner: {created}; {self._grant(session)}") from None

    def _locked(self, session: Session) -> _Record | None:
        command = f"SELECT batch, driver FROM {self._with_values} WHERE {self._where} FOR UPDATE"
        found = self._allowed(session, command, self._key).fetchone()
        return None if found is None else _Record(found[0], str(found[1]))

    def _allowed(self, session: Session, command: str, values: Sequence[object]) -> Rows:
        try:
            return session.execute(command, values)
        except self._dialect.error as error:
            if not self._dialect.is_denied(error):
                raise
            message = f"user {self._dialect.connection.user} may not use table {self.table.schema}.{BATCHES}"
            raise self._denied(message, self._grant(session)) from None

    def _grant(self, session: Session) -> str:
        return f"GRANT {_RIGHTS} ON {self._name} TO {self._dialect.grantee(session)};"

    def _denied(self, message: str, hint: str) -> MillraceError:
        return MillraceError(Problem(message, hint, field=f"{self._dialect.connection.field}.user"))

    def _require_known(self, session: Session, found: _Record | None, last: LastBatch) -> None:
        """Refuse batches that Spark's log does not have, and a table that an earlier checkpoint has filled."""
        if found is not None and last.lacks(found.batch):
            raise self._mismatch(
                f"has results up to batch {found.batch}, but the checkpoint knows of {last.newest}",
                f"restore the newest checkpoint, or {self._start_over()}",
            )
        if found is None and (last.begun is None or last.elsewhere):
            same = f"{self._dialect.quoted('table')} = %s AND query = %s AND batch >= 0"
            command = f"SELECT 1 FROM {self._with_values} WHERE {same}"
            if session.execute(command, [self.table.name, self._query]).fetchone():
                raise self._mismatch(
                    f"has results of an earlier run of {self._query}, which began with another checkpoint",
                    f"to start over, {self._start_over()}; or write another table",
                )

    def _before_next(self, found: _Record | None, last: LastBatch) -> int:
        """Return the last batch in the table, as its record says; see ``LastBatch`` for other sinks before this one.

        Raises MillraceError if the record lacks batches that Spark's log has.
        """
        committed = NO_BATCH if last.committed is None else last.committed
        if last.elsewhere and (found is None or found.batch < committed):
            return committed
        known = NO_BATCH if found is None else found.batch
        if known < last.known:
            has = "has no record of its batches" if found is None else f"has results up to batch {known} only"
            raise self._mismatch(
                f"{has}, but the checkpoint has finished batch {committed}",
                f"restore the database to a later time, or start over with an empty table and {ANOTHER_CHECKPOINT}",
            )
        return known

    def _start_over(self) -> str:
        dialect, table = self._dialect, self.table
        same = f"{dialect.quoted('table')} = {dialect.literal(table.name)} AND query = {dialect.literal(self._query)}"
        delete = f"DELETE FROM {self._name} WHERE {same};"
        return f"empty the table and its record: TRUNCATE {dialect.quoted(table.schema, table.name)}; {delete}"

    def _mismatch(self, what: str, hint: str) -> MillraceError:
        return MillraceError(
            Problem(f"table {self.table.full_name} {what}", hint, field=f"{self._dialect.connection.field}.table")
        )
