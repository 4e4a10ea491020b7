"""The end of a bounded input: which event time closes what the operators hold, with their state made up."""

import pytest
from pyspark.sql.types import StructType

from builders import a_query
from millrace_api.errors import MillraceError
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native
from millrace_jobs.run import end_of_input
from millrace_jobs.run.end_of_input import EndOfInput
from millrace_jobs.run.held_results import ExecutedPlan, HeldResults
from millrace_jobs.sinks.base import LastBatch, ResultBatch

MINUTE = 60_000_000
GROUPS = HeldResults("StateStoreSave 0", rows=2, until=9_000)


class Checkpoint:
    """The part of a checkpoint that is used; the last batch, 3, ran under ``passed`` and reached ``reached``."""

    def __init__(self, folder, *, passed, reached, released=None, has_state=True):
        self.root = self.spark = folder
        if has_state:
            (folder / "state" / "0").mkdir(parents=True)
        self.released = released
        self._passed, self._reached = passed, reached

    def last_batch(self):
        return LastBatch(3, 3) if self._reached is not None else LastBatch(None, None)

    def batch(self, number):
        return ResultBatch(number, 1, self._passed)

    def watermark_ms(self):
        return self._reached

    def note_released(self, batch):
        self.released = batch


@pytest.fixture
def closing_time(tmp_path, monkeypatch):
    """Return the closing time with these results held; None for a process that has run no batch."""

    def ask(held, *, emit="OnWindowClose", aggregates=True, **checkpoint):
        plan = None if held is None else ExecutedPlan(None, 0)
        monkeypatch.setattr(end_of_input, "executed_plan", lambda _: plan)
        monkeypatch.setattr(end_of_input, "held_results", lambda *_, timers: list(held) if timers else [])
        spec = a_query("spec", "emit", value=emit).spec
        query = CompiledQuery(Native(parsed_query("SELECT 1"), ""), StructType(), aggregates)
        ask.checkpoint = Checkpoint(tmp_path, **checkpoint)
        return EndOfInput(None, spec, query, ask.checkpoint).closing_time(None, 0)

    return ask


def test_the_watermark_reaches_the_last_result_and_no_more(closing_time):
    other = HeldResults("StateStoreSave 1", rows=1, until=8_000)
    assert closing_time([GROUPS, other], passed=1_000, reached=4_000) == 9_000_000 + 10 * MINUTE


def test_nothing_is_closed_where_nothing_is_held_and_the_checkpoint_remembers_that(closing_time):
    assert closing_time([], passed=1_000, reached=4_000) is None
    assert closing_time.checkpoint.released == 3


def test_nothing_is_closed_where_no_batch_has_run(closing_time):
    assert closing_time(None, passed=None, reached=None) is None


def test_timers_count_where_results_wait_for_them(closing_time):
    assert closing_time([GROUPS], emit="OnUpdate", passed=1_000, reached=4_000) is None


def test_a_watermark_whose_batch_never_came_is_followed_by_one_hardly_later(closing_time):
    assert closing_time([GROUPS], passed=3_000, reached=9_000) == 9_001_000 + 10 * MINUTE


def test_results_that_the_watermark_has_passed_are_an_error(closing_time):
    with pytest.raises(MillraceError, match=r"results are missing.* 2 rows of StateStoreSave 0"):
        closing_time([GROUPS], passed=9_000, reached=9_000)


@pytest.mark.parametrize(
    ("released", "emit", "aggregates", "has_state", "needs_a_batch"),
    [
        (3, "OnWindowClose", True, True, False),
        (2, "OnWindowClose", True, True, True),  # batches came since, or the process died before it could look
        (None, "OnWindowClose", True, True, True),  # such as the checkpoint of an older version
        (None, "OnWindowClose", True, False, False),  # nothing has state
        (None, "OnUpdate", True, True, False),  # groups are emitted at once
        (None, "OnUpdate", False, True, True),  # a join holds rows without a partner
    ],
)
def test_a_process_that_ran_no_batch_needs_one_unless_nothing_was_held(
    closing_time, released, emit, aggregates, has_state, needs_a_batch
):
    time = closing_time(
        None, emit=emit, aggregates=aggregates, passed=1, reached=4_000, released=released, has_state=has_state
    )
    assert time == (4_001_000 + 10 * MINUTE if needs_a_batch else None)
