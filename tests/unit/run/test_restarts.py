import pytest

from millrace_api.errors import MillraceError, Problem, TransientError
from millrace_jobs.run.failures import MAX_RESTARTS, Restarts
from millrace_support.backoff import LONGEST_PAUSE

AWAY = TransientError(Problem("Kafka at kafka:9092 cannot be reached", "check bootstrapServers"))


def test_each_restart_in_a_row_waits_longer_and_the_last_failure_is_final():
    restarts = Restarts()
    pauses = [restarts.pause_after(AWAY) for _ in range(MAX_RESTARTS)]
    assert pauses == sorted(set(pauses))
    assert pauses[-1] <= LONGEST_PAUSE
    with pytest.raises(MillraceError) as raised:
        restarts.pause_after(AWAY)
    assert not isinstance(raised.value, TransientError)
    (problem,) = raised.value.problems
    assert problem.message == f"after {MAX_RESTARTS} restarts without a finished batch: {AWAY.problems[0].message}"
    assert problem.hint == "check bootstrapServers"


def test_a_finished_batch_begins_a_new_count():
    restarts = Restarts()
    first = restarts.pause_after(AWAY)
    for _ in range(2 * MAX_RESTARTS):
        assert restarts.pause_after(AWAY) > first
        assert str(restarts) == f"2 of {MAX_RESTARTS}"
        restarts.progressed()
        assert restarts.pause_after(AWAY) == first


def test_all_restarts_since_the_start_are_counted():
    restarts = Restarts()
    restarts.pause_after(AWAY)
    restarts.progressed()
    restarts.pause_after(AWAY)
    assert restarts.total == 2


def test_the_failure_is_known_until_the_query_computes_again():
    restarts = Restarts()
    for computes in (restarts.progressed, restarts.recovered):
        restarts.pause_after(AWAY)
        assert restarts.failure is AWAY
        computes()
        assert restarts.failure is None


def test_a_trigger_without_records_keeps_the_count():
    restarts = Restarts()
    restarts.pause_after(AWAY)
    restarts.recovered()
    assert str(restarts) == f"1 of {MAX_RESTARTS}"
