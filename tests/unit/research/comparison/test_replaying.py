from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.partitioners.base import BatchPartitioner
from millrace_jobs.partitioners.placement_cost import MovedKeys, moved_keys
from millrace_research.comparison import replaying
from millrace_research.comparison.contenders import ComparisonSetting, Contender, parse_contender
from millrace_research.comparison.replaying import PlacedStream, key_codes, last_window, replay
from millrace_research.comparison.stream import Slides
from placements import placement_cost


class Recorder:
    """Places everything on worker ``place`` and remembers what it was asked."""

    workers = 4

    def __init__(self, place=0):
        self.calls = []
        self._place = place

    def route(self, keys):
        self.calls.append(("route", keys.tolist()))
        return np.full(len(keys), self._place, np.int32)

    def advance(self):
        self.calls.append(("advance",))

    def save(self):
        return bytes(len(self.calls))

    def restore(self, state):
        self.calls.append(("restore", len(state)))

    def merge(self, others):
        self.calls.append(("merge", *others))

    def resize(self, workers):
        raise AssertionError


@BatchPartitioner.register
class BatchRecorder(Recorder):
    def accumulate(self, keys):
        self.calls.append(("accumulate", keys.tolist()))

    def cut(self):
        waiting = sum(len(call[1]) for call in self.calls if call[0] == "accumulate")
        self.calls = [call for call in self.calls if call[0] != "accumulate"] + [("cut", waiting)]
        return np.full(waiting, self._place, np.int32)


def run(replicas, numbers, edges, *, per_window=1, copies=(), states=False):
    slides = Slides(np.array(numbers), np.array(edges), 0, 0)
    hashes = np.arange(edges[-1], dtype=np.uint64)
    return list(replay(replicas, hashes, slides, slides_per_window=per_window, copies=copies, states=states))


def test_each_slide_is_cut_into_contiguous_slices_one_per_replica():
    replicas = [Recorder(0), Recorder(1), Recorder(2)]
    runs = run(replicas, [0, 1], [0, 7, 9])
    assert [one.ids.tolist() for one in runs] == [[0, 0, 1, 1, 2, 2, 2], [1, 2]]
    assert replicas[0].calls == [("route", [0, 1]), ("advance",), ("advance",)]
    assert replicas[2].calls == [("route", [4, 5, 6]), ("advance",), ("route", [8]), ("advance",)]


def test_slices_come_in_blocks(monkeypatch):
    monkeypatch.setattr(replaying, "BLOCK", 2)
    one, batch = Recorder(), BatchRecorder()
    assert isinstance(batch, BatchPartitioner)
    assert not isinstance(one, BatchPartitioner)
    run([one], [0], [0, 5])
    assert one.calls == [("route", [0, 1]), ("route", [2, 3]), ("route", [4]), ("advance",)]
    (ran,) = run([batch], [0], [0, 5], states=True)
    assert batch.calls == [("cut", 5), ("advance",)]
    assert len(ran.ids) == 5
    assert (ran.peak_state_bytes, ran.state_bytes) == (3, 2)  # before the cut it holds three blocks


def advances(numbers, per_window):
    recorder = Recorder()
    run([recorder], numbers, list(range(len(numbers) + 1)), per_window=per_window)
    counts = []
    for call in recorder.calls:
        if call[0] == "route":
            counts.append(0)
        else:
            counts[-1] += 1
    return counts


def test_empty_slides_end_too():
    assert advances([0, 1, 4, 5], per_window=3) == [1, 3, 1, 1]


@given(st.integers(0, 10**15), st.integers(1, 50))
def test_long_gaps_are_short_but_windows_end_where_they_would(gap, per_window):
    count, last = advances([0, gap + 1], per_window)
    assert (count - gap - 1) % per_window == 0
    assert min(gap + 1, 2 * per_window) <= count < 3 * per_window + 1
    assert last == 1


def test_replicas_that_learn_together_merge_copies_of_the_others_after_they_advanced():
    replicas, copies = [Recorder() for _ in range(3)], [Recorder() for _ in range(3)]
    run(replicas, [0], [0, 3], copies=copies)
    for place, (replica, copy) in enumerate(zip(replicas, copies, strict=True)):
        assert replica.calls == [
            ("route", [place]),
            ("advance",),
            ("merge", *(other for other in copies if other is not copy)),
        ]
        assert copy.calls == [("restore", 2)]  # what there was before any merge
    alone = Recorder()
    run([alone], [0], [0, 2], copies=[Recorder()])
    assert [call[0] for call in alone.calls] == ["route", "advance"]


def test_dalton_keeps_its_own_window_and_adopts_what_all_have_learned():
    contender = parse_contender("dalton:slides=3:fragmentation=window", 1)
    setting = ComparisonSetting(workers=20, replicas=3, seed=1, slides=3)
    replicas = contender.replicas(setting)
    stream = (np.random.default_rng(2).zipf(1.4, 5 * 900) % 200).astype(np.uint64)
    slides = Slides(np.arange(5), np.arange(6) * 900, 0, 0)
    runs = replay(replicas, stream, slides, slides_per_window=3, copies=contender.replicas(setting), states=False)
    placed = np.concatenate([run.ids for run in runs]).reshape(5, 3, 300)[3:]  # by slide and replica, in the window
    keys = stream.reshape(5, 3, 300)[3:]
    hot = np.sort(replicas[0].hot)
    assert len(hot) > 1
    for place, replica in enumerate(replicas):
        assert replica.loads.tolist() == np.bincount(placed[:, place].ravel(), minlength=20).tolist()
        own = [len(np.unique(placed[:, place][keys[:, place] == key])) for key in hot]
        assert replica.spread(hot).tolist() == own
        assert np.sort(replica.hot).tolist() == hot.tolist()
        assert replica.values(hot) == pytest.approx(replicas[0].values(hot), abs=1e-12)


