"""Every cross-field rule with a document that breaks it: the exact sentence, and its line."""

import pytest

from .broken import BROKEN, KAFKA
from .connection_documents import CONNECTION
from .documents import MINIMAL, PYTHON, changed, problems


@pytest.mark.parametrize(("text", "line", "replacement", "expected"), BROKEN)
def test_a_broken_rule_is_one_sentence_with_its_line(tmp_path, text, line, replacement, expected):
    assert problems(tmp_path, changed(text, line, replacement)) == [expected]


def test_a_query_does_not_stop_at_the_earliest_offsets(tmp_path):
    assert problems(tmp_path, changed(MINIMAL, 7, f"{KAFKA}, endingOffsets: Earliest}}")) == [
        '7: spec.sources.trips.kafka.endingOffsets: "Earliest" is not allowed here; write Latest'
    ]


@pytest.mark.parametrize("text", [MINIMAL, PYTHON])
def test_the_documents_themselves_are_sound(tmp_path, text):
    assert problems(tmp_path, text) == []


def test_messages_that_name_their_schema_need_columns(tmp_path):
    registry = "      kafka: {connection: trips, topic: trips}\n      format: avro\n      avro: {}"
    text = f"{changed(MINIMAL, 7, registry)}---\n{CONNECTION}"
    assert problems(tmp_path, text) == []
    assert problems(tmp_path, text.replace("      schema: cell STRING, fare DOUBLE, at TIMESTAMP\n", "")) == [
        "6: spec.sources.trips: schema is missing; "
        "write the columns and their types, such as schema: city STRING, fare DOUBLE, at TIMESTAMP"
    ]


def test_tasks_do_not_write_values_with_a_schema_of_a_registry(tmp_path):
    sink = (
        "  sink: {kafka: {bootstrapServers: kafka:9092, topic: out, format: avro, schemas: {}, transaction: Partition}}"
    )
    assert (
        "11: spec.sink.kafka.transaction: values with a schema of a registry are written by the driver, in one "
        "transaction per batch (got transaction: Partition); write transaction: Batch, or leave schemas out"
    ) in problems(tmp_path, changed(MINIMAL, 11, sink))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("transaction: Auto", '"Auto" is not one of Batch, Partition; write one of these'),
        ("transaction: Partition, history: {topic: old, retention: 1h}", "the driver writes earlier versions, in the "
         "transaction of their batch (got transaction: Partition); write transaction: Batch, or leave history out"),
    ],
)  # fmt: skip
def test_tasks_write_a_table_where_that_is_asked_for_and_no_history(tmp_path, more, said):
    sink = f"  sink: {{table: {{bootstrapServers: kafka:9092, topic: out, {more}}}}}"
    assert f"11: spec.sink.table.transaction: {said}" in problems(tmp_path, changed(MINIMAL, 11, sink))
