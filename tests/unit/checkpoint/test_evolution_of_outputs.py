"""Additional outputs of a query stay as they are while its checkpoint exists, but for their connection to Kafka."""

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.changes import CheckpointChange
from millrace_jobs.checkpoint.evolution import check_changes

from .changed_queries import a_query, changed

FINAL = {"emit": "OnWindowClose", "sink": {"table": {"bootstrapServers": "kafka:9092", "topic": "final"}}}
QUERY = a_query(additionalOutputs={"final": FINAL})


def test_the_connection_of_an_additional_output_may_change(log):
    moved = changed(FINAL, "sink", "table", "bootstrapServers", value="kafka-2:9092")
    assert check_changes(QUERY, a_query(additionalOutputs={"final": moved}), log) == ()


@pytest.mark.parametrize(
    "outputs",
    [
        None,
        {"last": FINAL},
        {"final": FINAL, "last": FINAL},
        {"final": changed(FINAL, "emit", value="OnWindowEnd")},
        {"final": changed(FINAL, "sink", "table", "topic", value="other")},
        {"final": changed(FINAL, "sink", value={"console": {}})},
    ],
)
def test_additional_outputs_stay_as_they_are(log, outputs):
    now = a_query(additionalOutputs=outputs)
    for before, after in ((QUERY, now), (now, QUERY)):
        with pytest.raises(MillraceError, match=CheckpointChange.EMIT.value):
            check_changes(before, after, log)
