import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placements import placement_cost

from . import oracles, oracles_dalton
from .streams import blocks, keys, make, seeds, workers, zipf

# Slides of a stream: a few keys, of which some are hot.
slides = st.lists(st.lists(st.integers(0, 5) | st.just(3) | st.integers(0, 99), max_size=60), max_size=6).map(
    lambda values: [np.array(slide, np.uint64) for slide in values]
)
settings = st.fixed_dictionaries(
    {
        "slides": st.integers(1, 4),
        "balance": st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        "epsilon": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        "gamma": st.sampled_from([0.001, 0.1, 1.0]),
        "keys": st.sampled_from(["hot", "all"]),
        "fragmentation": st.sampled_from(["batch", "window"]),
    }
)


def hashes(*values):
    return np.array(values, np.uint64)


def assert_same_state(partitioner, oracle):
    assert sorted(partitioner.hot.tolist()) == sorted(oracle.q)
    assert partitioner.loads.tolist() == oracle.loads()
    hot = hashes(*oracle.q)
    assert partitioner.values(hot).tolist() == list(oracle.q.values())  # to the last bit
    assert partitioner.spread(hot).tolist() == [len(oracle.x(key)) for key in oracle.q]


@given(slides, st.integers(1, 9), seeds, settings)
def test_agrees_with_the_oracle_slide_by_slide(stream, n, seed, chosen):
    partitioner, oracle = make("dalton", n, 1, 3, seed, **chosen), oracles_dalton.Dalton(n, seed, 1, **chosen)
    for slide in stream:
        for block in np.array_split(slide, 2):
            assert partitioner.route(block).tolist() == oracle.route(block.tolist())
            assert_same_state(partitioner, oracle)
        partitioner.advance()
        oracle.advance()
        assert_same_state(partitioner, oracle)


@pytest.mark.parametrize("epsilon", [0.1, 0.5])
@pytest.mark.parametrize(("exponent", "n"), [(1.0, 16), (1.5, 3), (2.0, 8)])
def test_agrees_with_the_oracle_on_a_skewed_stream(exponent, n, epsilon):
    """Long enough for the best worker of a hot key to change many times."""
    chosen = {"slides": 2, "fragmentation": "window", "epsilon": epsilon}
    partitioner, oracle = make("dalton", n, **chosen), oracles_dalton.Dalton(n, **chosen)
    for slide in np.split(zipf(rows=4000, distinct=200, exponent=exponent), 4):
        assert partitioner.route(slide).tolist() == oracle.route(slide.tolist())
        assert_same_state(partitioner, oracle)
        partitioner.advance()
        oracle.advance()


@given(keys, workers, seeds, st.integers(1, 30), st.lists(st.integers(0, 200), max_size=4))
def test_agrees_with_the_oracle_where_statistics_are_by_records(stream, n, seed, window, cuts):
    partitioner = make("dalton", n, seed=seed, statistics_window=window)
    oracle = oracles_dalton.Dalton(n, seed, statistics_window=window)
    for block in blocks(stream, cuts):
        assert partitioner.route(block).tolist() == oracle.route(block.tolist())
        assert_same_state(partitioner, oracle)


@pytest.mark.data
@pytest.mark.parametrize(("name", "form"), [("w106", "<u4"), ("web12", ">i4")])
def test_agrees_with_the_oracle_on_a_real_stream(data, name, form):
    with lzma.open(data(f"caffeine_traces/{name}.trace.xz")) as file:
        stream = np.frombuffer(file.read(4 * 4000), form).astype(np.uint64)
    chosen = {"slides": 3, "fragmentation": "window"}
    partitioner, oracle = make("dalton", 64, **chosen), oracles_dalton.Dalton(64, **chosen)
    for slide in np.split(stream, 8):
        assert partitioner.route(slide).tolist() == oracle.route(slide.tolist())
        assert_same_state(partitioner, oracle)
        partitioner.advance()
        oracle.advance()


