"""The limit of a container's memory, in the files of both versions of control groups."""

from __future__ import annotations

import pytest

from millrace_operator.telemetry import metrics
from millrace_operator.telemetry.metrics import memory_limit


@pytest.mark.parametrize(
    ("contents", "limit"),
    [
        (["536870912\n"], 512 << 20),
        (["max\n"], None),
        ([None, "536870912\n"], 512 << 20),
        ([None, "9223372036854771712\n"], None),
        ([None, None], None),
    ],
)
def test_the_limit_is_read_from_either_version_of_control_groups(tmp_path, contents, limit):
    files = tuple(tmp_path / str(number) for number in range(len(contents)))
    for file, content in zip(files, contents, strict=True):
        if content is not None:
            file.write_text(content)
    assert memory_limit(files) == limit


@pytest.mark.parametrize("limit", [512 << 20, None])
def test_the_operator_exports_its_memory_limit(monkeypatch, limit):
    monkeypatch.setattr(metrics, "memory_limit", lambda: limit)
    registry = metrics.OperatorMetrics().registry
    assert registry.get_sample_value("millrace_operator_memory_limit_bytes") == limit
