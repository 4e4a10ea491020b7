import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_jobs.benchmark import replaying
from millrace_jobs.benchmark.contenders import Contender, Setting, parse_contender
from millrace_jobs.benchmark.replaying import replay
from millrace_jobs.benchmark.slides import Slides
from millrace_jobs.partitioners.base import BatchPartitioner


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
        self.calls.append(("merge", len(others)))

    def resize(self, workers):
        raise AssertionError


class BatchRecorder(Recorder):
    def accumulate(self, keys):
        self.calls.append(("accumulate", keys.tolist()))

    def cut(self):
        waiting = sum(len(call[1]) for call in self.calls if call[0] == "accumulate")
        self.calls = [call for call in self.calls if call[0] != "accumulate"] + [("cut", waiting)]
        return np.full(waiting, self._place, np.int32)


def run(replicas, numbers, edges, *, per_window=1, cooperative=False, states=False):
    slides = Slides(np.array(numbers), np.array(edges), 0, 0)
    hashes = np.arange(edges[-1], dtype=np.uint64)
    return list(replay(replicas, hashes, slides, slides_per_window=per_window, cooperative=cooperative, states=states))


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


def test_replicas_that_learn_together_exchange_states_after_they_advanced():
    replicas = [Recorder(), Recorder()]
    run(replicas, [0], [0, 2], cooperative=True)
    assert [call[0] for call in replicas[0].calls] == ["route", "advance", "merge"]
    assert [call[0] for call in replicas[1].calls] == ["route", "advance", "restore"]
    alone = Recorder()
    run([alone], [0], [0, 2], cooperative=True)
    assert [call[0] for call in alone.calls] == ["route", "advance"]


def test_more_replicas_than_records():
    runs = run([Recorder(place) for place in range(4)], [0], [0, 1], states=True)
    assert runs[0].ids.tolist() == [3]
    assert runs[0].route_seconds >= 0


@pytest.mark.parametrize("label", ["hash", "shuffle", "pkg"])
def test_without_windows_it_is_route(label):
    contender: Contender = parse_contender(label, 1)
    setting = Setting(workers=5, replicas=1, seed=3, slides=1)
    hashes = np.arange(20, dtype=np.uint64)
    slides = Slides(np.array([0, 1]), np.array([0, 11, 20]), 0, 0)
    runs = replay(contender.replicas(setting), hashes, slides, slides_per_window=1, cooperative=False, states=False)
    placed = np.concatenate([run.ids for run in runs])
    assert placed.tolist() == contender.replicas(setting)[0].route(hashes).tolist()
