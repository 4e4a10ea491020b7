import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.kernels.mixing import splitmix64
from millrace_jobs.sketches.key_profile import EVERY, HEAVY, K, KeyCounts, add_counts, decode, encode, profile, union

COUNTS = st.dictionaries(st.integers(0, 2**64 - 1), st.integers(1, 2**40), max_size=40)


def counts_of(records_by_hash):
    hashes, counts = np.array(list(records_by_hash), np.uint64), np.array(list(records_by_hash.values()), np.int64)
    return add_counts([(hashes, counts)])


def as_dict(keys):
    return dict(zip(keys.hashes.tolist(), keys.counts.tolist(), strict=True))


def random_hashes(keys, seed):
    return np.random.default_rng(seed).integers(0, 2**64, keys, np.uint64)


def profile_of(hashes):
    """The profile of one worker that got records with these hashes."""
    return profile(add_counts([(hashes, np.ones(len(hashes), np.int64))]))


@given(st.lists(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 9)), max_size=9), max_size=4))
def test_counts_are_added_by_key(parts):
    expected = {}
    for key, count in [pair for part in parts for pair in part]:
        expected[key] = expected.get(key, 0) + count
    arrays = [(np.array([k for k, _ in part], np.uint64), np.array([c for _, c in part], np.int64)) for part in parts]
    found = add_counts(arrays)
    assert list(as_dict(found).items()) == sorted(expected.items())
    assert found.rows == sum(expected.values())
    assert found.counts_of(np.arange(12, dtype=np.uint64)).tolist() == [expected.get(key, 0) for key in range(12)]


@given(COUNTS)
def test_below_k_keys_it_is_exact(records):
    found = profile(counts_of(records))
    assert found.complete
    assert as_dict(found.sample) == records
    assert (found.distinct, found.rows, len(found.heavy)) == (len(records), sum(records.values()), 0)


@pytest.mark.parametrize("keys", [K - 1, K, K + 1, 5000])
def test_a_profile_holds_the_smallest_hashes_and_the_heaviest_keys(keys):
    hashes = np.sort(random_hashes(keys, seed=1))
    counts = np.random.default_rng(2).permutation(keys) + 1
    found = profile(KeyCounts(hashes, counts))
    assert found.sample.hashes.tolist() == hashes[:K].tolist()
    assert found.sample.counts.tolist() == counts[:K].tolist()
    if keys <= K:
        assert found.threshold == EVERY
    else:
        assert found.threshold == hashes[K]
        assert found.heavy.counts.tolist() == [keys - i for i in range(HEAVY)]


@given(st.lists(COUNTS, max_size=5))
def test_the_union_of_small_profiles_is_the_profile_of_the_union(workers):
    whole = {}
    for records in workers:
        for key, count in records.items():
            whole[key] = whole.get(key, 0) + count
    found = union([profile(counts_of(records)) for records in workers])
    assert found.rows == sum(whole.values())
    assert as_dict(found.sample) == dict(sorted(whole.items()))
    assert found.distinct == len(whole)


@pytest.mark.parametrize("spread", ["each key on one worker", "every key on all workers"])
def test_sampled_counts_are_exact_however_keys_are_spread(spread):
    stream = random_hashes(20_000, seed=3)[np.random.default_rng(4).integers(0, 20_000, 200_000)]
    workers = stream % np.uint64(8) if spread == "each key on one worker" else np.arange(len(stream)) % 8
    found = union([profile_of(stream[workers == worker]) for worker in range(8)])
    hashes, counts = np.unique(stream, return_counts=True)
    below = hashes < np.uint64(found.threshold)
    assert as_dict(found.sample) == dict(zip(hashes[below].tolist(), counts[below].tolist(), strict=True))
    assert found.rows == 200_000
    assert found.distinct == pytest.approx(len(hashes), rel=4 / (K - 1) ** 0.5)


@pytest.mark.parametrize("spread", ["each key on one worker", "every key on all workers"])
def test_heavy_keys_are_found_with_their_counts(spread):
    keys = random_hashes(20_000, seed=5)
    shares = np.arange(1, 20_001) ** -1.0
    stream = np.random.default_rng(6).choice(keys, 400_000, p=shares / shares.sum())
    workers = stream % np.uint64(8) if spread == "each key on one worker" else np.arange(len(stream)) % 8
    found = union([profile_of(stream[workers == worker]) for worker in range(8)])
    hashes, counts = np.unique(stream, return_counts=True)
    real = np.sort(counts)[::-1][:HEAVY]
    assert as_dict(found.heavy.take(np.arange(8))) == as_dict(
        KeyCounts(hashes, counts).take(np.argsort(-counts, kind="stable")[:8])
    )
    assert found.heavy.counts[:HEAVY] == pytest.approx(real, rel=0.1)


@pytest.mark.parametrize("keys", [300, 1_000, 10_000, 50_000])
def test_the_error_of_the_number_of_keys_is_as_the_paper_says(keys):
    errors = [profile_of(random_hashes(keys, seed)).distinct / keys - 1 for seed in range(40)]
    deviation = 1 / (K - 1) ** 0.5
    assert max(map(abs, errors)) < 4 * deviation
    assert abs(float(np.mean(errors))) < 4 * deviation / len(errors) ** 0.5  # unbiased


def test_real_hashes_of_consecutive_keys_will_do():
    hashes = np.array([int(splitmix64(np.uint64(key))) for key in range(5_000)], np.uint64)
    assert profile_of(hashes).distinct == pytest.approx(5_000, rel=4 / (K - 1) ** 0.5)


def test_a_profile_without_keys_is_empty_and_complete():
    for found in (union([]), profile(KeyCounts.none()), union([profile(KeyCounts.none())] * 2)):
        assert (found.distinct, found.rows, found.complete) == (0, 0, True)


@given(COUNTS)
def test_a_profile_survives_json(records):
    given_profile = profile(counts_of(records))
    found = decode(json.loads(json.dumps(encode(given_profile))))
    assert as_dict(found.sample) == as_dict(given_profile.sample)
    assert (found.rows, found.threshold) == (given_profile.rows, EVERY)


def test_a_large_profile_survives_json_and_stays_small():
    given_profile = profile_of(np.repeat(random_hashes(100_000, seed=7), 3))
    text = encode(given_profile)
    found = decode(text)
    assert len(text) < 3_300
    assert found.threshold == given_profile.threshold
    for part in ("sample", "heavy"):
        assert getattr(found, part).hashes.tolist() == getattr(given_profile, part).hashes.tolist()
        assert getattr(found, part).counts.tolist() == getattr(given_profile, part).counts.tolist()
