from millrace_api.errors import TransientError
from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sinks.base import ResultBatch
from millrace_jobs.sinks.kafka.topic import TargetTopic
from millrace_jobs.sinks.kafka.transactions import BatchTransactions

WRITER = BatchTransactions(TargetTopic("results", Connection("kafka:9092"), "spec.sink.kafka.topic"), "trips", "c1")


def test_a_batch_may_take_as_long_as_brokers_allow_by_default():
    assert WRITER._settings(None)["transaction.timeout.ms"] == 15 * 60 * 1000


def test_nobody_is_told_to_make_a_batch_smaller_whose_range_is_written_down():
    error = WRITER._fenced(ResultBatch(7, 1, 0), 901.3)
    assert isinstance(error, TransientError)
    assert str(error) == (
        "batch 7 took 901 s to be written to topic results, and Kafka has ended its transaction; find out why the "
        "brokers are slow: the batch will be written again, at the same size"
    )


def test_who_is_fenced_before_has_been_replaced():
    error = WRITER._fenced(ResultBatch(7, 1, 0), 130.0)
    assert not isinstance(error, TransientError)
    assert "another driver has taken over" in str(error)
