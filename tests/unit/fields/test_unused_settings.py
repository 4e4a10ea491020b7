"""Settings without an effect beside others: ``millrace validate`` notes them, and they make no difference indeed."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

import pytest
import yaml

from millrace_api.validation.connections import resolve
from millrace_api.validation.loading import read_query
from millrace_api.validation.unused_settings import unused_settings
from millrace_jobs.run.query_file import warnings_about

from .documents import BROKERS, COLUMNS, FILES, KAFKA, ON_CLUSTER, query, to_text
from .of_deployment import placements
from .of_kafka import messages, offsets
from .of_query import HERE, compiled_python
from .of_sources import NEXMARK, RATE, generated, records, records_or_failure
from .probe import ABSENT, Probe, written

COUNT = {"query": {"sql": "SELECT count(*) AS k FROM trips"}}
RAW = query({"kafka": KAFKA["kafka"], "format": "raw"}, **COUNT)
PARQUET = query({"files": {"path": "bad.parquet", "format": "parquet"}, "schema": "city STRING, n INT"}, **COUNT)
JSON = query(
    {"files": {"path": "cities.json", "format": "json"}, "schema": COLUMNS, "timestampFormat": "seconds"}, **COUNT
)
OWN = {"topic": "trips", "partition": 0, "startingOffset": 20, "endingOffset": 60}
CHOSEN = query(KAFKA | {"kafka": BROKERS | {"partitions": [OWN]}}, **COUNT)
PYTHON = query(FILES, query={"python": {"aggregator": f"{HERE}:Largest", "window": {"column": "seen", "size": "1h"}}})
PLACEMENT = "spec.partitioner.placement"
ADVISED = query(KAFKA, checkpoint={"claimName": "checkpoints"}, scaling={"mode": "Advise"})
DROP = {"policy": "Drop"}
PLACE = "spec.sources.*"


def closing(asked):
    """What closes the windows of an aggregator."""
    return compiled_python(asked).execution._closing_watermark(asked.spec)


UNUSED = [
    Probe(f"{PLACE}.corruptRecords", RATE, (ABSENT, DROP), generated),
    Probe(f"{PLACE}.corruptRecords", NEXMARK, (ABSENT, DROP), generated),
    Probe(f"{PLACE}.corruptRecords", RAW, (ABSENT, DROP), messages),
    Probe(f"{PLACE}.corruptRecords", PARQUET, (ABSENT, DROP), records_or_failure),
    Probe(f"{PLACE}.timestampFormat", RATE, ("iso", "seconds"), generated),
    Probe(f"{PLACE}.timestampFormat", RAW, ("iso", "seconds"), messages),
    Probe(f"{PLACE}.files.header", JSON, (ABSENT, False), records),
    Probe(f"{PLACE}.files.delimiter", JSON, (ABSENT, ";"), records),
    Probe(f"{PLACE}.kafka.startingOffsets", CHOSEN, (ABSENT, "Latest"), offsets),
    Probe(f"{PLACE}.kafka.startingTimestamp", CHOSEN, (ABSENT, "1970-01-01T00:00:50Z"), offsets),
    Probe(f"{PLACE}.kafka.endingOffsets", CHOSEN, (ABSENT, "Latest"), offsets),
    Probe(f"{PLACE}.watermark", PYTHON, (ABSENT, FILES["watermark"]), closing),
    Probe(PLACEMENT, query(FILES), ("Inline", "Auto"), placements),
    Probe(PLACEMENT, ADVISED, ("Inline", "Auto"), placements),
    Probe(PLACEMENT, query(KAFKA, partitioner={"algorithm": "native"}), ("Inline", "Auto"), placements),
    Probe(PLACEMENT, CHOSEN, ("Inline", "Auto"), placements),
]


def noted(probe, value):
    """The fields that are noted, as probes write them."""
    found = unused_settings(read_query(written(probe.base, probe.field, value)).spec)
    return [note.field.replace("sources.trips", "sources.*") for note in found]


@pytest.mark.parametrize("probe", UNUSED, ids=attrgetter("field"))
def test_a_setting_that_is_noted_makes_no_difference(probe):
    unset, given = probe.values
    assert noted(probe, unset) == []
    assert noted(probe, given) == [probe.field]
    (said,) = probe.failures()
    assert "make no difference" in said


USED = [
    Probe(f"{PLACE}.kafka.startingOffsets", written(CHOSEN, f"{PLACE}.kafka.partitions[].startingOffset", ABSENT),
          ("Earliest", "Latest"), offsets),
    Probe(f"{PLACE}.watermark", written(PYTHON, "spec.query.python.window.column", "at"),
          (ABSENT, FILES["watermark"]), closing),
    Probe(PLACEMENT, ON_CLUSTER, ("Inline", "Auto"), placements),
]  # fmt: skip


@pytest.mark.parametrize("probe", USED, ids=attrgetter("field"))
def test_a_setting_that_makes_a_difference_is_not_noted(probe):
    assert list(probe.failures()) == []
    assert [noted(probe, value) for value in probe.values] == [[], []]


def test_a_setting_of_spark_that_the_plan_replaces_is_noted_with_its_line(tmp_path):
    file = tmp_path / "query.yaml"
    file.write_text(to_text(written(ON_CLUSTER, "spec.sparkConf", {"spark.sql.shuffle.partitions": "7"})))
    (note,) = warnings_about(file)
    assert str(note).startswith(f"{file}:")
    assert "the number of tasks follows the plan" in note.message


ROOT = Path(__file__).parents[3]
PAGES = [
    path
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "\nkind: StreamQuery\n" in path.read_text()
]


WHOLE = re.compile(
    r"^apiVersion: millrace.io/v1alpha1\nkind: StreamQuery\n.*?(?=^(?:```|YAML|---))", re.MULTILINE | re.DOTALL
)


def queries(page):
    """The whole queries on a page, in blocks of YAML or in a command."""
    return [yaml.safe_load(text.replace("DIGEST", "a" * 64)) for text in WHOLE.findall(page.read_text())]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_no_query_in_the_docs_has_a_setting_without_an_effect(page):
    notes = [unused_settings(read_query(resolve(document, {}).document).spec) for document in queries(page)]
    assert notes
    assert not any(notes)


@pytest.mark.parametrize("file", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_no_example_has_a_setting_without_an_effect(file):
    assert warnings_about(file) == []
