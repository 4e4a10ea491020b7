"""Queries built in Python are those of files: the same model, the same checks, and YAML that gives them back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import jsonschema
import pytest
import yaml
from hypothesis import given, settings

import millrace
from examples.top_values import TopValues
from millrace_api.model.streamquery import StreamQuery as QueryModel
from millrace_api.validation.checking import check_query
from millrace_api.validation.loading import load_queries
from unit.api.documents import MINIMAL
from unit.api.random_documents import documents

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.yaml"))
SCHEMA = json.loads((ROOT / "crds/streamquery.schema.json").read_text())
SOURCE = {"files": {"path": "data/*.csv", "format": "csv"}, "schema": "cell STRING, fare DOUBLE, at TIMESTAMP"}
SQL = "SELECT cell, count(*) AS n FROM trips GROUP BY cell"


def built(**spec):
    return millrace.StreamQuery("trips-by-cell", **{"sources": {"trips": SOURCE}, "query": SQL} | spec)


def written(folder: Path, text: str) -> Path:
    path = folder / "query.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_query_of_python_is_the_model_of_the_file(tmp_path):
    (model,) = load_queries(written(tmp_path, MINIMAL))
    assert built().model == model
    assert built() == millrace.load(tmp_path / "query.yaml")


def test_names_may_be_in_snake_case_at_every_level():
    source = SOURCE | {"files": {"path": "in", "format": "csv", "max_files_per_batch": 3}}
    one = built(
        sources={"trips": source},
        batch_interval="5s",
        executors={"initial": 2, "pod_template": {"spec": {"nodeSelector": {"snake_case": "stays"}}}},
    )
    assert one.spec.sources["trips"].files.max_files_per_batch == 3
    document = yaml.safe_load(one.to_yaml())["spec"]
    assert document["batchInterval"] == "5s"
    assert document["sources"]["trips"]["files"]["maxFilesPerBatch"] == 3
    assert document["executors"]["podTemplate"] == {"spec": {"nodeSelector": {"snake_case": "stays"}}}


def test_keys_of_free_mappings_are_kept():
    options = {"column": "cell", "k": 3}
    query = built(query={"python": {"aggregator": TopValues, "group_by": ["cell"], "options": options}})
    python = query.spec.query.python
    assert (python.aggregator, python.group_by, python.options) == ("examples.top_values:TopValues", ("cell",), options)


def test_an_aggregator_that_no_other_process_can_import_is_refused():
    class Local:
        pass

    with pytest.raises(millrace.MillraceError, match="is defined inside another class or function, where Spark's"):
        built(query={"python": {"aggregator": Local}})


def test_all_problems_of_a_query_are_raised_with_their_fields():
    with pytest.raises(millrace.MillraceError) as caught:
        built(batch_interval="soon", partitioner={"algorithm": "pgk"})
    assert [problem.field for problem in caught.value.problems] == ["spec.batchInterval", "spec.partitioner.algorithm"]
    with pytest.raises(millrace.MillraceError, match='there is no field "batchIntervall" here'):
        built(batchIntervall="5s")
    with pytest.raises(millrace.MillraceError, match="fares"):
        built(query="SELECT cell, sum(fares) AS f FROM trips GROUP BY cell")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"partitioner": "pkg"}, 'spec.partitioner: "pkg" is not a dict; pass a dict, such as {"algorithm": "pkg"}'),
        ({"query": 1}, "spec.query: 1 is not a dict; pass SQL as a text, or a dict with sql or python"),
        ({"sink": "out"}, 'spec.sink: "out" is not a dict; pass a dict of its fields'),
        (
            {"partitioner": {"algorithm": TopValues}},
            'spec.partitioner.algorithm: "examples.top_values:TopValues" is a class; '
            'write {"algorithm": "python", "parameters": {"class": TopValues}}',
        ),
        ({"sources": None, "source": {"trips": SOURCE}}, 'spec.source: there is no field "source" here; did you mean "sources"?'),
    ],
)  # fmt: skip
def test_problems_say_what_to_write_in_python(spec, problem):
    with pytest.raises(millrace.MillraceError) as caught:
        built(**spec)
    assert problem in str(caught.value).splitlines()


@settings(max_examples=100)
@given(documents)
def test_a_query_survives_its_yaml(document):
    model = QueryModel.model_validate(document, by_name=False)
    if check_query(model):
        return  # not a query that can be built
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder), yaml.safe_dump(document, allow_unicode=True))
        try:
            query = millrace.load(file)
        except millrace.MillraceError:  # such as a login that belongs into a Connection
            return
        again = millrace.load(written(Path(folder), query.to_yaml()))
        assert again == query
        assert again.to_yaml() == query.to_yaml()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_survives_and_is_valid_for_a_cluster(path, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    query = millrace.load(path)
    jsonschema.validate(list(yaml.safe_load_all(query.to_yaml()))[-1], SCHEMA)
    query.to_yaml(tmp_path / "query.yaml")
    assert millrace.load(tmp_path / "query.yaml") == query
    assert query.replace(batch_interval="17s").replace(batch_interval=str(query.spec.batch_interval)) == query


def test_texts_that_look_like_numbers_are_quoted_for_every_reader_of_yaml():
    text = built(metadata={"labels": {"release": "1e3", "build": "007", "mode": "on"}}).to_yaml()
    assert "release: '1e3'" in text
    assert "build: '007'" in text
    assert "mode: 'on'" in text


def test_tabs_in_sql_stay():
    sql = "SELECT split(cell, '\t') AS parts FROM e"
    assert millrace.StreamQuery("t", sources={"e": SOURCE}, query=sql).spec.query.sql == sql


def test_sql_of_several_lines_is_a_block_without_the_indentation_of_the_program():
    sql = """
        SELECT cell, count(*) AS n
        FROM trips
          GROUP BY cell
    """
    block = "    sql: |-\n      SELECT cell, count(*) AS n\n      FROM trips\n        GROUP BY cell\n"
    for query in (built(query=sql), built().replace(query=sql)):
        assert block in query.to_yaml()


CONNECTION = """\
apiVersion: millrace.io/v1alpha1
kind: Connection
metadata: {name: main}
spec: {kafka: {bootstrapServers: "kafka:9092"}}
"""


def test_a_connection_stays_a_reference_in_the_yaml(tmp_path):
    connections = tmp_path / "connections.yaml"
    connections.write_text(CONNECTION)
    sink = {"kafka": {"connection": "main", "topic": "trips"}}
    query = built(sink=sink, connections=connections)
    assert query.spec.sink.kafka.bootstrap_servers == "kafka:9092"
    assert yaml.safe_load(query.to_yaml())["spec"]["sink"] == sink
    assert millrace.load(written(tmp_path, query.to_yaml()), connections=connections) == query
    assert query.replace(emit="OnUpdate", batch_interval="3s").spec.sink == query.spec.sink


def test_connections_of_the_same_file_come_with_the_query(tmp_path):
    text = built(sink={"kafka": {"bootstrapServers": "kafka:9092", "topic": "trips"}}).to_yaml()
    text = text.replace("bootstrapServers: kafka:9092", "connection: main")
    query = millrace.load(written(tmp_path, f"{CONNECTION}---\n{text}"))
    kinds = [document["kind"] for document in yaml.safe_load_all(query.to_yaml())]
    assert kinds == ["Connection", "StreamQuery"]
    assert millrace.load(written(tmp_path, query.to_yaml())) == query


def test_replacing_fields_leaves_the_original_as_it_was():
    query = built(batch_interval="5s")
    assert query.replace(batch_interval=None).spec.batch_interval == "2s"
    assert query.spec.batch_interval == "5s"
    stored = query.replace(name="stored", sink={"files": {"path": "out"}})
    assert (stored.name, stored.spec.sink.kind, query.name) == ("stored", "files", "trips-by-cell")
    assert stored.replace(name="trips-by-cell", sink=None) == query
    with pytest.raises(millrace.MillraceError):
        query.replace(emit="Sometimes")


def test_one_query_of_several_is_chosen_by_its_name(tmp_path):
    path = written(tmp_path, f"{MINIMAL}---\n{MINIMAL.replace('trips-by-cell', 'other')}")
    assert millrace.load(path, "other").name == "other"
    with pytest.raises(millrace.MillraceError, match='trips-by-cell, other; choose one with query="trips-by-cell"'):
        millrace.load(path)


def test_problems_of_a_file_have_their_lines(tmp_path):
    path = written(tmp_path, MINIMAL.replace("count(*)", "sum(fares)"))
    with pytest.raises(millrace.MillraceError, match=rf"{path}:10: spec.query.sql: "):
        millrace.load(path)


def test_a_query_shows_itself_in_a_line_and_in_a_notebook_as_yaml():
    assert repr(built()) == "<StreamQuery trips-by-cell: trips (files) to console, emit OnUpdate>"
    assert "SELECT cell" in built()._repr_html_()
    assert "<pre>" in built()._repr_html_()


def test_both_ends_of_a_run_are_not_asked_for_at_once():
    with pytest.raises(millrace.MillraceError, match="choose one"):
        built().start(once=True, available_now=True)


def test_a_notebook_shows_the_problems_of_a_query_and_no_traceback():
    with pytest.raises(millrace.MillraceError) as caught:
        built(batch_interval="soon", emit="Never")
    assert [line.partition(": ")[0] for line in caught.value._render_traceback_()] == ["MillraceError"] * 2
    assert "spec.batchInterval: " in "\n".join(caught.value._render_traceback_())


@pytest.mark.parametrize(
    "spec",
    [
        {"query": {"sql": "SELECT cell, own(fare) AS n FROM trips GROUP BY cell", "aggregates": {"own": {"python": "m:C"}}}},
        {"sink": {"python": {"write": "m:f"}}},
        {
            "sources": {"trips": SOURCE | {"watermark": {"column": "at", "delay": "1m"}}},
            "query": "SELECT window.start AS since, count(*) AS n FROM trips GROUP BY window(at, '1 minute')",
            "emit": "OnWindowClose",
            "additional_outputs": {"early": {"emit": "OnUpdate", "sink": {"python": {"write": "m:f"}}}},
        },
        {"partitioner": {"algorithm": "python", "parameters": {"class": "m:C"}}},
    ],
    ids=["aggregates", "sink", "output", "partitioner"],
)  # fmt: skip
def test_own_code_of_every_kind_is_checked_in_a_process_of_its_own(spec):
    assert built(**spec)._has_own_code
    assert not built()._has_own_code
