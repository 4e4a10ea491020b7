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


def test_a_switch_to_what_is_predicted_to_be_slower_says_that_it_is_a_trial():
    native = Candidate("native", BatchTime(0.0, 4.0, 2.0, 2.77), 0.0, 80_000.0, by_rule=False)
    shuffle = Candidate("shuffle", BatchTime(0.2, 4.0, 2.0, 2.77), 0.0, 80_000.0, by_rule=False)
    switch = Switch(7, native, shuffle)
    assert switch.reason == "trial"
    assert str(switch) == (
        "auto: from native to shuffle as a trial, because no routed batch has been measured yet: the prediction of "
        "8.97 s a batch instead of 8.77 s may be wrong, and auto goes back to native if it is right"
    )


def test_of_short_batches_a_small_gain_can_be_seen():
    before = Candidate("hash", BatchTime(0.02, 0.1, 0.03, 0.054), 0.5, 900.0, by_rule=False)
    after = Candidate("pkg", BatchTime(0.02, 0.095, 0.03, 0.054), 0.1, 900.0, by_rule=False)
    assert str(Switch(3, before, after)).startswith("auto: from hash to pkg, for 199 ms a batch instead of 204 ms")
