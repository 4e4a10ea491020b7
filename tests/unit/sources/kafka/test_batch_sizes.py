"""How many records a Kafka source says are in a batch at most, by which it is cut into slices."""

import pyarrow as pa

from millrace_jobs.kafka.connection import Connection
from millrace_jobs.sources.formats.messages import MessageDecoder
from millrace_jobs.sources.kafka.offsets import Subscription
from millrace_jobs.sources.kafka.source import KafkaSource


class Decoder(MessageDecoder):
    schema = pa.schema([("value", pa.binary())])

    def __init__(self):
        """Decodes nothing."""


def test_a_batch_has_at_most_the_offsets_between_two_positions(tmp_path):
    source = KafkaSource("s", Connection("nowhere:9092"), Subscription(("t",)), Decoder(), tmp_path)
    start, end = {"t": {"0": 5, "1": 2}}, {"t": {"0": 9, "1": 2}}
    assert source.most_records(start, end) == 4
    assert [len(part) for piece in source.slices(start, end, 2) for part in piece.ranges] == [2, 2]
    assert source.most_records(end, end) == 0
