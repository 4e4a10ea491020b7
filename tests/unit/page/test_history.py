import sys
from dataclasses import fields

import pytest

from builders import a_batch, a_native_batch
from millrace_jobs.page.history import MAX_BATCHES, MAX_LOADS, MAX_MESSAGES
from millrace_support.run_record import MAX_MESSAGE_CHARACTERS, BatchFigures

from .runs import BEGAN, a_join_batch, a_skewed_batch, history, latencies


def newest(*batches):
    return history(*batches)[0].snapshot().batches[-1]


def test_a_new_history_is_empty():
    run = history()[0].snapshot()
    assert (run.batches, run.newest, run.messages, run.switch, run.failure) == ((), None, (), None, None)
    assert run.began == run.last_sign == BEGAN


def test_the_rate_is_of_the_time_since_the_batch_before():
    assert newest(a_batch(), a_batch(rows=5000)).rate == pytest.approx(2500)
    assert newest(a_batch(rows=840, seconds=0.84)).rate == pytest.approx(1000)  # the first one has only its own time


def test_a_batch_has_median_and_p95_of_its_latencies():
    batch = newest(a_batch(latencies=latencies(*range(1, 101))))
    assert (batch.median, batch.p95) == (50, 95)
    assert newest(a_batch()).median is None


def test_only_the_last_batches_are_kept_and_all_are_counted():
    run = history(*[a_batch(rows=10, late=1, rejected=2, incomplete=3)] * (MAX_BATCHES + 5))[0].snapshot()
    assert [run.batches[0].batch, len(run.batches)] == [5, MAX_BATCHES]
    assert (run.rows, run.late, run.rejected, run.incomplete) == (2450, 245, 490, 735)


def test_a_batch_is_kept_in_bounded_memory():
    batch = newest(a_batch(worker_rows=(1,) * 1000, worker_keys=(1,) * 1000, distinct_keys=1000))
    assert len(batch.loads) <= MAX_LOADS
    assert (set(batch.loads), batch.load_size, batch.mean_load) == ({1}, 32, 1)
    size = sys.getsizeof(batch) + sum(sys.getsizeof(getattr(batch, field.name)) for field in fields(BatchFigures))
    assert size < 2048


def test_messages_are_bounded_in_number_and_length():
    kept, _ = history()
    for number in range(MAX_MESSAGES + 5):
        kept.message(f"{number} " + "x" * 10_000)
    messages = kept.snapshot().messages
    assert len(messages) == MAX_MESSAGES
    assert messages[0].text.startswith("5 ")
    assert max(len(each.text) for each in messages) == MAX_MESSAGE_CHARACTERS


def test_loads_are_those_of_workers_or_of_the_tasks_of_a_join():
    assert newest(a_skewed_batch()).loads == (640, 120, 120, 120)
    assert newest(a_skewed_batch()).imbalance == pytest.approx(1.56)
    assert newest(a_join_batch()).loads == (200, 1000)
    assert newest(a_join_batch()).imbalance == pytest.approx(2 / 3)
    assert (newest(a_native_batch()).loads, newest(a_native_batch()).imbalance) == ((), None)


def test_an_idle_trigger_is_a_sign_of_life():
    kept, clock = history(a_batch())
    clock.now += 60
    kept.idle()
    run = kept.snapshot()
    assert (run.is_idle, run.last_sign) == (True, clock.now)
