import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.kernels.mixing import splitmix64
from millrace_jobs.sketches.bottom_k import K, bottom_k, decode, distinct, encode

HASHES = st.lists(st.integers(0, 2**64 - 1), max_size=40)


def as_hashes(values):
    return np.array(values, np.uint64)


def hashes_of(keys, seed):
    """Hashes as good as random of that many different keys."""
    return np.random.default_rng(seed).integers(0, 2**64, keys, np.uint64)


@given(HASHES)
def test_below_k_keys_it_is_exact(values):
    sketch = bottom_k(as_hashes(values))
    assert sketch.tolist() == sorted(set(values))
    assert distinct([sketch]) == len(set(values))


@pytest.mark.parametrize("keys", [K - 1, K, K + 1])
def test_it_holds_at_most_k_hashes(keys):
    hashes = hashes_of(keys, seed=1)
    sketch = bottom_k(np.concatenate([hashes, hashes]))
    assert sketch.tolist() == sorted(hashes.tolist())[:K]


@given(st.lists(HASHES, max_size=5))
def test_a_union_of_sketches_is_the_sketch_of_the_union(streams):
    whole = bottom_k(as_hashes([value for values in streams for value in values]))
    sketches = [bottom_k(as_hashes(values)) for values in streams]
    assert distinct(sketches) == distinct(sketches[::-1]) == distinct([whole])


def test_that_holds_beyond_k_too_and_common_keys_count_once():
    hashes = hashes_of(20_000, seed=2)
    parts = [bottom_k(part) for part in (hashes[:12_000], hashes[8_000:], hashes[5_000:6_000])]
    assert distinct(parts) == distinct([bottom_k(hashes)])


@pytest.mark.parametrize("keys", [300, 1_000, 10_000, 50_000])
def test_the_error_is_as_the_paper_says(keys):
    errors = [distinct([bottom_k(hashes_of(keys, seed))]) / keys - 1 for seed in range(40)]
    deviation = 1 / (K - 2) ** 0.5
    assert max(map(abs, errors)) < 4 * deviation
    assert abs(float(np.mean(errors))) < 4 * deviation / len(errors) ** 0.5  # unbiased


def test_real_hashes_of_consecutive_keys_will_do():
    hashes = as_hashes([int(splitmix64(np.uint64(key))) for key in range(5_000)])
    assert distinct([bottom_k(hashes)]) == pytest.approx(5_000, rel=4 / (K - 2) ** 0.5)


def test_no_sketches_are_no_keys():
    assert distinct([]) == 0
    assert distinct([bottom_k(as_hashes([]))]) == 0


@given(HASHES)
def test_it_survives_json(values):
    sketch = bottom_k(as_hashes(values))
    found = decode(json.loads(json.dumps(encode(sketch))))
    assert found.dtype == np.uint64
    assert found.tolist() == sketch.tolist()


def test_its_text_is_the_same_on_every_machine():
    assert encode(as_hashes([1, 2**63])) == "AQAAAAAAAAAAAAAAAAAAgA=="
