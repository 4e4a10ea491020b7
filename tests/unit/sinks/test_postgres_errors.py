"""What errors of PostgreSQL mean: the sentence, the field, and whether they may pass by themselves."""

from __future__ import annotations

import time

import psycopg
import pytest
from psycopg import errors as states

from millrace_api.errors import TransientError
from millrace_jobs import pending
from millrace_jobs.databases.connection import patiently
from millrace_jobs.databases.postgres import PostgresConnection, is_conflict, postgres_problem

DATABASE = PostgresConnection((("db", 5432), ("::1", 5433)), "sales", "millrace")
FAILED = 'connection failed: connection to server at "10.0.0.5", port 5432 failed: '


@pytest.mark.parametrize(
    ("error", "passes", "expected"),
    [
        (
            psycopg.OperationalError(f'{FAILED}FATAL:  password authentication failed for user "millrace"'),
            False,
            "spec.sink.postgres.password: PostgreSQL at db:5432,[::1]:5433 refuses the login (password authentication "
            'failed for user "millrace") while looking; check user and password, and the server\'s pg_hba.conf',
        ),
        (
            psycopg.OperationalError(f'{FAILED}FATAL:  no pg_hba.conf entry for host "10.0.0.9", no encryption'),
            False,
            "spec.sink.postgres.password: PostgreSQL at db:5432,[::1]:5433 refuses the login (no pg_hba.conf entry",
        ),
        (
            psycopg.OperationalError(f"{FAILED}FATAL:  the database system is starting up"),
            True,
            "spec.sink.postgres.host: PostgreSQL at db:5432,[::1]:5433 cannot be reached (the database system is starting up)",
        ),
        (
            psycopg.OperationalError(f"{FAILED}FATAL:  sorry, too many clients already"),
            True,
            "spec.sink.postgres: PostgreSQL at db:5432,[::1]:5433 lacks a resource (sorry, too many clients already)",
        ),
        (
            psycopg.OperationalError(f"{FAILED}session is read-only"),
            True,
            "spec.sink.postgres.host: PostgreSQL at db:5432,[::1]:5433 accepts no writes (session is read-only)",
        ),
        (
            psycopg.OperationalError(f"{FAILED}FATAL:  le rôle n'existe pas"),
            True,
            "spec.sink.postgres.host: PostgreSQL at db:5432,[::1]:5433 cannot be reached (le rôle n'existe pas)",
        ),
        (
            psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly\n\tThis probably"),
            True,
            "spec.sink.postgres: PostgreSQL at db:5432,[::1]:5433 has broken the connection (server closed the connection "
            "unexpectedly) while looking; check that the server and the network are healthy",
        ),
        (states.DeadlockDetected("deadlock detected"), True, "spec.sink.postgres: PostgreSQL at db:5432,[::1]:5433 has "
         "ended the transaction for another one (deadlock detected)"),
        (states.DiskFull("no space"), True, "spec.sink.postgres: PostgreSQL at db:5432,[::1]:5433 lacks a resource"),
        (states.FeatureNotSupported("no"), False, "spec.sink.postgres: PostgreSQL at db:5432,[::1]:5433 gave the error 0A000"),
    ],
)  # fmt: skip
def test_an_error_is_a_sentence(error, passes, expected):
    problem = postgres_problem(error, "looking", DATABASE)
    assert isinstance(problem, TransientError) is passes
    assert str(problem).startswith(expected)


def test_conflicts_are_those_of_other_transactions():
    assert is_conflict(states.DeadlockDetected())
    assert is_conflict(states.SerializationFailure())
    assert is_conflict(states.LockNotAvailable())
    assert not is_conflict(states.UniqueViolation())
    assert not is_conflict(psycopg.OperationalError("server closed the connection unexpectedly"))


def test_a_server_that_is_asked_again_is_named_until_it_answers():
    answers = iter([psycopg.OperationalError(f"{FAILED}FATAL:  the database system is starting up"), None])
    waits = []

    def ask():
        waits.append([(call.what, call.doing) for call in pending.WATCH.lasting(time.monotonic() + 30)])
        if error := next(answers):
            raise error

    patiently(ask, lambda error: postgres_problem(error, "looking", DATABASE), "looking", DATABASE)
    assert waits == [[], [("PostgreSQL at db:5432,[::1]:5433", "looking")]]
    assert pending.WATCH.lasting(time.monotonic() + 30) == []
