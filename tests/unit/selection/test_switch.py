import pytest

from millrace_jobs.selection.costs import BatchTime
from millrace_jobs.selection.switch import Candidate, Switch

OLD = Candidate("hash", BatchTime(0.2, 2.0, 0.3, 0.5), 1.37, 80_000.0, by_rule=False)


@pytest.mark.parametrize(
    ("after", "reason", "words"),
    [
        (Candidate("pkg", BatchTime(0.3, 1.0, 0.4, 0.5), 0.04, 120_000, False), "imbalance",
         "the busiest task has 137% more than the mean, with pkg 4%"),
        (Candidate("cam", BatchTime(0.2, 1.0, 0.4, 0.5), 1.4, 40_000, False), "aggregation cost",
         "80,000 partial results become 40,000"),
        (Candidate("cam", BatchTime(0.2, 1.9, 0.1, 0.5), 1.4, 40_000, False), "aggregation cost",
         "80,000 partial results become 40,000"),
        (Candidate("am", BatchTime(0.1, 2.0, 0.3, 0.5), 1.37, 80_000, False), "routing",
         "routing takes 200 ms, with am 100 ms"),
        (Candidate("am", BatchTime(0.2, 2.0, 0.3, 0.25), 1.37, 80_000, False), "measured",
         "batches with hash took 250 ms longer than their stages account for"),
    ],
)  # fmt: skip
def test_a_switch_explains_itself_with_its_numbers(after, reason, words):
    switch = Switch(7, OLD, after)
    assert switch.reason == reason
    assert switch.gain == pytest.approx(1 - after.time.total / 3.0)
    assert str(switch) == (
        f"auto: from hash to {after.algorithm}, for {after.time.total:.2f} s a batch instead of 3.00 s as predicted, "
        f"because {words}"
    )


def test_a_return_to_native_without_a_gain_says_that_nothing_is_lost():
    shuffle = Candidate("shuffle", BatchTime(0.2, 4.0, 2.0, 2.57), 0.0, 80_000.0, by_rule=False, scatter=0.25)
    native = Candidate("native", BatchTime(0.0, 4.0, 2.0, 2.97), 0.0, 80_000.0, by_rule=False, scatter=0.5)
    switch = Switch(7, shuffle, native)
    assert switch.reason == "draw"
    assert str(switch) == (
        "auto: from shuffle to native, because shuffle is not clearly faster: a batch takes 8.77 s instead of 8.97 s as "
        "predicted, and batch times scatter by 750 ms"
    )


def test_of_short_batches_a_small_gain_can_be_seen():
    before = Candidate("hash", BatchTime(0.02, 0.1, 0.03, 0.054), 0.5, 900.0, by_rule=False)
    after = Candidate("pkg", BatchTime(0.02, 0.095, 0.03, 0.054), 0.1, 900.0, by_rule=False)
    assert str(Switch(3, before, after)).startswith("auto: from hash to pkg, for 199 ms a batch instead of 204 ms")
