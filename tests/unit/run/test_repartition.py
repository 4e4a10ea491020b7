"""What is raised where a repartition fails at its last steps; ``spark/test_repartition.py`` has the repartition itself."""

from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError

from builders import a_query
from millrace_api.errors import MillraceError
from millrace_jobs.process import jvm
from millrace_jobs.run import state as module
from millrace_jobs.run.state import repartition, replace_state
from spark_logs import Log, offset


def manager(repartition_state):
    return SimpleNamespace(_streamingCheckpointManager=SimpleNamespace(repartition=repartition_state))


@pytest.fixture
def query(tmp_path):
    return a_query("spec", "checkpoint", value={"uri": (tmp_path / "checkpoint").as_uri()})


@pytest.fixture
def checkpoint(query):
    """With a finished batch and state."""
    made = module.Checkpoint(module.checkpoint_root(query))
    made.open(query)
    log = Log(made)
    log.begin(0, offset(0))
    log.commit(0)
    (made.spark / "state").mkdir()
    yield made
    made.close()


@pytest.mark.parametrize("error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError(111)])
def test_a_jvm_that_dies_is_reported_and_not_asked_to_stop(checkpoint, query, monkeypatch, error):
    checkpoint.close()

    def die(*_):
        raise error

    def stop():
        raise error

    spark = manager(die)
    spark.stop = stop
    monkeypatch.setattr(jvm, "is_running", lambda: False)
    monkeypatch.setattr(module, "local_session", lambda *_, **__: spark)
    with pytest.raises(MillraceError, match="Spark's JVM has died"):
        repartition(query, checkpoint.state_partitions + 1)


@pytest.mark.parametrize("step", ["replace_spark", "note_state_partitions"])
def test_a_change_that_cannot_be_put_in_place_is_told(checkpoint, monkeypatch, step):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.Checkpoint, step, full)
    with pytest.raises(MillraceError) as raised:
        replace_state(manager(lambda *_: None), checkpoint, 5)
    assert str(raised.value) == (
        f"the changed state cannot be put in place in {checkpoint.root}: No space left on device; free some space there, "
        "and let this user write to it; then repeat this command: nothing is lost"
    )
