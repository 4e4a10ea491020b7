import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.base import LastBatch
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import next_batch

TOPIC = TargetTopic("results", Connection("kafka:9092"), "spec.sink.kafka.topic")


@pytest.mark.parametrize(
    ("begun", "committed", "written", "expected"),
    [
        (None, None, None, 0),
        (None, None, 0, 0),
        (0, None, 0, 0),  # batch 0 is to be written
        (0, None, 1, 1),  # it has been, before the crash
        (7, 6, 7, 7),
        (7, 6, 8, 8),
        (7, 7, 8, 8),
        (7, 7, None, 8),  # the offset has expired, and no batch is in doubt
        (7, 7, 3, 8),  # the earlier batches went elsewhere
    ],
)
def test_a_batch_is_written_unless_its_number_is_in_the_topic(begun, committed, written, expected):
    assert next_batch(written, LastBatch(begun, committed), TOPIC) == expected


@pytest.mark.parametrize(
    ("begun", "committed", "written", "expected"),
    [
        (100, 99, None, 100),  # batch 100 was meant for another topic
        (100, 99, 7, 100),  # this one was there some time before
        (100, 99, 100, 100),
        (100, 99, 101, 101),  # it was this one that batch 100 was written to, and another one in between
        (99, 99, None, 100),
        (0, None, None, 0),
    ],
)
def test_a_topic_that_is_new_gets_what_comes_next(begun, committed, written, expected):
    assert next_batch(written, LastBatch(begun, committed, elsewhere=True), TOPIC) == expected


def test_a_new_topic_too_may_know_of_more_than_the_checkpoint():
    with pytest.raises(MillraceError, match="has results up to batch 101, but the checkpoint knows of no batch after"):
        next_batch(102, LastBatch(100, 99, elsewhere=True), TOPIC)


@pytest.mark.parametrize(
    ("begun", "committed", "written", "said"),
    [
        (7, 6, None, "batch 7 was begun and not finished, and the consumer group .* has lost its offset"),
        (0, None, None, "batch 0 was begun and not finished, and the consumer group .* has lost its offset"),
        (7, 6, 5, "batch 7 was begun and not finished, and the consumer group .* has only batches before 5"),
        (7, 6, 9, "has results up to batch 8, but the checkpoint knows of no batch after 7"),
        (7, 7, 9, "has results up to batch 8, but the checkpoint knows of no batch after 7"),
        (None, None, 1, "has results up to batch 0, but the checkpoint knows of no batch"),
    ],
)
def test_logs_that_do_not_belong_together_are_refused(begun, committed, written, said):
    with pytest.raises(MillraceError, match=said) as refused:
        next_batch(written, LastBatch(begun, committed), TOPIC)
    assert "topic results" in str(refused.value)
    assert "start over with another topic and another metadata.name (or spec.checkpoint.uri" in str(refused.value)
