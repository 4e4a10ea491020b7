"""Sources with changes of rows, in Debezium's format or of a lakehouse's table: their columns, and those of their key."""

import pytest

from millrace_api.model.sources import SourceSpec

from .connection_documents import CONNECTION
from .documents import MINIMAL, changed, problems

KAFKA = "      kafka: {bootstrapServers: kafka:9092, topic: trips}"
TABLE = "      watermark: {column: _changed_at, delay: 0s}\n      table: {keys: [cell]}"
SOURCE = f"{KAFKA}\n      format: debezium\n{TABLE}"
DELTA = f"      delta: {{path: lake/cells}}\n{TABLE}"
ICEBERG = f"      iceberg: {{catalog: {{file: lake.db}}, table: a.cells}}\n{TABLE}"


def said(tmp_path, old="", new="", source=SOURCE, beside=""):
    text = changed(MINIMAL, 7, source).replace(old, new)
    return [str(problem) for problem in problems(tmp_path, f"{text}---\n{beside}" if beside else text)]


def test_a_source_is_valid(tmp_path):
    assert said(tmp_path) == []
    assert said(tmp_path, source=DELTA) == said(tmp_path, source=ICEBERG) == []
    assert said(tmp_path, "path: lake/cells", "path: lake/cells, startFrom: Latest, maxFilesPerBatch: 3", DELTA) == []
    in_avro = SOURCE.replace("bootstrapServers: kafka:9092", "connection: trips") + "\n      avro: {}"
    assert said(tmp_path, source=f"{in_avro}", beside=CONNECTION) == []
    assert said(tmp_path, "topic: trips", "topic: trips, includeMetadata: true") == []


@pytest.mark.parametrize("source", [SOURCE, DELTA, ICEBERG])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("keys: [cell]", "keys: [_changed_at]", '"_changed_at" is not a column of the rows'),
        ("keys: [cell]", "keys: [town]", 'column "town"'),
        ("schema: cell STRING", "schema: _CHANGED_AT STRING, cell STRING", 'column "_changed_at" is defined twice'),
    ],
)
def test_a_key_or_time_that_is_no_column_of_the_rows_is_refused(tmp_path, old, new, message, source):
    found = said(tmp_path, old, new, source)
    assert len(found) == 1
    assert message in found[0]


def test_rows_have_the_time_of_their_change():
    spec = {
        "kafka": {"bootstrapServers": "kafka:9092", "topic": "trips", "includeMetadata": True},
        "format": "debezium",
        "schema": "id INT",
        "watermark": {"column": "_changed_at", "delay": "0s"},
        "table": {"keys": ["id"]},
    }
    text = SourceSpec.model_validate(spec).schema_text
    assert text is not None
    assert text.startswith("id INT, _changed_at TIMESTAMP, _key BINARY, ")


def test_rows_of_a_delta_table_have_the_time_of_their_commit_unless_they_are_a_stream():
    spec = {"delta": {"path": "lake"}, "schema": "id INT"}
    assert SourceSpec.model_validate(spec).schema_text == "id INT"
    spec |= {"watermark": {"column": "_changed_at", "delay": "0s"}, "table": {"keys": ["id"]}}
    assert SourceSpec.model_validate(spec).schema_text == "id INT, _changed_at TIMESTAMP"
    spec = {"delta": {"path": "lake"}, "schema": "id INT", "table": {"keys": ["id"], "static": True}}
    assert SourceSpec.model_validate(spec).schema_text == "id INT"
