"""What a replica exports is its contract."""

import numpy as np

from millrace_jobs.dedicated.replica_metrics import CONTRACT, IntervalReport, ReplicaMetrics


def test_a_replica_exports_exactly_the_contract():
    metrics = ReplicaMetrics("trips", 3, 2.0)
    report = IntervalReport(
        records=4, size=90, epoch=7, place_seconds=0.1, busy_seconds=0.2, margin=0.3, lag=5, pack_records=64
    )
    metrics.wrote(report, np.array([1, 2, 3, 4], np.uint64), np.array([0, 0, 0, 1], np.int32), 2)
    metrics.paused(1.5)
    metrics.aborted()
    declared = {each.name.removesuffix("_total"): each for each in CONTRACT}
    families = {family.name: family for family in metrics.registry.collect()}
    assert families.keys() == declared.keys()
    for name, family in families.items():
        assert (family.type, family.documentation) == (declared[name].kind, declared[name].help)
        assert not [wrong for sample in family.samples for wrong in declared[name].violations(sample.labels)]
    labels = {"query": "trips", "replica": "3"}
    expected = {
        "records_total": 4,
        "bytes_total": 90,
        "batches_total": 1,
        "busy_seconds_total": 0.2,
        "paused_seconds_total": 1.5,
        "aborted_batches_total": 1,
        "place_seconds_sum": 0.1,
        "interval_seconds": 2,
        "release_margin_seconds": 0.3,
        "load_imbalance_ratio": 0.5,
        "key_split_ratio": 1,
        "lag_rows": 5,
        "plan_epoch": 7,
        "pack_records": 64,
    }
    found = {each: metrics.registry.get_sample_value(f"millrace_partitioner_{each}", labels) for each in expected}
    assert found == expected
