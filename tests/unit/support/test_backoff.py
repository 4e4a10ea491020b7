from millrace_support.backoff import Backoff


def test_pauses_grow_up_to_the_longest_and_start_over_after_a_reset():
    backoff = Backoff(first=0.5, longest=10.0, factor=3.0)
    assert [backoff.next() for _ in range(5)] == [0.5, 1.5, 4.5, 10.0, 10.0]
    backoff.reset()
    assert backoff.next() == 0.5


def test_jitter_takes_off_at_most_its_share():
    backoff = Backoff(first=8.0, longest=8.0, jitter=0.25)
    pauses = [backoff.next() for _ in range(200)]
    assert all(6.0 <= pause <= 8.0 for pause in pauses)
    assert len(set(pauses)) > 1
