"""Every kind of sink states in its model what the checks of a query have to know of it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from millrace_api.model.externals import External, ExternalKind
from millrace_api.model.sink_kind import SinkKind
from millrace_api.model.sinks import OutputSinkSpec, SinkSpec
from millrace_jobs.lineage.datasets import _written

DATABASE = {"host": "db", "database": "sales", "table": "out", "key": ["city"], "user": "millrace"}
TOPIC = {"bootstrapServers": "kafka:9092", "topic": "out"}
SINKS: dict[str, dict[str, Any]] = {
    "files": {"path": "out"},
    "console": {},
    "kafka": TOPIC,
    "table": TOPIC,
    "postgres": DATABASE,
    "mysql": DATABASE,
    "delta": {"path": "out"},
    "iceberg": {"catalog": {"file": "catalog.db"}, "table": "a.out", "location": "out"},
    "python": {"write": "alerts:write"},
}
KINDS = list(OutputSinkSpec.model_fields)


def model_of(kind: str) -> type[SinkKind]:
    return next(each for each in get_args(OutputSinkSpec.model_fields[kind].annotation) if each is not type(None))


def sink(kind: str) -> SinkSpec:
    assert kind in SINKS, f"add an example of {kind} to SINKS in this file"
    return SinkSpec.model_validate({kind: SINKS[kind]})


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_says_which_other_sinks_have_its_place(kind: str):
    says = issubclass(model_of(kind), SinkKind) and model_of(kind).is_place_of is not SinkKind.is_place_of
    assert says, f"{model_of(kind).__name__} has to be a SinkKind with an is_place_of of its own"
    assert [other for other in KINDS if sink(kind).is_place_of(sink(other))] == (
        ["kafka", "table"] if kind in ("kafka", "table") else [kind]
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_with_a_folder_says_which_files_it_writes(kind: str):
    declared = (each for info in model_of(kind).model_fields.values() for each in info.metadata)
    places = (ExternalKind.DATA, ExternalKind.TABLES)
    if any(isinstance(each, External) and each.kind in places for each in declared):
        files = sink(kind).given.result_files
        assert files is not None, f"{model_of(kind).__name__} has a folder, and no result_files"
        assert files.field in SINKS[kind]
        assert files.place == "out"
        assert files.first_file.startswith("out/")


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in ("console", "python")])
def test_lineage_names_what_a_kind_writes(kind: str):
    assert list(_written(sink(kind))), f"add {kind} to _written in lineage/datasets.py"
