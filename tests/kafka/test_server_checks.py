"""Runs whose topics are missing or whose login is refused: they end before Spark has started."""

from __future__ import annotations

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.status import FailureClass
from millrace_api.model.streamquery import StreamQuery
from millrace_jobs.run import platform
from millrace_jobs.run.failures import class_of
from millrace_jobs.run.job import Job

from .late_queries import document

pytestmark = pytest.mark.kafka


@pytest.fixture
def run(broker, topic, tmp_path, monkeypatch):
    """Return ``run(source, sink)``, which runs a query up to Spark's session, and says how it failed."""

    def session(*_, **__):
        pytest.fail("Spark's session was asked for")

    monkeypatch.setattr(platform, "local_session", session)
    monkeypatch.setattr("millrace_jobs.run.opening.PATIENCE", 60.0)

    def failure(source=topic, sink=topic, kind="kafka"):
        spec = {kind: {"bootstrapServers": broker.bootstrap, "topic": sink}}
        sql = "SELECT key, count(*) AS n FROM events GROUP BY key"
        asked = document(broker.bootstrap, source, spec, tmp_path, "OnUpdate", sql=sql)
        with pytest.raises(MillraceError) as failed, Job(StreamQuery.model_validate(asked)) as job:
            job.run()
        assert not (tmp_path / "checkpoint").exists()
        return failed.value

    return failure


def test_a_missing_topic_of_a_source_is_found_before_spark_starts(run, broker):
    found = run(source="absent")
    assert str(found).startswith(f"spec.sources.events.kafka: Kafka at {broker.bootstrap} has no topic absent")
    assert class_of(found) is FailureClass.SOURCE_MISSING


@pytest.mark.parametrize(("kind", "option"), [("kafka", ""), ("table", " --config cleanup.policy=compact")])
def test_a_missing_topic_of_a_sink_is_found_before_spark_starts(run, broker, kind, option):
    found = run(sink="absent", kind=kind)
    said = f"spec.sink.{kind}.topic: Kafka at {broker.bootstrap} has no topic absent; create it: "
    assert str(found).startswith(said)
    assert str(found).endswith(f"--create --partitions 8{option}")
    assert class_of(found) is FailureClass.SINK
