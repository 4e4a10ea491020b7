"""The record that is made of samples: what they say, and what they cannot say."""

from builders import a_query
from millrace_jobs.selection.switch import REASONS
from millrace_operator.commands.past_metrics import CREATED, Period, counted_decisions, past_lines
from millrace_operator.metrics_source.result import Sample, Series
from millrace_support.run_record import BatchLine, DecisionLine, MessageLine
from unit.page.runs import BEGAN


class Samples:
    """Answers with these series to every selector that names their metric, as Prometheus does."""

    def __init__(self, *series):
        self.series = series

    def range(self, query, start, end, step):
        return tuple(each for each in self.series if each.labels["__name__"] in query)


def series(name, *values, step=60.0, **labels):
    samples = (Sample(BEGAN + step * number, value) for number, value in enumerate(values) if value is not None)
    return Series({"__name__": name, "pod": "driver", **labels}, tuple(samples))


def a_driver(*batches):
    """The samples of a driver that has finished so many batches."""
    return [
        series(CREATED, *(None if each is None else 1.0 for each in batches)),
        series("millrace_batches_total", *batches),
        series("millrace_batch_interval_seconds", *(None if each is None else 2.0 for each in batches)),
    ]


def lines_of(*series_, step=60.0):
    return past_lines(Samples(*series_), "ns", a_query(), "driver", Period(BEGAN, BEGAN + 3600, step), "Prometheus")


def newest(lines):
    return [each for each in lines if isinstance(each, BatchLine)][-1]


def test_the_first_value_of_a_counter_is_no_decision():
    first = BEGAN + 0.0006
    asked = float(f"{first:.3f}")
    changes = Series({"__name__": "millrace_query_rescales_total", "reason": "ScaleOut"}, (Sample(asked, 7.0),))
    assert asked > first
    assert list(counted_decisions(Samples(changes), "ns", "fares", Period.of(first, BEGAN + 60))) == []


def test_a_switch_that_only_a_metric_has_counted_says_in_words_why():
    switches = [series("millrace_auto_switches_total", 0.0, 1.0, reason=each) for each in (*REASONS, "whim")]
    found = [each.text for each in lines_of(*a_driver(1, 3), *switches) if isinstance(each, DecisionLine)]
    assert len(found) == len(set(found)) == len(REASONS) + 1
    assert found[0] == "auto: a switch to another algorithm: the load of the workers becomes more even"
    assert [each for each in found if "the reason is" in each] == [
        "auto: a switch to another algorithm: the reason is whim"
    ], "each reason that a driver has is known here"


def test_tasks_without_series_have_no_seconds():
    stages = series("millrace_stage_task_seconds_sum", 1.0, 5.0, stage="route")
    assert newest(lines_of(*a_driver(1, 3))).details.task_seconds is None
    assert newest(lines_of(*a_driver(1, 3), stages)).details.task_seconds == 2.0


def test_the_mean_load_is_that_of_all_workers():
    loads = [
        series("millrace_worker_rows", 0.0, 100.0 if not number else 20.0, worker=str(number)) for number in range(64)
    ]
    figures = newest(lines_of(*a_driver(1, 2), *loads)).figures
    assert (figures.load_size, len(figures.loads), figures.loads[0]) == (2, 32, 100)
    assert figures.mean_load == (100 + 63 * 20) / 64


def test_a_gap_in_the_samples_is_a_message():
    gap = [None] * 9
    assert [each.text for each in lines_of(*a_driver(1, 2, *gap, 3)) if isinstance(each, MessageLine)] == [
        "no figures from 12:01:00 to 12:11:00 UTC: the driver did not run, or was not scraped"
    ]
    assert not [each for each in lines_of(*a_driver(1, 2, *gap, 3), step=600.0) if isinstance(each, MessageLine)]


def test_the_beginning_says_when_the_samples_end():
    begin, *_ = lines_of(*a_driver(1, 2, 2, 2))
    assert (begin.time, begin.newest, begin.step) == (BEGAN, BEGAN + 180, 60.0)
