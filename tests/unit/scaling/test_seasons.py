"""A load whose rises come again: it is recognized by the second, and executors are there before the third."""

import json

import numpy as np
import pytest

from millrace_operator.scaling.decision.decision import Reason
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.decision.settings import Settings
from millrace_operator.scaling.rate_history import RateHistory
from millrace_operator.scaling.seasons import Seasons, find_season, in_words
from millrace_operator.scaling.shape import Bounds, Range, Shape
from millrace_research.arena.simulation.traces import trace
from unit.scaling.deciding import SETTINGS, run, scenario

LOW, HIGH, FIRST, LENGTH = 200_000.0, 1_200_000.0, 400.0, 150.0
BOUNDS = Bounds(Range(1, 8), Range(2, 64), Range(1, 64), executor_cores=2)
HORIZON = 54.0


def peaks(period, count):
    """A load that grows to six times within 5 s, every ``period`` seconds, so many times."""
    points = [(0.0, LOW)]
    for begin in (FIRST + period * number for number in range(count)):
        points += [(begin, LOW), (begin + 5, HIGH), (begin + LENGTH, HIGH), (begin + LENGTH + 5, LOW)]
    return trace("peaks", [*points, (FIRST + period * count, LOW)])


@pytest.mark.parametrize("period", [600.0, 1200.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_executors_are_there_before_the_third_peak_and_its_batches_are_in_time(period, seed):
    found, _ = run(scenario(peaks(period, 4), Shape(2, 16, 8), BOUNDS), seed)
    late = [
        sum(
            batch.seconds > 2.0
            for batch in found.batches
            if FIRST + period * number <= batch.planned < FIRST + period * number + LENGTH
        )
        for number in range(4)
    ]
    assert min(late[:2]) > 10, "nothing is known before the second"
    assert max(late[2:]) <= 2
    third = FIRST + 2 * period
    assert next(each.after.executors for each in reversed(found.rescales) if each.time < third) >= 7


def test_executors_are_released_between_peaks():
    _, policy = run(scenario(peaks(1200.0, 4), Shape(2, 16, 8), BOUNDS))
    added = [each for each in policy.changes if each.plan.executors > each.before.executors]
    ahead = [each for each in added if each.inputs and each.inputs.period]
    assert [round(each.inputs.period) for each in ahead] == [1200] * len(ahead)
    assert len(ahead) == 3, "for the third, the fourth, and one after the end of the run"
    for each in ahead:
        before = [change.plan.executors for change in policy.changes if change.time < each.time]
        assert before[-1] <= 2
    assert "since a rise that came 20 min ago is expected to come again" in ahead[0].sentence


def test_a_peak_that_does_not_come_again_is_expected_once():
    """The executors for it go after the usual delay, and nothing is expected after that."""
    twice = peaks(1200.0, 2)
    quiet = trace("stops", [*zip(twice.times, twice.rates, strict=True), (9000.0, LOW)])
    _, policy = run(scenario(quiet, Shape(2, 16, 8), BOUNDS))
    ahead = [each for each in policy.changes if each.time > FIRST + 1200 + LENGTH + 300]
    assert {each.reason for each in ahead[1:]} == {Reason.SCALE_IN}
    assert ahead[0].inputs.period
    assert ahead[-1].plan.executors <= 2
    assert ahead[-1].time - (FIRST + 2400) < 600


def test_a_restarted_operator_and_another_spec_know_the_seasons():
    scene = scenario(peaks(600.0, 2), Shape(2, 16, 8), BOUNDS)
    _, policy = run(scene)
    mind = Scaler(SETTINGS, BOUNDS, 8)
    mind.restore(json.loads(json.dumps(policy.scaler.save())))
    other = Scaler(Settings(target=0.5), BOUNDS, 8, seasons=policy.scaler.seasons)
    now = FIRST + 1200 - 30
    for known in (policy.scaler, mind, other):
        rise = known.seasons.coming(now, LOW, HORIZON, HORIZON)
        assert rise.period == 600
        assert rise.rate == pytest.approx(HIGH, rel=0.02)


def test_state_of_a_version_without_seasons_is_taken():
    saved = Scaler(SETTINGS, BOUNDS, 8).save()
    del saved["seasons"]
    Scaler(SETTINGS, BOUNDS, 8).restore(saved)


def rates(kind, rng, slots):
    """A load without seasons."""
    noise = np.exp(0.1 * rng.normal(size=slots))
    walk = np.exp(np.cumsum(0.02 * rng.normal(size=slots)))
    bursts = np.ones(slots)
    for begin in np.flatnonzero(rng.random(slots) < 0.01):
        bursts[begin : begin + 12] *= 3
    return {"noise": noise, "walk": walk * np.sqrt(noise), "bursts": bursts * np.sqrt(noise)}[kind] * 100


@pytest.mark.parametrize(("kind", "share"), [("noise", 0.0), ("walk", 0.01), ("bursts", 0.05)])
def test_loads_without_seasons_are_rarely_taken_for_one(kind, share):
    """Bursts at random are expected again after the second, and hardly ever once there are more of them."""
    seen = [
        find_season(rates(kind, np.random.default_rng(seed), 1080)[:length], 6) is not None
        for seed in range(20)
        for length in range(40, 1080, 20)
    ]
    assert np.mean(seen) <= share


def daily(days, rng, skipped=()):
    """Rates of a minute each: from eight to nine a day has four times the load, but for the days that are skipped."""
    load = np.full(days * 1440, 100.0)
    for day in range(days):
        if day not in skipped:
            load[day * 1440 + 480 : day * 1440 + 540] = 400.0
    return load * np.exp(0.05 * rng.normal(size=len(load)))


def learned(minutes):
    seasons = Seasons()
    for minute, rate in enumerate(minutes):
        seasons.add(60.0 * minute, 60.0 * minute + 60.0, rate)
    return seasons


def test_what_comes_every_day_is_expected_on_the_third():
    seasons = learned(daily(3, np.random.default_rng(1))[: 2 * 1440 + 475])
    now = (2 * 1440 + 475) * 60.0
    assert seasons.coming(now, 100.0, HORIZON, HORIZON) is None
    rise = seasons.coming(now, 100.0, HORIZON, HORIZON + 300)
    assert rise.period == pytest.approx(86_400, abs=120)
    assert rise.rate == pytest.approx(400, rel=0.2)


def test_weekends_without_it_are_known_after_two_weeks():
    """Of a season of a day one in five would be wrong; that of a week is better, and the weekend of it is quiet."""
    weekend = {day for day in range(28) if day % 7 in (5, 6)}
    load = daily(28, np.random.default_rng(2), weekend)
    monday, saturday = (14 * 1440 + 475 + day * 1440 for day in (0, 5))
    soon = HORIZON + 300
    assert learned(load[:monday]).coming(monday * 60.0, 100.0, HORIZON, soon).period == pytest.approx(
        7 * 86_400, abs=1200
    )
    assert learned(load[:saturday]).coming(saturday * 60.0, 100.0, HORIZON, soon) is None


def test_the_history_is_bounded_and_a_gap_is_not_a_load():
    seasons, rng = Seasons(), np.random.default_rng(3)
    for hour in range(24 * 30):
        if hour % 5:
            seasons.add(hour * 3600.0, hour * 3600.0 + 3600.0, float(rng.integers(0, 1_000_000)))
    saved = json.dumps(seasons.save())
    assert len(saved) < 30_000
    assert seasons.coming(24 * 30 * 3600.0, 1.0, HORIZON, HORIZON) is None


@pytest.mark.parametrize(
    ("seconds", "text"), [(600, "10 min"), (86_400, "24 h"), (7 * 86_400, "7 days"), (5400, "90 min")]
)
def test_a_period_in_words(seconds, text):
    assert in_words(seconds) == text


def test_a_clock_that_was_set_back_begins_the_history_again():
    history = RateHistory(10.0, 100)
    history.add(86_400.0, 86_500.0, 5.0)
    history.add(0.0, 100.0, 7.0)
    assert history.closed.tolist() == pytest.approx([7.0] * 9, rel=0.01)


@pytest.mark.parametrize("change", [{"open": "x"}, {"open": [1]}, {"open": float("nan")}, {"partly": ["x", 1]}])
def test_saved_seasons_that_are_no_numbers_are_refused(change):
    saved = Seasons().save()
    saved["hours"] |= change
    with pytest.raises((TypeError, ValueError)):
        Seasons().restore(saved)
