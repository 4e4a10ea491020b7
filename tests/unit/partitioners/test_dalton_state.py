"""States that are saved in mid-window, resized, or damaged."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.state import PartitionerState, pack, unpack

from .streams import keys, make, workers, zipf

slides = st.lists(keys, max_size=4)
parameters = st.fixed_dictionaries(
    {
        "slides": st.integers(1, 3),
        "fragmentation": st.sampled_from(["batch", "window"]),
        "keys": st.sampled_from(["hot", "all"]),
        "statistics": st.sampled_from(["exact", "sketch", "hybrid"]),
        "statistics_window": st.sampled_from([0, 7, 1000]),
    }
)


@given(slides, keys, keys, workers, parameters)
def test_a_restored_state_goes_on_without_interruption(past, first, second, n, chosen):
    running, restored = make("dalton", n, **chosen), make("dalton", 3, **chosen)
    for stream in past:
        running.route(stream)
        running.advance()
    running.route(first)
    restored.restore(running.save())
    assert restored.save() == running.save()
    for stream in (second, first, second):
        assert restored.route(stream).tolist() == running.route(stream).tolist()
        assert restored.spread(running.hot).tolist() == running.spread(running.hot).tolist()
        for partitioner in (running, restored):
            partitioner.advance()
        assert restored.save() == running.save()


@given(slides, keys, workers, workers, parameters)
def test_resizing_keeps_what_was_learned_of_the_workers_that_stay(past, stream, n, resized, chosen):
    partitioner = make("dalton", n, **chosen)
    for slide in past:
        partitioner.route(slide)
        partitioner.advance()
    partitioner.route(stream)
    hot, loads = partitioner.hot, partitioner.loads.tolist()
    values, spread = partitioner.values(hot), partitioner.spread(hot)
    partitioner.resize(resized)
    kept = min(n, resized)
    assert partitioner.loads.tolist() == (loads + [0] * 40)[:resized]
    still = np.isin(hot, partitioner.hot)
    if chosen["keys"] == "all" or len(hot) <= resized:
        assert still.all()
    else:
        assert still.sum() == resized
    after = partitioner.values(hot[still])
    assert after[:, :kept].tolist() == values[still, :kept].tolist()
    assert (after[:, kept:] == -2.0).all()
    assert (partitioner.spread(hot[still]) <= spread[still]).all()
    ids = partitioner.route(stream)
    assert ((ids >= 0) & (ids < resized)).all()


def test_after_growing_the_new_workers_get_hot_records():
    partitioner = make("dalton", 4)
    stream = zipf(20_000, 100, 2.0)
    for _ in range(3):
        partitioner.route(stream)
        partitioner.advance()
    partitioner.resize(8)
    for _ in range(5):
        ids = partitioner.route(stream)
        partitioner.advance()
    loads = np.bincount(ids, minlength=8)
    assert loads.max() < 2 * loads.mean()


def test_counts_at_the_limit_still_decide_and_do_not_overflow():
    partitioner = make("dalton", 4)
    partitioner.route(np.full(9, 5, np.uint64))
    saved = unpack(partitioner.save(), "dalton", 1)
    vectors = saved.vectors | {"loads": np.array([2**48, 0, 2**48, 2**48]), "frequencies": np.array([2**48])}
    counters = saved.counters | {"load": 2**48, "local_load": 2**48, "seen": 2**48}
    partitioner.restore(pack(PartitionerState("dalton", 1, 4, counters, vectors)))
    ids = partitioner.route(np.full(2000, 5, np.uint64))
    assert partitioner.loads.sum() == 3 * 2**48 + 2000
    assert np.bincount(ids, minlength=4)[1] > 1500  # the one that is far behind


def as_vector(*values):
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loads": as_vector(0, 0)}, "no usable loads"),
        ({"loads": as_vector(0, 0, 0, -1)}, "no usable loads"),
        ({"loads": as_vector(0, 0, 0, 2**60)}, "no usable loads"),
        ({"keys": as_vector(5)}, "no usable status"),
        ({"keys": as_vector(5, 5)}, "no usable keys"),
        ({"status": as_vector(3, 4)}, "no usable status"),
        ({"status": as_vector(3, -1)}, "no usable status"),
        ({"frequencies": as_vector(1)}, "no usable frequencies"),
        ({"last": as_vector(1, -5)}, "no usable last"),
        ({"q": as_vector(0)}, "no usable q"),
        ({"q": np.full(8, np.nan).view(np.int64)}, "no usable q"),
        ({"q": np.full(8, -2.5).view(np.int64)}, "no usable q"),
        ({"bits": as_vector(8), "bits_of_slides": as_vector(1)}, "no usable slides"),
        ({"bits": as_vector(3, 1), "bits_of_slides": as_vector(2)}, "no usable slides"),
        ({"bits": as_vector(), "bits_of_slides": as_vector(0, 0)}, "no usable slides"),
        ({"bits": as_vector(1), "bits_of_slides": as_vector(2)}, "no usable slides"),
        ({"bits_of_slides": as_vector()}, "no usable slides"),
        ({"counted_keys": as_vector(1, 2, 3)}, "no usable counts of keys"),
        ({"counted_keys": as_vector(2, 1), "counts": as_vector(1, 1)}, "no usable counts of keys"),
        ({"counted_keys": as_vector(1), "counts": as_vector(0)}, "no usable counts of keys"),
        ({"cells": as_vector(1)}, "no usable count-min sketch"),
        ({"split_by_others": as_vector(2, 1)}, "no usable keys split by others"),
    ],
)
def test_a_state_that_cannot_be_is_refused_and_leaves_no_trace(change, message):
    partitioner = make("dalton", 4)
    partitioner.route(np.array([5, 5, 6, 6, 6], np.uint64))
    before = partitioner.save()
    saved = unpack(before, "dalton", 1)
    assert saved.vectors["keys"].tolist() == [5, 6]
    with pytest.raises(ValueError, match=message):
        partitioner.restore(pack(PartitionerState("dalton", 1, 4, saved.counters, saved.vectors | change)))
    assert partitioner.save() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"load": -1}, "the saved load of dalton is -1"),
        ({"draws": 1.5}, "the saved draws of dalton is 1.5"),
        ({"seen": None}, "the saved seen of dalton is None"),
        ({"local_load": 7}, "no usable counters"),
        ({"seen": 2**60}, "no usable counters"),
        ({"rehashed": None}, "the saved rehashed of dalton is None"),
        ({"exact": 0}, "no statistics of kind exact"),
    ],
)
def test_counters_that_cannot_be_are_refused(change, message):
    partitioner = make("dalton", 4, statistics="exact")
    before = partitioner.save()
    saved = unpack(before, "dalton", 1)
    with pytest.raises(ValueError, match=message):
        partitioner.restore(pack(PartitionerState("dalton", 1, 4, saved.counters | change, saved.vectors)))
    assert partitioner.save() == before


def test_too_many_hot_keys_are_refused():
    everything = make("dalton", 2, keys="all")
    everything.route(np.arange(5, dtype=np.uint64))
    with pytest.raises(ValueError, match="no usable status"):
        make("dalton", 2).restore(everything.save())
