"""When windows can end, and which batches can be without results for that."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from millrace_api.model.streamquery import Emit, Spec
from millrace_api.sql.parsed_query import parsed_query
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.native.native import Native
from millrace_jobs.queries.results import ClosingWindows
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.windows import Window

WINDOW = Window("moment", size=70_000, slide=20_000)
AGGREGATION = Aggregation("events", "", (), WINDOW, (), (), "")
ROUTED = Routed("events", WINDOW, None, None, AGGREGATION)


def marks(batches, execution=ROUTED, emit=Emit.ON_WINDOW_CLOSE):
    """Whether batches of these numbers and watermarks, in milliseconds, may have results."""
    closing = ClosingWindows(CompiledQuery(execution, None, True), Spec.model_construct(emit=emit))
    return [closing.marked(ResultBatch(number, 1, watermark)).may_have_results for number, watermark in batches]


@given(
    size=st.integers(1, 50),
    slide=st.integers(1, 50),
    offset=st.integers(-60, 60),
    first=st.integers(-300, 300),
    length=st.integers(0, 80),
)
def test_a_window_ends_at_each_slide_after_the_first(size, slide, offset, first, length):
    ends = {offset + n * slide + size for n in range(-1000, 1000)}
    found = Window("moment", size, slide, offset).ends_between(first, first + length)
    assert found == any(time in ends for time in range(first, first + length + 1))


def test_batches_between_two_ends_have_no_results():
    assert marks([(4, 51), (5, 69), (6, 70), (7, 70), (8, 71), (9, 89), (10, 200)]) == [
        True,  # the one before it is unknown
        False,
        True,
        True,  # what ends right at the watermark counts for both batches
        True,
        False,
        True,
    ]


def test_a_batch_that_is_repeated_may_have_results():
    """The first attempt has not got as far as to emit what the second one has to emit, too."""
    assert marks([(4, 51), (5, 70), (5, 70), (6, 75), (8, 76)]) == [True, True, True, True, True]
    assert marks([(4, 51), (5, 75), (5, 75), (6, 76)]) == [True, True, True, False]


def test_results_that_do_not_only_come_when_windows_close_may_come_at_any_time():
    batches = [(4, 51), (5, 52)]
    assert marks(batches) == [True, False]
    assert marks(batches, emit=Emit.ON_UPDATE) == [True, True]
    assert marks(batches, emit=Emit.ON_WINDOW_END) == [True, True]
    assert marks(batches, replace(ROUTED, ahead=(0,))) == [True, True]
    assert marks(batches, replace(ROUTED, window=None)) == [True, True]
    assert marks(batches, replace(ROUTED, aggregation=None)) == [True, True]
    assert marks(batches, Native(parsed_query("SELECT 1"), "")) == [True, True]
