import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.scaling.observation import Observation
from millrace_operator.scaling.shape import Shape
from millrace_operator.scaling.zones import LoadDriver, Zone, Zones

PLAN = Shape(2, 4, 3)
W = {Zone.OVERLOADED: 0.95, Zone.STABLE: 0.85, Zone.UNDERUSED: 0.5}


class Stream:
    """Observations one after the other, fed to zones; ``zones`` has what each of them led to."""

    def __init__(self, zones=None, batches=1, every=2.0):
        self.zones = zones or Zones()
        self.batches, self.every = batches, every
        self.time, self.epoch, self.plan = 0.0, 1, PLAN
        self.found = []

    def add(self, count, w, rate=1000.0, keys=100.0, noise=0.0, seed=1):
        rng = np.random.default_rng(seed)
        for number in range(count):
            at = [value(number) if callable(value) else value for value in (w, rate, keys)]
            w_now, rate_now, keys_now = (None if v is None else v * (1 + noise * rng.standard_normal()) for v in at)
            seen = Observation(
                since=self.time,
                until=self.time + self.every,
                epoch=self.epoch,
                plan=self.plan,
                batches=self.batches,
                interval=2.0,
                seconds=2.0 * w_now,
                rows=2 * rate_now,
                arrival=rate_now,
                lag=0.0,
                keys=keys_now,
            )
            self.zones.add(seen)
            self.time += self.every
            self.found.append(self.zones.zone)
        return self

    def change(self, **plan):
        self.epoch, self.plan = self.epoch + 1, Shape(**{**vars(self.plan), **plan})
        return self

    @property
    def zone(self):
        return self.zones.zone

    @property
    def drivers(self):
        return self.zones.drivers()


# Zones.


@pytest.mark.parametrize(
    ("w", "zone"),
    [
        (5.0, Zone.OVERLOADED),
        (0.901, Zone.OVERLOADED),
        (0.9, Zone.STABLE),
        (0.801, Zone.STABLE),
        (0.8, Zone.UNDERUSED),
        (0.0, Zone.UNDERUSED),
    ],
)
def test_a_zone_is_told_when_the_window_agrees(w, zone):
    assert Stream(Zones(target=0.9, step=0.1, window=6)).add(8, w).found == [Zone.STABLE] * 5 + [zone] * 3


def test_before_anything_is_seen_a_job_is_stable():
    assert (Zones().zone, Zones().drivers(), Zones().forecast(60)) == (Zone.STABLE, frozenset(), None)


def test_overload_does_not_wait_longer_than_the_window():
    """However long the job was underused before."""
    stream = Stream().add(100, 0.4).add(6, 3.0)
    assert stream.found[-6:] == [Zone.UNDERUSED] + [Zone.STABLE] * 4 + [Zone.OVERLOADED]


@given(zone=st.sampled_from(Zone), odd=st.floats(0, 100), after=st.integers(0, 12), window=st.integers(1, 12))
def test_one_odd_batch_never_changes_the_zone(zone, odd, after, window):
    stream = Stream(Zones(window=window)).add(window + 2, W[zone]).add(1, odd).add(after, W[zone])
    assert set(stream.found[window + 1 :]) == {zone}


@given(zone=st.sampled_from([Zone.OVERLOADED, Zone.UNDERUSED]), odd=st.floats(0, 100), at=st.integers(0, 5))
def test_one_odd_batch_delays_a_new_zone_by_one_batch_at_most(zone, odd, at):
    stream = Stream().add(20, W[Zone.STABLE]).add(at, W[zone]).add(1, odd).add(6 - at, W[zone])
    assert stream.zone is zone


@given(st.lists(st.sampled_from([0.5, 0.85, 0.95, 3.0]), max_size=40))
def test_the_zone_is_that_of_six_of_the_last_seven_batches(ws):
    stream = Stream()
    for number, w in enumerate(ws):
        stream.add(1, w)
        last = ws[max(number - 6, 0) : number + 1]
        over, under = sum(one > 0.9 for one in last), sum(one <= 0.8 for one in last)
        assert stream.zone is (Zone.OVERLOADED if over >= 6 else Zone.UNDERUSED if under >= 6 else Zone.STABLE)


def test_an_observation_of_several_batches_counts_as_several_but_it_takes_two():
    assert Stream(batches=2).add(4, 2.0).found == [Zone.STABLE] * 2 + [Zone.OVERLOADED] * 2
    assert Stream(batches=7).add(3, 2.0).found == [Zone.STABLE] + [Zone.OVERLOADED] * 2
    assert Stream(batches=7).add(9, 0.5).add(1, 2.0).add(9, 0.5).found == [Zone.STABLE] + [Zone.UNDERUSED] * 18


