"""Never two leaders at a time, whatever happens; and one soon, where nothing more happens."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.leadership.election import Election, ElectionStep, Timing

from .elections import TIMING, Faults, Simulation, held_by

CHANCE = st.integers(0, 2**32).map(random.Random)
OFFSETS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=3)
FAULTS = st.builds(
    Faults,
    delay=st.floats(0, 20),
    lost=st.floats(0, 0.5),
    paused=st.floats(0, 0.3),
    longest_pause=st.floats(0, 60),
)
SLACK = 2 * TIMING.request
"""For the requests themselves."""


def at_most_one(simulation):
    assert len(simulation.leaders()) <= 1


@settings(max_examples=300)
@given(OFFSETS, FAULTS, CHANCE)
def test_there_are_never_two_leaders(offsets, faults, chance):
    simulation = Simulation(offsets, chance, faults)
    simulation.run(400, lambda: at_most_one(simulation))


@given(OFFSETS, FAULTS, CHANCE, st.floats(20, 100))
def test_when_the_faults_end_one_leads_and_stays(offsets, faults, chance, ends):
    simulation = Simulation(offsets, chance, faults)
    simulation.run(ends, lambda: at_most_one(simulation))
    simulation.faults = Faults()
    settled = ends + faults.longest_pause + 2 * TIMING.lease + TIMING.retry
    simulation.run(settled, lambda: at_most_one(simulation))
    leaders = simulation.leaders()
    assert len(leaders) == 1

    def still_the_same():
        assert simulation.leaders() == leaders

    simulation.run(settled + 100, still_the_same)


@given(OFFSETS, CHANCE, st.floats(0, 0.2), st.floats(10, 60))
def test_a_leader_that_dies_is_followed_within_the_lease_and_one_retry(offsets, chance, delay, dies):
    simulation = Simulation(offsets, chance, Faults(delay=delay))
    simulation.run(dies)
    (leader,) = simulation.leaders()
    simulation.gone.add(leader)
    simulation.run(dies + TIMING.lease + TIMING.retry + SLACK)
    (follower,) = simulation.leaders()
    assert follower != leader


@given(OFFSETS, CHANCE, st.floats(10, 60))
def test_a_leader_that_releases_is_followed_within_one_retry(offsets, chance, ends):
    simulation = Simulation(offsets, chance, Faults())
    simulation.run(ends)
    (leader,) = simulation.leaders()
    simulation.release(leader)
    simulation.run(ends + TIMING.retry + SLACK)
    (follower,) = simulation.leaders()
    assert follower != leader


def test_a_lease_that_somebody_deletes_is_taken_when_its_time_is_over():
    election = Election("me", Timing(15))
    election.read(held_by("other"), 100.0)
    election.read(None, 102.0)
    assert election.next(103.0) == (ElectionStep.WAIT, 1.0)
    election.read(None, 104.0)
    assert election.next(104.5)[0] is ElectionStep.WAIT
    election.read(None, 117.0)
    assert election.next(117.0)[0] is ElectionStep.WRITE
    assert election.wanted().version == ""


def test_the_duration_counts_that_the_holder_has_asked_for():
    election = Election("me", Timing(15))
    election.read(held_by("other", seconds=60), 0.0)
    election.read(held_by("other", seconds=60), 59.0)
    assert election.next(59.5)[0] is ElectionStep.WAIT
    assert election.next(60.0)[0] is ElectionStep.WRITE


def test_an_answer_that_was_lost_is_found_by_reading():
    election = Election("me", Timing(15))
    election.read(None, 0.0)
    assert election.next(0.0)[0] is ElectionStep.WRITE
    election.failed(2.5)
    assert not election.leads(2.5)
    assert election.next(4.5)[0] is ElectionStep.READ
    election.read(held_by("me"), 4.6)
    assert not election.leads(4.6)
    assert election.next(4.6)[0] is ElectionStep.WRITE
    election.written(held_by("me", "8"), 4.6, 4.7)
    assert election.leads(14.5)
    assert not election.leads(14.7)


def test_a_take_over_is_counted_and_a_renewal_is_not():
    election = Election("me", Timing(15))
    election.read(held_by(""), 0.0)
    taken = election.wanted()
    assert (taken.holder, taken.version, taken.transitions) == ("me", "7", 1)
    election.written(held_by("me", "8"), 0.0, 0.1)
    assert election.wanted().transitions == 0
    released = election.released()
    assert (released.holder, released.version) == ("", "8")
    assert not election.leads(0.2)
