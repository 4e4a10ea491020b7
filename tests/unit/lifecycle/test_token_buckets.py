"""Token buckets against a plain count of tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.lifecycle.token_buckets import TokenBuckets

BURST, SECONDS = 5, 2.0


@given(st.lists(st.one_of(st.just("take"), st.integers(1, 8), st.floats(0, 30).map(lambda span: ("pass", span)))))
def test_tokens_are_those_of_a_count(acts):
    now, tokens = 0.0, float(BURST)
    buckets = TokenBuckets(BURST, SECONDS, lambda: now)
    for act in acts:
        match act:
            case ("pass", span):
                now += span
                tokens = min(tokens + span / SECONDS, BURST)
            case "take":
                if abs(tokens - 1) < 1e-6:
                    return  # a rounding decides
                assert buckets.take("a") == (tokens >= 1)
                tokens -= tokens >= 1
            case _:
                buckets.spend("a", act)
                tokens -= act
        assert abs(buckets.wait("a") - max(1 - tokens, 0.0) * SECONDS) < 1e-6
        assert buckets.wait("b") == 0


def test_buckets_that_are_full_again_are_not_kept():
    now = 0.0
    buckets = TokenBuckets(BURST, SECONDS, lambda: now)
    for number in range(10_000):
        now += 1
        buckets.spend(number, 1)
    assert len(buckets._buckets) <= 1001
