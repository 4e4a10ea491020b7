"""OpenLineage's events of one run, as JSON.

Each event is complete by itself, so one that is lost is made up for by the next. No event has a value of a record: of a
failure, it has the class and the field, and not the message.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from importlib.metadata import version
from typing import Any

from millrace_api.sql.schema_ddl import Column
from millrace_jobs.lineage.datasets import Dataset

Json = dict[str, Any]

_SPEC = "https://openlineage.io/spec"
_EVENT = f"{_SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
_FACETS = {
    "schema": "1-2-0/SchemaDatasetFacet",
    "symlinks": "1-0-1/SymlinksDatasetFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet",
    "inputStatistics": "1-0-0/InputStatisticsInputDatasetFacet",
    "outputStatistics": "1-0-2/OutputStatisticsOutputDatasetFacet",
    "jobType": "2-0-4/JobTypeJobFacet",
    "sql": "1-1-0/SQLJobFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet",
}
"""Version and name of each facet, by the key that it has in an event."""


class RunState(StrEnum):
    """What has become of a run."""

    START = "START"
    RUNNING = "RUNNING"
    COMPLETE = "COMPLETE"
    """The input has ended."""
    ABORT = "ABORT"
    """The run was asked to end: the query is suspended, deleted or changed, or its pod moves."""
    FAIL = "FAIL"


@dataclass(frozen=True)
class RunDescription:
    """What all events of a run have in common.

    Attributes:
        namespace: namespace of the job.
        name: name of the query.
        sql: the SQL of the query; None for a Python aggregator.
        engine: version of Spark.
    """

    namespace: str
    name: str
    sql: str | None
    engine: str
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def event(
        self,
        state: RunState,
        at: datetime,
        inputs: Iterable[Dataset],
        outputs: Iterable[Dataset],
        *,
        read: int | None = None,
        written: int | None = None,
        error: str | None = None,
        derived: Mapping[str, Sequence[tuple[Dataset, str]]] | None = None,
    ) -> Json:
        """Return an event.

        Args:
            state: what has become of the run.
            at: when, with a time zone.
            inputs, outputs: the datasets.
            read, written: records and results so far; None if they cannot be attributed to one dataset.
            error: class and field of a failure.
            derived: the columns of inputs that each result column is computed from; None if they are not known.
        """
        run: Json = {
            "processing_engine": _facet(
                "processing_engine", version=self.engine, name="spark", openlineageAdapterVersion=version("millrace")
            )
        }
        if error is not None:
            run["errorMessage"] = _facet("errorMessage", message=error, programmingLanguage="PYTHON")
        job: Json = {"jobType": _facet("jobType", processingType="STREAMING", integration="MILLRACE", jobType="QUERY")}
        if self.sql is not None:
            job["sql"] = _facet("sql", query=self.sql, dialect="spark")
        return {
            "eventTime": at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "eventType": state.value,
            "producer": _producer(),
            "schemaURL": _EVENT,
            "run": {"runId": self.run_id, "facets": run},
            "job": {"namespace": self.namespace, "name": self.name, "facets": job},
            "inputs": [_dataset(each) | _statistics("input", read) for each in inputs],
            "outputs": [_dataset(each, derived) | _statistics("output", written) for each in outputs],
        }


def _producer() -> str:
    return f"https://millrace.io/releases/{version('millrace')}"


def _facet(key: str, **content: Any) -> Json:
    release, name = _FACETS[key].split("/")
    url = f"{_SPEC}/facets/{release}/{name}.json#/$defs/{name}"
    return {"_producer": _producer(), "_schemaURL": url, **content}


def _dataset(dataset: Dataset, derived: Mapping[str, Sequence[tuple[Dataset, str]]] | None = None) -> Json:
    facets: Json = {}
    if dataset.columns:
        facets["schema"] = _facet("schema", fields=[_field(each) for each in dataset.columns])
        if derived:
            facets["columnLineage"] = _facet("columnLineage", fields=_derivations(derived))
    if dataset.alias is not None:
        namespace, name = dataset.alias
        facets["symlinks"] = _facet("symlinks", identifiers=[{"namespace": namespace, "name": name, "type": "TABLE"}])
    return {"namespace": dataset.namespace, "name": dataset.name, "facets": facets}


def _field(column: Column) -> Json:
    parts = {"fields": [_field(each) for each in column.parts]} if column.is_struct else {}
    return {"name": column.name, "type": column.type, **parts}


def _derivations(derived: Mapping[str, Sequence[tuple[Dataset, str]]]) -> Json:
    return {
        result: {
            "inputFields": [
                {"namespace": dataset.namespace, "name": dataset.name, "field": column} for dataset, column in columns
            ]
        }
        for result, columns in derived.items()
    }


def _statistics(side: str, rows: int | None) -> Json:
    if rows is None:
        return {}
    return {f"{side}Facets": {f"{side}Statistics": _facet(f"{side}Statistics", rowCount=rows)}}
