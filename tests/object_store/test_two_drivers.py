"""Two drivers on one checkpoint, held apart at each request to the store, in every order of their requests.

Both take themselves for the driver: the first one holds the lease and has been cut off for so long that the second one takes
it for dead. Each plans batch 1 from its own view, begins it, and commits it, as a run does. In no order do they run two
batches 1, and whoever comes next continues from the one that ran.
"""

import itertools
import threading

import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.checkpoint.lease import Holder
from millrace_jobs.checkpoint.object_lease import ObjectLease
from millrace_jobs.plan.log_entries import LogEntries
from millrace_jobs.stores import objects

from .test_object_lease import entry, logged

FIRST, SECOND = "first", "second"
REQUESTS, OF_FIRST = 15, 3
"""Requests of both together, and those of the first one: it plans, begins and commits."""


class Turns:
    """Lets the requests of two threads through in an order; what is left of one goes on when the other has ended."""

    def __init__(self, order):
        self._order = list(order)
        self._ended = set()
        self._changed = threading.Condition()

    def take(self):
        name = threading.current_thread().name
        if name not in (FIRST, SECOND):
            return  # a lease that is renewed meanwhile, on a busy machine
        with self._changed:
            self._changed.wait_for(lambda: self._next() in (name, None), timeout=60)
            if self._order:
                self._order.pop(0)
            self._changed.notify_all()

    def end(self):
        with self._changed:
            self._ended.add(threading.current_thread().name)
            self._changed.notify_all()

    def _next(self):
        while self._order and self._order[0] in self._ended:
            self._order.pop(0)
        return self._order[0] if self._order else None


class TurnTaking:
    """The client of a bucket, each of whose requests waits for its turn."""

    def __init__(self, client, turns):
        self._client, self._turns = client, turns

    def __getattr__(self, name):
        def request(*arguments, **options):
            self._turns.take()
            return getattr(self._client, name)(*arguments, **options)

        return request


def drive(place, lease, memory, ran):
    """One batch as a run has it: it is planned unless Spark has read it, begun, run, and committed."""
    if 1 not in memory:
        text = f"planned by the {threading.current_thread().name}"
        logged(place, 1, text)
        memory[1] = entry(text)
    lease.begin(1, memory.__getitem__)
    ran.append(memory[1])
    (place / "spark" / "commits" / "1").write_bytes(b"v1\n{}")


def read(place):
    """The entries that Spark reads when it starts."""
    entries = LogEntries(place / "spark")
    newest = entries.newest("offsets")
    assert newest is not None
    return {number: entries.text("offsets", number) for number in range(newest + 1)}


@pytest.mark.in_turn
def test_they_never_run_two_batches_of_one_number(s3, place, monkeypatch):
    monkeypatch.setattr(Holder, "is_dead", lambda _: True)
    outcomes = set()
    for number, places in enumerate(itertools.combinations(range(REQUESTS), OF_FIRST)):
        order = [FIRST if i in places else SECOND for i in range(REQUESTS)]
        outcomes.add(race(place / str(number), order, monkeypatch))
    # the second one runs the batch, or both do, which is one batch: or the first one, before the lease was taken
    assert {(1, (FIRST,)), (2, ())} <= outcomes, "they were not held apart"


def race(place, order, monkeypatch):
    """Run both in an order; return how many of them ran the batch, and whether they ended by an error."""
    first = ObjectLease(place)
    first.take()
    first.restore()
    logged(place, 0)
    first.begin(0, lambda _: entry("0"))
    (place / "spark" / "commits" / "0").write_bytes(b"v1\n{}")
    turns, ran, failed = Turns(order), [], []
    client = objects.client_of

    def as_first():
        drive(place, first, {0: entry("0")}, ran)

    def as_second():
        lease = ObjectLease(place)
        lease.take()
        try:
            lease.restore()
            drive(place, lease, read(place), ran)
        finally:
            lease.release()

    def thread(name, act):
        def run():
            try:
                act()
            except MillraceError as error:
                failed.append((name, str(error)))
            finally:
                turns.end()

        return threading.Thread(target=run, name=name)

    threads = [thread(FIRST, as_first), thread(SECOND, as_second)]
    with monkeypatch.context() as patched:
        patched.setattr(objects, "client_of", lambda scheme, bucket: TurnTaking(client(scheme, bucket), turns))
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    first.release()
    assert ran, failed
    third = ObjectLease(place)
    third.take()
    third.restore()
    third.release()
    now = (place / "spark" / "offsets" / "1").read_text()
    begun = third._begun
    assert begun is not None
    assert {now} == {*ran} == {begun.offsets}
    assert begun.before == entry("0")
    return len(ran), tuple(sorted(name for name, _ in failed))