def test_coarse_observations_that_alternate_are_stable():
    assert set(Stream(batches=7).add(20, lambda number: (0.5, 2.0)[number % 2]).found) == {Zone.STABLE}


def test_noise_around_the_middle_of_the_stable_zone_is_stable():
    assert set(Stream().add(3000, 0.85, noise=0.05).found) == {Zone.STABLE}


# After a change.


def test_after_a_change_the_job_is_stable_for_the_grace_period():
    stream = Stream(Zones(window=3, grace=8)).add(10, 0.95).change(executors=3)
    stream.add(10, 0.95)
    assert stream.found[10:] == [Zone.STABLE] * 7 + [Zone.OVERLOADED] * 3
    stream.change(executors=2).add(10, 0.3)
    assert stream.found[20:] == [Zone.STABLE] * 7 + [Zone.UNDERUSED] * 3


def test_batches_over_the_interval_do_not_wait_for_the_end_of_grace():
    stream = Stream(Zones(window=3, grace=8)).add(10, 0.4).change(executors=1).add(4, 1.5)
    assert stream.found[10:] == [Zone.STABLE] * 2 + [Zone.OVERLOADED] * 2


def test_batches_under_another_plan_do_not_count():
    stream = Stream(Zones(window=3, grace=0)).add(10, 3.0).change(parallelism=8)
    assert stream.add(3, 3.0).found[10:] == [Zone.STABLE] * 2 + [Zone.OVERLOADED]


def test_executors_that_come_late_restart_the_window():
    stream = Stream(Zones(window=3, grace=4)).add(10, 0.95).change(parallelism=8).add(10, 0.95)
    assert stream.zone is Zone.OVERLOADED
    stream.plan = Shape(4, 8, 3)
    assert stream.add(5, 0.95).found[20:] == [Zone.STABLE] * 3 + [Zone.OVERLOADED] * 2


def test_what_was_seen_before_a_long_gap_is_forgotten():
    stream = Stream().add(20, 3.0)
    stream.time += 30
    assert stream.add(1, 3.0).zone is Zone.OVERLOADED
    stream.time += 61
    assert stream.add(6, 3.0, rate=5000).found[-6:] == [Zone.STABLE] * 5 + [Zone.OVERLOADED]
    stream.time += 61
    assert stream.add(1, 3.0, rate=7000).zones.forecast(60).value == 7000


# Drivers.

DRIVEN = [
    ({}, set()),
    ({"rate": 1.3}, {LoadDriver.RATE}),
    ({"keys": 1.3}, {LoadDriver.KEYS}),
    ({"rate": 1.3, "keys": 1.3}, {LoadDriver.RATE, LoadDriver.KEYS}),
    ({"rate": 1.3, "keys": 0.7}, {LoadDriver.RATE}),
    ({"rate": 0.7, "keys": 0.7}, set()),
]


@pytest.mark.parametrize(("times", "drivers"), DRIVEN)
def test_an_overload_is_driven_by_what_grew(times, drivers):
    load = {"rate": 1000 * times.get("rate", 1), "keys": 100 * times.get("keys", 1)}
    stream = Stream().add(30, 0.85, noise=0.03).add(8, 0.95, **load)
    assert (stream.zone, stream.drivers) == (Zone.OVERLOADED, drivers)


@pytest.mark.parametrize(("times", "drivers"), DRIVEN)
def test_underuse_is_driven_by_what_shrank(times, drivers):
    load = {"rate": 1000 / times.get("rate", 1), "keys": 100 / times.get("keys", 1)}
    stream = Stream().add(30, 0.85, noise=0.03).add(8, 0.5, **load)
    assert (stream.zone, stream.drivers) == (Zone.UNDERUSED, drivers)


def test_while_stable_any_change_is_told():
    assert Stream().add(30, 0.85).add(8, 0.85, rate=700, keys=130).drivers == {LoadDriver.RATE, LoadDriver.KEYS}


def test_slow_growth_over_hours_counts():
    """By 1 % in four minutes, far below the noise: against the level at which the plan was chosen it is clear."""
    stream = Stream().add(3 * 1800, 0.85, rate=lambda number: 1000 * (1 + number / 12000), noise=0.05)
    assert stream.add(8, 0.95, rate=1450).drivers == {LoadDriver.RATE}


