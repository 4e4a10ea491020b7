"""Verdicts on the papers' claims, from bounds that are fixed before a run."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_research.papers.figures import PaperFigures
from millrace_research.papers.verdicts import (
    BETTER,
    Claim,
    ClaimBound,
    Verdict,
    about,
    combined,
    outcome,
    table,
    verdict_text,
)

AGREES, IN_PART, DISAGREES = Verdict.AGREES, Verdict.IN_PART, Verdict.DISAGREES
RANGE = ClaimBound("their load over ours", 1.2, 1.9, order=BETTER)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([1.2, 1.5, 1.9], AGREES),
        ([1.2, 1.07], IN_PART),  # ahead, but by less
        ([5.0, 7.0], IN_PART),  # ahead, but by more
        ([1.5, 0.9], IN_PART),
        ([1.5, 0.9, 0.8], DISAGREES),
        ([0.1], DISAGREES),
    ],
)
def test_a_range_is_met_or_else_its_order_in_half_of_the_cases(values, verdict):
    assert RANGE.judge(values) is verdict


@pytest.mark.parametrize(("values", "verdict"), [([1, 2], AGREES), ([1, 0.9], IN_PART), ([1, 0.9, 0.9], DISAGREES)])
def test_an_order_alone_holds_in_all_cases_in_half_or_in_fewer(values, verdict):
    assert ClaimBound("ratio", 1).judge(values) is verdict


def test_a_printed_figure_is_met_within_a_quarter():
    bound = about("gain", 3, order=BETTER)
    assert [bound.judge([value]) for value in (2.4, 3.75, 2.39, 3.76, 0.9)] == [
        AGREES, AGREES, IN_PART, IN_PART, DISAGREES,
    ]  # fmt: skip


def test_no_value_is_no_verdict():
    with pytest.raises(ValueError, match="there is no value of 'their load over ours'"):
        RANGE.judge([])
    with pytest.raises(ValueError, match="there are 1 bounds and values for 2"):
        combined([RANGE], [[1.0], [1.0]])


@given(st.lists(st.floats(0, 10), min_size=1), st.floats(0, 10))
def test_a_further_case_outside_never_makes_a_verdict_better(values, worse):
    ranks = [DISAGREES, IN_PART, AGREES]
    outside = worse if worse < 1 else -worse
    assert ranks.index(RANGE.judge([*values, outside])) <= ranks.index(RANGE.judge(values))


@given(st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=3), min_size=1, max_size=4))
def test_several_bounds_agree_or_disagree_only_together(values):
    verdicts = [RANGE.judge(each) for each in values]
    together = combined([RANGE] * len(values), values)
    if together is not IN_PART:
        assert set(verdicts) == {together}
    else:
        assert len(set(verdicts)) > 1 or verdicts[0] is IN_PART


def claim(replicas):
    return Claim(
        "000.1",
        "§1",
        "ahead",
        (ClaimBound("ratio", 1),),
        "zipf 1; n = 8",
        lambda figures: outcome(f"{figures.replicas} of them", [1 if figures.replicas < 4 else 0.5]),
        replicas=replicas,
    )


def test_each_number_of_partitioners_has_a_verdict():
    assert verdict_text(claim((1, 2)), PaperFigures()) == "**agrees**"
    assert verdict_text(claim((1, 2, 4, 8)), PaperFigures()) == "**agrees** for m = 1, 2; **disagrees** for m = 4, 8"
    assert table([claim((1, 4))], PaperFigures()).splitlines()[-1] == (
        "| 000.1 | ahead (§1) | zipf 1; n = 8 | ratio ≥ 1 | m = 1: 1 of them<br>m = 4: 4 of them | "
        "**agrees** for m = 1; **disagrees** for m = 4 |"
    )


@pytest.mark.parametrize(("attainable", "verdict"), [(1.1, Verdict.NOT_TESTABLE), (1.2, IN_PART), (math.inf, IN_PART)])
def test_a_figure_that_no_placement_of_the_streams_could_reach_is_no_test(attainable, verdict):
    gains = Claim("000.2", "§1", "1.2 to 1.9", (RANGE,), "zipf 0; n = 8",
                  lambda _: outcome("1.05", [1.05], attainable=attainable))  # fmt: skip
    assert gains.verdicts(PaperFigures()) == {1: verdict}


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (RANGE, "their load over ours 1.2 to 1.9 (order: ≥ 1)"),
        (ClaimBound("Γ/‖S‖", 1, 1), "Γ/‖S‖ 1"),
        (ClaimBound("part", high=0.05), "part ≤ 0.05"),
        (ClaimBound("slides", high=20, order=(0, 40)), "slides ≤ 20 (order: 0 to 40)"),
    ],
)
def test_a_bound_is_readable(bound, text):
    assert str(bound) == text
    assert not math.isnan(bound.low)
