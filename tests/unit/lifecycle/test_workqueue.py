"""Keys that wait to be worked on: each once, none lost, no two workers at one."""

import random
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.lifecycle import workqueue
from millrace_operator.lifecycle.fair_queue import FairQueue
from millrace_operator.lifecycle.workqueue import FIRST_PAUSE, LONGEST_PAUSE, WorkQueue


class Clock:
    """Time that passes when a test says so."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def all_ready(queue):
    """The keys that are handed out now, in order; each is done at once."""
    found = []
    for last in ("before those whose time has come", "the last"):
        queue.add(last)
        while (key := queue.get()) != last:
            found.append(key)
            queue.done(key)
        queue.done(last)
    return found


def test_a_key_that_is_added_often_is_handed_out_once():
    queue = WorkQueue()
    for key in "abcab":
        queue.add(key)
    assert len(queue) == 3
    assert all_ready(queue) == ["a", "b", "c"]


def test_what_is_added_while_it_is_worked_on_comes_again_after_that():
    queue = WorkQueue()
    queue.add("a")
    assert queue.get() == "a"
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert queue.get() == "b"
    assert len(queue) == 0
    queue.done("a")
    assert queue.get() == "a"
    queue.done("a")
    assert all_ready(queue) == []


def test_a_delayed_key_is_due_at_its_earliest_date():
    clock = Clock()
    queue = WorkQueue(clock)
    queue.add_later("a", 10)
    queue.add_later("b", 5)
    queue.add_later("a", 3)
    queue.add_later("a", 20)
    assert all_ready(queue) == []
    clock.now += 4
    assert all_ready(queue) == ["a"]
    clock.now += 2
    assert all_ready(queue) == ["b"]
    clock.now += 100
    assert all_ready(queue) == []


def test_a_key_that_is_handed_out_is_no_longer_due():
    clock = Clock()
    queue = WorkQueue(clock)
    queue.add_later("a", 1)
    queue.add("a")
    assert queue.get() == "a"
    clock.now += 2
    queue.add_later("a", 1)  # what happens while it is worked on counts
    queue.done("a")
    assert all_ready(queue) == []
    clock.now += 2
    assert all_ready(queue) == ["a"]


def test_dates_that_no_longer_count_take_no_memory():
    clock = Clock()
    queue = WorkQueue(clock)
    queue.add_later("b", 3000)
    for _ in range(10_000):
        queue.add_later("a", 3600)
        queue.add("a")
        queue.done(queue.get())
        clock.now += 0.01
    assert len(queue._later) < 100
    clock.now += 2901
    assert all_ready(queue) == ["b"]


def test_pauses_double_up_to_the_longest_and_start_over_after_a_success():
    queue = WorkQueue(Clock())
    pauses = [queue.retry("a") for _ in range(20)]
    assert all(FIRST_PAUSE * 2**n / 2 <= pause <= FIRST_PAUSE * 2**n for n, pause in enumerate(pauses[:10]))
    assert all(LONGEST_PAUSE / 2 <= pause <= LONGEST_PAUSE for pause in pauses[-5:])
    queue.forget("a")
    assert queue.retry("a") <= FIRST_PAUSE


def test_a_closed_queue_lets_its_workers_go():
    queue = WorkQueue()
    found = []
    worker = threading.Thread(target=lambda: found.append(queue.get()))
    worker.start()
    queue.stop()
    worker.join(10)
    assert found == [None]
    queue.add("a")
    assert queue.get() is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["add", "get", "done"])), max_size=60))
def test_no_change_is_missed_and_no_two_work_on_one_key(steps):
    queue = WorkQueue()
    added, working = set(), []
    for key, step in steps:
        if step == "add":
            queue.add(key)
            added.add(key)
        elif step == "get" and len(queue):
            taken = queue.get()
            assert taken in added
            assert taken not in working
            added.discard(taken)
            working.append(taken)
        elif step == "done" and working:
            queue.done(working.pop(0))
    for key in working:
        queue.done(key)
    assert set(all_ready(queue)) == added


@pytest.mark.parametrize("workers", [1, 4])
def test_many_workers_see_the_newest_of_every_key(workers, monkeypatch):
    monkeypatch.setattr(workqueue, "FIRST_PAUSE", 0.001)
    queue, lock = WorkQueue(), threading.Lock()
    wanted, done, at_work = dict.fromkeys(range(20), 0), dict.fromkeys(range(20), 0), set()
    chance = random.Random(7)

    def work():
        while (key := queue.get()) is not None:
            with lock:
                assert key not in at_work
                at_work.add(key)
                newest, fails = wanted[key], chance.random() < 0.2
            if fails:
                queue.retry(key)
            else:
                done[key] = newest
                queue.forget(key)
            with lock:
                at_work.discard(key)
            queue.done(key)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for thread in threads:
        thread.start()
    for number in range(2000):
        key = chance.randrange(20)
        with lock:
            wanted[key] = number
        queue.add(key)
    finished = threading.Event()
    for _ in range(5000):
        with lock:
            if done == wanted:
                break
        finished.wait(0.002)
    queue.stop()
    for thread in threads:
        thread.join(10)
    assert done == wanted


def test_new_keys_come_after_those_that_were_begun():
    queue = WorkQueue()
    queue.add("new", new=True)
    queue.add("newer", new=True)
    queue.add("begun")
    queue.add("new")
    assert len(queue) == 3
    assert [queue.get() for _ in range(3)] == ["begun", "new", "newer"]


def test_a_key_that_is_added_first_waits_for_no_other():
    queue = WorkQueue()
    for key in ("a", "b", "canary"):
        queue.add(key)
    queue.add_first("canary")
    assert [queue.get() for _ in range(3)] == ["canary", "a", "b"]
    queue.add_first("canary")  # a worker has it
    queue.add("c")
    queue.done("canary")
    assert [queue.get() for _ in range(2)] == ["c", "canary"]


def test_owners_take_turns_and_each_leaves_workers_to_others():
    queue = WorkQueue(owner=lambda key: key[0], most=2)
    for key in ("m1", "m2", "m3", "m4", "b1", "b2"):
        queue.add(key)
    assert [queue.get() for _ in range(4)] == ["m1", "b1", "m2", "b2"]
    queue.add("b3")
    queue.add("c1")
    assert queue.get() == "c1"  # m and b have two workers each
    queue.done("b2")
    assert queue.get() == "b3"
    queue.done("m1")
    queue.done("m2")
    assert [queue.get() for _ in range(2)] == ["m3", "m4"]
    assert len(queue) == 0


@given(
    st.lists(st.tuples(st.sampled_from(["a1", "a2", "a3", "b1", "b2", "c1"]), st.sampled_from(["add", "new", "first", "take", "done"])), max_size=80),
    st.sampled_from([1, 2, None]),
)  # fmt: skip
def test_no_key_is_lost_and_no_owner_has_more_than_its_workers(steps, most):
    turns = FairQueue(lambda key: key[0], most)
    waiting, working = set(), []
    for key, step in steps:
        if step in ("add", "new", "first") and key not in waiting and key not in working:
            turns.add_first(key) if step == "first" else turns.add(key, new=step == "new")
            waiting.add(key)
        elif step == "first" and key in waiting:
            turns.move_first(key)
        elif step == "take" and (taken := turns.take()) is not None:
            waiting.remove(taken)
            working.append(taken)
        elif step == "done" and working:
            turns.done(working.pop(0))
        assert len(turns) == len(waiting)
    while waiting or working:
        before = len(waiting)
        while (taken := turns.take()) is not None:
            waiting.remove(taken)
            working.append(taken)
        assert len(waiting) < before or working
        turns.done(working.pop(0))
    assert turns.take() is None
