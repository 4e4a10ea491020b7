"""Figures of the demo on a cluster."""

from bench.cluster.figures import steps
from bench.cluster.recorder import ClusterSample, RecordedBatch


def test_a_rise_of_the_load_is_noticed_after_a_gap_between_samples():
    samples = [ClusterSample(time, 1_000.0 if time < 30 else 4_000.0, 1, 1, 1, 1) for time in range(0, 61, 3)]
    batches = [RecordedBatch(time, number, 1, 1.2, 0, "pkg", 1, 8) for number, time in enumerate((32.0, 34.0))]
    _, high = steps(samples, batches, target=0.9, step=0.1, interval=2.0)
    assert high.breach == 2.0