def test_the_update_rules_give_the_values_worked_out_by_hand():
    """Two workers, one key, no exploration: the first record is hashed, the second makes the key hot."""
    partitioner = make("dalton", 2, epsilon=0.0)
    home = oracles.seeded(7, 1) % 2
    assert partitioner.route(hashes(7)).tolist() == [home]
    assert partitioner.hot.tolist() == []
    assert partitioner.route(hashes(7)).tolist() == [home]
    # Loads 2 and 0, mean 1: CI = (2 - 1)/2. On one of two workers: CA = 1/2. R = -(0.5 0.5 + 0.5 0.5) = -0.5.
    expected = [-2.0, -2.0]
    expected[home] = -2.0 + 0.1 * (-0.5 + 2.0)
    assert partitioner.values(hashes(7))[0].tolist() == pytest.approx(expected)
    # Loads 3 and 0, mean 1.5: CI and CA as before.
    partitioner.route(hashes(7))
    expected[home] += 0.1 * (-0.5 - expected[home])
    assert partitioner.values(hashes(7))[0].tolist() == pytest.approx(expected)
    assert partitioner.loads[home] == 3


def test_an_underloaded_worker_is_rewarded():
    """In the second window, three records of other keys are on the other one of two workers."""
    home = [oracles.seeded(key, 1) % 2 for key in range(40)]
    others, key = [key for key in range(40) if home[key] == 1][:3], home.index(0)
    partitioner = make("dalton", 2, epsilon=0.0)
    partitioner.route(hashes(key, key))  # as above: R = -0.5
    partitioner.advance()
    partitioner.route(hashes(*others, key))  # loads 1 and 3, mean 2: CI = (1 - 2)/2, CA = 1/2, R = 0
    assert partitioner.values(hashes(key))[0].tolist() == pytest.approx([-1.85 + 0.1 * (0.0 + 1.85), -2.0])


@given(slides, workers, seeds)
def test_cold_keys_are_hashed(stream, n, seed):
    partitioner, hashing = make("dalton", n, seed=seed), make("hash", n, seed=seed)
    for slide in stream:
        for block in np.array_split(slide, 3):
            before = set(partitioner.hot.tolist())
            ids, expected = partitioner.route(block), hashing.route(block)
            cold = [key not in before | set(partitioner.hot.tolist()) for key in block.tolist()]
            if len(set(block.tolist())) <= n:  # none was hot for a while and had to make room
                assert ids[cold].tolist() == expected[cold].tolist()
        partitioner.advance()


@given(slides, workers, st.integers(0, 30))
def test_at_most_n_keys_are_hot(stream, n, window):
    partitioner = make("dalton", n, statistics_window=window)
    for slide in stream:
        for block in np.array_split(slide, 9):
            partitioner.route(block)
            assert len(partitioner.hot) <= n
        partitioner.advance()
        assert len(partitioner.hot) <= n


def test_a_key_expires_after_the_next_window():
    partitioner = make("dalton", 4)
    others = np.arange(100, 1100, dtype=np.uint64)
    partitioner.route(np.concatenate([np.full(500, 9, np.uint64), others]))
    assert partitioner.hot.tolist() == [9]
    partitioner.advance()
    partitioner.route(others)
    assert partitioner.hot.tolist() == [9]
    partitioner.advance()
    assert partitioner.hot.tolist() == []


def test_a_key_that_is_hot_again_keeps_what_was_learned():
    partitioner = make("dalton", 4, epsilon=0.0)
    stream = zipf(rows=2000, distinct=50, exponent=1.5)
    partitioner.route(stream)
    learned = partitioner.values(hashes(0))
    partitioner.advance()
    assert partitioner.values(hashes(0)).tolist() == learned.tolist()
    partitioner.route(stream)
    partitioner.advance()
    assert (partitioner.values(hashes(0)) >= -2.0).all()
    assert partitioner.values(hashes(0)).max() > -1.0


def test_a_window_without_records_changes_nothing():
    partitioner = make("dalton", 4)
    partitioner.route(zipf(rows=2000, distinct=50, exponent=1.5))
    partitioner.advance()
    state = partitioner.save()
    for _ in range(3):
        partitioner.advance()
    assert partitioner.save() == state