def test_growth_is_against_the_level_at_which_the_plan_was_chosen():
    stream = Stream().add(20, 0.95, rate=2000).change(executors=4).add(20, 0.85, rate=2000)
    assert stream.drivers == set()
    assert stream.add(8, 0.5, rate=1500).drivers == {LoadDriver.RATE}
    assert Stream().add(20, 0.95, rate=1000).add(20, 0.5, rate=1500).drivers == set()
    stream = Stream().add(20, 0.85, rate=1000).add(20, 0.95, rate=2000)
    assert stream.drivers == {LoadDriver.RATE}
    assert stream.change(executors=4).add(20, 0.95, rate=2000).drivers == set()


def test_growth_that_only_begins_is_told_by_its_trend():
    """Back at the level of the plan, after a fall, and rising: the rise is what counts."""
    fall = Stream().add(20, 0.85, rate=1000).add(30, 0.85, rate=600)
    fall.add(16, 0.95, rate=lambda number: 850 + 10 * number, noise=0.002)
    assert fall.drivers == {LoadDriver.RATE}


def test_a_trend_that_changes_next_to_nothing_drives_nothing():
    assert Stream().add(40, 0.95, rate=lambda number: 1000 + 0.4 * number).drivers == set()


def test_noise_drives_hardly_anything():
    """Of two drivers in 400 observations with 10 % of noise, one in ten may be reported."""
    reported = 0
    for seed in range(20):
        stream = Stream().add(40, 0.85, noise=0.1, seed=seed)
        reported += sum(
            len(stream.add(1, 0.85, noise=0.1, seed=100 * seed + number).drivers) for number in range(20, 40)
        )
    assert reported <= 800 / 10


def test_keys_that_are_unknown_drive_nothing():
    assert Stream().add(20, 0.85, keys=None).add(10, 0.95, keys=None, rate=2000).drivers == {LoadDriver.RATE}


def test_keys_that_become_known_are_compared_with_what_they_were_then():
    stream = Stream().add(20, 0.85, keys=None).add(10, 0.85, keys=100).add(10, 0.95, keys=200)
    assert stream.drivers == {LoadDriver.KEYS}


def test_records_after_none_are_growth():
    assert Stream().add(20, 0.02, rate=0, keys=0).add(8, 1.5).drivers == {LoadDriver.RATE, LoadDriver.KEYS}


@settings(max_examples=60, deadline=None)
@given(odd=st.floats(0, 1e5), after=st.integers(0, 10), seed=st.integers(0, 20))
def test_one_odd_batch_drives_nothing(odd, after, seed):
    stream = Stream().add(30, 0.85, noise=0.02, seed=seed).add(1, 0.95, rate=odd, keys=odd)
    assert stream.add(after, 0.85, noise=0.02, seed=seed + 1).drivers == set()


# Forecast, and restarts.


def test_the_forecast_follows_a_ramp_and_not_a_step():
    ramp = Stream().add(40, 0.85, rate=lambda number: 1000 + 10 * number)
    assert ramp.zones.forecast(60).value == pytest.approx(1390 + 5 * 60)
    step = Stream().add(30, 0.85).add(5, 0.95, rate=2000)
    assert step.zones.forecast(60).value == 2000


def test_the_forecast_does_not_start_over_with_a_plan():
    stream = Stream().add(30, 0.95, rate=lambda number: 1000 + 10 * number).change(executors=4)
    assert stream.add(1, 0.5, rate=1300).zones.forecast(60).value == pytest.approx(1600)


@given(st.integers(0, 40))
def test_zones_go_on_after_a_restart(stop):
    settings_ = {"target": 0.9, "step": 0.1, "window": 4, "grace": 8}

    def feed(stream, since, until):
        for number in range(since, until):
            if number in (15, 30):
                stream.change(executors=number)
            stream.add(1, 0.5 + number % 20 / 30, rate=1000 + 20 * number, keys=None if number < 5 else 100 + number)
        return stream

    whole = feed(Stream(Zones(**settings_)), 0, 45)
    stopped = feed(Stream(Zones(**settings_)), 0, stop)
    saved = json.loads(json.dumps(stopped.zones.save()))
    stopped.zones = Zones(**settings_)
    stopped.zones.restore(saved)
    feed(stopped, stop, 45)
    assert stopped.found == whole.found
    assert stopped.drivers == whole.drivers
    assert stopped.zones.save() == whole.zones.save()


def test_memory_is_bounded():
    zones = Stream().add(5000, 0.85, noise=0.1).zones
    assert len(json.dumps(zones.save())) < 5000
