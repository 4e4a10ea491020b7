"""The end of a bounded input: which event time closes what the operators hold, with their state made up."""

from types import SimpleNamespace

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.run import end_of_input
from millrace_jobs.run.end_of_input import EndOfInput
from millrace_jobs.run.held_results import ExecutedPlan, HeldResults
from millrace_jobs.sinks.base import LastBatch, ResultBatch

MINUTE = 60_000_000
DOCUMENT = {
    "apiVersion": "millrace.io/v1alpha1",
    "kind": "StreamQuery",
    "metadata": {"name": "fares"},
    "spec": {
        "sources": {
            "trips": {
                "files": {"path": "data/*.csv", "format": "csv"},
                "schema": "at TIMESTAMP, fare DOUBLE",
                "watermark": {"column": "at", "delay": "10 minutes"},
            }
        },
        "query": {"sql": "SELECT count(*) FROM trips GROUP BY window(at, '1 minute')"},
        "sink": {"files": {"path": "out", "format": "csv"}},
    },
}
GROUPS = HeldResults("StateStoreSave 0", rows=2, until=9_000)
TIMERS = HeldResults("TransformWithStateInPySpark 0", rows=2, until=9_000, timers=True)


class Checkpoint:
    """The part of a checkpoint that is read; the last batch ran under ``passed`` and reached ``reached``."""

    def __init__(self, folder, *, passed, reached, closed=(), operators=1):
        self.spark = folder
        for number in range(operators):
            (folder / "state" / str(number)).mkdir(parents=True)
        self._passed, self._reached = passed, reached
        self._offsets = {f"source {n}": {"closed": 1} if is_closed else {} for n, is_closed in enumerate(closed)}

    def last_batch(self):
        return LastBatch(3, 3) if self._reached is not None else LastBatch(None, None)

    def batch(self, number):
        return ResultBatch(number, 1, self._passed)

    def watermark_ms(self):
        return self._reached

    def committed(self):
        return self._offsets


@pytest.fixture
def closing_time(tmp_path, monkeypatch):
    """Return the closing time with these results held; None for a process that has run no batch."""

    def ask(held, *, emit="OnWindowClose", **checkpoint):
        plan = None if held is None else ExecutedPlan(None, 0)
        monkeypatch.setattr(end_of_input, "executed_plan", lambda _: plan)
        monkeypatch.setattr(end_of_input, "held_results", lambda *_: list(held))
        document = DOCUMENT | {"spec": DOCUMENT["spec"] | {"emit": emit}}
        spec = StreamQuery.model_validate(document).spec
        query = SimpleNamespace(execution=None, waits=False, aggregates=True)
        return EndOfInput(None, spec, query, Checkpoint(tmp_path, **checkpoint)).closing_time(None, 0)

    return ask


def test_the_watermark_reaches_the_last_result_and_no_more(closing_time):
    other = HeldResults("StateStoreSave 1", rows=1, until=8_000)
    assert closing_time([GROUPS, other], passed=1_000, reached=4_000) == 9_000_000 + 10 * MINUTE


def test_nothing_is_closed_where_nothing_is_held(closing_time):
    assert closing_time([], passed=1_000, reached=4_000) is None


def test_nothing_is_closed_where_no_batch_has_run(closing_time):
    assert closing_time(None, passed=None, reached=None) is None


def test_timers_count_where_results_wait_for_them(closing_time):
    assert closing_time([TIMERS], passed=1_000, reached=4_000) is not None


def test_timers_that_only_forget_do_not_count(closing_time):
    assert closing_time([TIMERS], emit="OnUpdate", passed=1_000, reached=4_000) is None


def test_a_watermark_whose_batch_never_came_is_followed_by_one_hardly_later(closing_time):
    assert closing_time([GROUPS], passed=3_000, reached=9_000) == 9_001_000 + 10 * MINUTE


def test_results_that_the_watermark_has_passed_are_an_error(closing_time):
    with pytest.raises(MillraceError, match=r"results are missing.* 2 rows of StateStoreSave 0"):
        closing_time([GROUPS], passed=9_000, reached=9_000)


@pytest.mark.parametrize(
    ("passed", "closed", "operators", "needs_a_batch"),
    [
        (4_000, [True, True], 1, False),
        (3_000, [True, True], 1, True),  # it died before the batch with the results
        (4_000, [True, False], 1, True),  # records came for one of two sources
        (4_000, [True], 2, True),  # the second operator may hold results of the first
        (3_000, [False], 0, False),  # nothing has state
    ],
)
def test_a_process_that_ran_no_batch_needs_one_unless_all_was_closed(
    closing_time, passed, closed, operators, needs_a_batch
):
    time = closing_time(None, passed=passed, reached=4_000, closed=closed, operators=operators)
    assert time == (4_001_000 + 10 * MINUTE if needs_a_batch else None)


def test_updates_need_no_further_batch(closing_time):
    assert closing_time(None, emit="OnUpdate", passed=3_000, reached=4_000, closed=[False]) is None
