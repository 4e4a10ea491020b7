"""Two drivers on one checkpoint, held apart at each request to the store, in every order of their requests.

Both take themselves for the driver: the first one holds the lease and has been cut off for so long that the second one takes
it for dead. Each plans batch 1 from its own view, begins it, and commits it, as a run does. In no order do they run two
batches 1, and whoever comes next continues from the one that ran.
"""

import itertools

import pytest

from millrace_jobs.checkpoint.lease import Holder

from .store_runs import FIRST, SECOND, race

REQUESTS, OF_FIRST = 15, 3
"""Requests of both together, and those of the first one: it plans, begins and commits."""


@pytest.mark.in_turn
def test_two_drivers_never_run_two_batches_of_one_number(s3, place, monkeypatch):
    monkeypatch.setattr(Holder, "is_dead", lambda _: True)
    outcomes = set()
    for number, places in enumerate(itertools.combinations(range(REQUESTS), OF_FIRST)):
        order = [FIRST if i in places else SECOND for i in range(REQUESTS)]
        outcomes.add(race(place / str(number), order, monkeypatch))
    # the second one runs the batch, or both do, which is one batch: or the first one, before the lease was taken
    assert {(1, (FIRST,)), (2, ())} <= outcomes, "they were not held apart"