def test_the_last_window_is_dealt_as_it_was_placed():
    slides = Slides(np.array([0, 4, 6]), np.array([0, 3, 7, 9]), 0, 0)
    hashes = np.arange(9, dtype=np.uint64)

    def dealt(per_window):
        parts = last_window(hashes, slides, slides_per_window=per_window, replicas=2)
        return [part.tolist() for part in parts]

    assert dealt(1) == dealt(2) == [[7], [8]]
    assert dealt(3) == [[3, 4, 7], [5, 6, 8]]
    assert dealt(7) == [[0, 3, 4, 7], [1, 2, 5, 6, 8]]


def test_a_stream_may_have_fewer_records_than_replicas():
    runs = run([Recorder(place) for place in range(4)], [0], [0, 1], states=True)
    assert runs[0].ids.tolist() == [3]
    assert runs[0].route_seconds >= 0


@pytest.mark.parametrize("label", ["hash", "shuffle", "pkg:slides=0"])
def test_without_windows_it_is_route(label):
    contender: Contender = parse_contender(label, 1)
    setting = ComparisonSetting(workers=5, replicas=1, seed=3, slides=1)
    hashes = np.arange(20, dtype=np.uint64)
    slides = Slides(np.array([0, 1]), np.array([0, 11, 20]), 0, 0)
    runs = replay(contender.replicas(setting), hashes, slides, slides_per_window=1, states=False)
    placed = np.concatenate([run.ids for run in runs])
    assert placed.tolist() == contender.replicas(setting)[0].route(hashes).tolist()


WORKERS = 4
records = st.lists(st.tuples(st.integers(0, 9), st.integers(0, WORKERS - 1)), min_size=1, max_size=60)


def placed(keys, ids):
    codes, distinct = key_codes(keys)
    return PlacedStream(ids, codes, distinct, WORKERS)


@given(records, st.lists(st.integers(0, 6), max_size=8), st.lists(st.integers(1, 5), min_size=9, max_size=9), st.data())
def test_every_window_is_as_if_counted_alone(rows, cuts, gaps, data):
    keys, ids = np.array(rows, np.int64).T
    keys, ids = keys.astype(np.uint64), ids.astype(np.int32)
    edges = np.unique([0, *(min(edge * 10 + 1, len(rows)) for edge in cuts), len(rows)])
    numbers = np.cumsum(gaps)[: len(edges) - 1]
    per_window = data.draw(st.integers(1, 7))
    found = list(placed(keys, ids).windows(Slides(numbers, edges, 0, 0), per_window))
    before = slice(0, 0)
    for (cost, moved), number, end in zip(found, numbers, edges[1:], strict=True):
        window = slice(edges[np.flatnonzero(numbers > number - per_window)[0]], end)
        assert cost == placement_cost(ids[window], keys[window], WORKERS)
        assert moved == moved_keys((ids[before], keys[before]), (ids[window], keys[window]))
        before = window


@given(records)
def test_the_total_is_one_window(rows):
    keys, ids = np.array(rows, np.int64).T
    keys, ids = keys.astype(np.uint64), ids.astype(np.int32)
    assert placed(keys, ids).total() == placement_cost(ids, keys, WORKERS)


def test_tumbling_windows_have_the_costs_worked_out_by_hand():
    keys = np.array([1, 1, 2, 3, 1, 1, 2, 4], np.uint64)
    ids = np.array([0, 1, 2, 3, 0, 0, 2, 3], np.int32)
    (first, nothing), (second, moved) = placed(keys, ids).windows(
        Slides(np.array([0, 1]), np.array([0, 4, 8]), 0, 0), 1
    )
    assert (first.aggregation_cost, first.distinct_keys, first.load_imbalance) == (4, 3, 0.0)
    assert (second.aggregation_cost, second.distinct_keys, second.load_imbalance) == (3, 3, 1.0)
    assert nothing == MovedKeys(0, 0)
    assert moved == MovedKeys(2, 1)  # 1 has left worker 1, 2 has stayed


def test_slides_far_apart_are_skipped_without_a_loop():
    keys, ids = np.arange(3, dtype=np.uint64), np.zeros(3, np.int32)
    slides = Slides(np.array([0, 10**9, 10**9 + 1]), np.arange(4), 0, 0)
    costs = [cost.rows for cost, _ in placed(keys, ids).windows(slides, 100_000)]
    assert costs == [1, 1, 2]


def test_keys_are_numbered_as_they_come():
    codes, keys = key_codes(np.array([7, 2**64 - 1, 7], np.uint64))
    assert (codes.tolist(), keys) == ([0, 1, 0], 2)
    assert codes.dtype == np.int64


@pytest.mark.parametrize("per_window", [1, 2])
def test_one_slide_is_one_window(per_window):
    (only,) = placed(np.arange(3, dtype=np.uint64), np.zeros(3, np.int32)).windows(
        Slides(np.array([5]), np.array([0, 3]), 0, 0), per_window
    )
    assert only[0].rows == 3
