import numpy as np
from hypothesis import given

from millrace_jobs.kernels.mixing import salts, seeded_hashes
from unit.partitioners import oracles
from unit.partitioners.streams import keys, seeds


def test_salts_are_the_known_answers_of_splitmix64():
    # The first outputs for the seed 1234567 of Vigna's splitmix64.c.
    assert salts(1234567, 5).tolist() == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@given(keys, seeds)
def test_seeded_agrees_with_the_oracle(stream, seed):
    assert seeded_hashes(stream, seed).tolist() == [oracles.seeded(int(key), seed) for key in stream]


@given(seeds)
def test_salts_are_a_stable_prefix(seed):
    assert salts(seed, 7).tolist() == oracles.salts(seed, 7)
    assert salts(seed, 3).tolist() == salts(seed, 7).tolist()[:3]


def test_hashes_of_two_seeds_are_independent():
    """Chi-square of the joint distribution over 16 x 16 buckets, on sequential codes, the hardest input."""
    codes = np.arange(100_000, dtype=np.uint64)
    joint = (seeded_hashes(codes, 1) % 16) * 16 + seeded_hashes(codes, 2) % 16
    observed = np.bincount(joint.astype(np.int64), minlength=256)
    expected = len(codes) / 256
    chi_square = ((observed - expected) ** 2 / expected).sum()
    assert 159 < chi_square < 379  # 255 degrees of freedom: within 5.5 standard deviations
