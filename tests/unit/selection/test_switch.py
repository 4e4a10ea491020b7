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
         "routing takes 0.20 s, with am 0.10 s"),
        (Candidate("am", BatchTime(0.2, 2.0, 0.3, 0.25), 1.37, 80_000, False), "measured",
         "its batches took 0.25 s longer than their stages account for"),
        (Candidate("am", BatchTime(0.2, 2.1, 0.3, 0.5), 1.37, 80_000, False), "trial",
         "what it costs here has not been measured yet"),
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