def test_replicas_explore_differently():
    """Also when they begin with the same state."""
    one, two = (make("dalton", 8, replica, 2, epsilon=1.0) for replica in (0, 1))
    two.restore(one.save())
    stream = np.zeros(200, np.uint64)
    first, second = one.route(stream), two.route(stream)
    assert first.tolist() != second.tolist()
    assert np.bincount(first, minlength=8).min() > 10  # 25 expected


def test_a_shift_of_the_distribution_is_learned():
    """The two hot keys change; after a window or two of learning, the imbalance is again what it was."""
    partitioner = make("dalton", 8)
    first = zipf(rows=20_000, distinct=1000, exponent=1.5)
    shifted = first + np.uint64(5000)
    imbalance = []
    for slide in [first] * 6 + [shifted] * 6:
        imbalance.append(placement_cost(partitioner.route(slide), slide, 8).load_imbalance_ratio)
        partitioner.advance()
    hashing = placement_cost(make("hash", 8).route(shifted), shifted, 8).load_imbalance_ratio
    assert max(imbalance[4:6]) < 0.5 * hashing
    assert max(imbalance[10:]) < 0.5 * hashing
    assert sorted(partitioner.hot.tolist())[0] == 5000


@pytest.mark.parametrize(("exponent", "n"), [(1.5, 16), (1.5, 64), (2.0, 8), (2.0, 16), (2.0, 64)])
def test_under_heavy_skew_its_windows_cost_less_than_those_of_two_choices_and_cam(exponent, n):
    """Section 5: where one key has more than two workers can carry. The cost of a window is p1 CI of its most loaded
    worker and p2 CA of its keys on average. Light skew is two choices' ground: there no key is hot.
    """
    stream = zipf(rows=20_000, distinct=2000, exponent=exponent)
    costs = {name: window_cost(name, stream, n) for name in ("dalton", "pkg", "cam", "hash")}
    assert costs["dalton"] < 0.9 * min(costs["pkg"], costs["cam"], costs["hash"])


def window_cost(name, stream, n):
    """Of the fifth window, each being ``stream``."""
    partitioner = make(name, n)
    for _ in range(5):
        cost = placement_cost(partitioner.route(stream), stream, n)
        partitioner.advance()
    mean = len(stream) / n
    return 0.5 * cost.load_imbalance / (cost.load_imbalance + mean) + 0.5 * cost.replication_factor / n


def test_a_uniform_stream_is_hashed():
    """Section 5.1: without skew it behaves like hashing, and no key is split."""
    stream = zipf(rows=20_000, distinct=2000, exponent=0.0)
    partitioner = make("dalton", 16)
    for _ in range(2):
        ids = partitioner.route(stream)
        partitioner.advance()
    assert ids.tolist() == make("hash", 16).route(stream).tolist()


def test_without_heavy_hitters_all_keys_are_the_bandits():
    partitioner = make("dalton", 4, keys="all")
    stream = np.arange(3000, dtype=np.uint64)
    partitioner.route(stream)
    assert len(partitioner.hot) == 3000
    partitioner.advance()
    partitioner.route(stream[:10])
    partitioner.advance()
    assert sorted(partitioner.hot.tolist()) == list(range(10))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"slides": 0}, "parameter 'slides' of partitioner dalton is 0; write a whole number of at least 1"),
        ({"balance": 1.5}, "parameter 'balance' of partitioner dalton is 1.5; write a number between 0 and 1"),
        ({"gamma": 0}, "parameter 'gamma' of partitioner dalton is 0; write a number between 0.001 and 1"),
        ({"keys": "cold"}, "parameter 'keys' of partitioner dalton is 'cold'; write one of: hot, all"),
    ],
)
def test_bad_parameters_are_explained(parameters, message):
    with pytest.raises(ValueError) as error:
        make("dalton", **parameters)
    assert str(error.value) == message
