"""FLOW.yaml, a data flow with its costs and its current tasks and batches; and the rates of its sources."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError

from millrace_api.errors import MillraceError, Problem, quote, suggest
from millrace_api.model.base import Model, problem
from millrace_api.model.values import Count, Positive, text
from millrace_api.validation.pydantic_errors import Location, dotted, explain, field_location, primary_errors
from millrace_api.validation.yaml_nodes import Document, read_documents
from millrace_operator.capacity.flow import Flow, FlowError, FlowOperator, Mistake, Sizing, StreamConnection, Workload
from millrace_operator.capacity.report import rate_of
from millrace_operator.capacity.throughput import throughput

NANOSECONDS = 1e9
MEGABIT = 1e6


def _connection(value: Any) -> Any:
    if value not in list(StreamConnection):
        raise problem(f"{quote(value)} is not a connection", f"write one of {', '.join(StreamConnection)}")
    return value


_OperatorName = Annotated[
    str,
    *text(
        "[A-Za-z][A-Za-z0-9_.-]*",
        63,
        "a name for an operator",
        "write at most 63 letters, digits, '_', '.' and '-', a letter first",
    ),
]
_Amount = Annotated[float, Field(strict=True, ge=0)]


class OperatorFields(Model):
    """The fields of an operator in FLOW.yaml; see ``FlowOperator``."""

    inputs: dict[_OperatorName, Annotated[StreamConnection, BeforeValidator(_connection)]] = Field(
        default={}, description="Producers, and how each is connected."
    )
    fetch_nanoseconds: _Amount = Field(default=0.0, description="To take one batch from the input queue.")
    cpu_nanoseconds: _Amount = Field(description="To process one record.", examples=[3500])
    emit_nanoseconds: _Amount = Field(default=0.0, description="To put one batch into an output queue.")
    selectivity: _Amount = Field(default=1.0, description="Output records per input record.")
    record_bytes: _Amount = Field(default=0.0, description="Mean size of an output record.")
    tasks: Count = Field(default=1, description="Degree of parallelism.")
    batch: Count = Field(default=1, description="Records of an output batch.")

    def operator(self, name: str) -> FlowOperator:
        """Return the operator with its costs in seconds."""
        return FlowOperator(
            name=name,
            inputs=self.inputs,
            fetch_seconds=self.fetch_nanoseconds / NANOSECONDS,
            cpu_seconds=self.cpu_nanoseconds / NANOSECONDS,
            emit_seconds=self.emit_nanoseconds / NANOSECONDS,
            selectivity=self.selectivity,
            record_bytes=self.record_bytes,
        )


class FlowFields(Model):
    """The fields of FLOW.yaml."""

    task_megabits_per_second: Positive | None = Field(
        default=None, description="What a task can receive, and also what it can send; default: no limit."
    )
    operators: dict[_OperatorName, OperatorFields] = Field(min_length=1, description="By name.")


@dataclass(frozen=True)
class FlowFile:
    """The content of a flow file: a flow and its current configuration."""

    document: Document
    flow: Flow
    configuration: dict[str, Sizing]

    @property
    def path(self) -> str:
        """Path of the file, as given by the user."""
        return self.document.file

    def throughput(self, rates: Workload) -> dict[str, float]:
        """Return the records per second that each operator processes of ``rates`` (Algorithm 2)."""
        return throughput(self.flow, self.configuration, rates)

    def problem(self, operator: str, message: str, hint: str) -> Problem:
        """Return a problem of an operator, with its line in the file."""
        return _at(self.document, ("operators", operator), message, hint)


def read_flow(path: Path, *, batching: bool = True) -> FlowFile:
    """Read the flow in a file; without ``batching``, all batches have one record.

    Raises:
        MillraceError: with all mistakes in values and names, or else with all mistakes in the connections of operators.
    """
    documents, problems = read_documents(path)
    if len(documents) > 1:
        second = documents[1].node.start_mark.line + 1
        problems.append(Problem("a flow is one document", "move the others to files of their own", str(path), second))
    if problems:
        raise MillraceError(*problems)
    document = documents[0]
    if isinstance(document.value, dict) and document.value.get("kind") == "StreamQuery":
        hint = "plan a running query with `millrace model`, or write its flow and costs as docs/capacity.md says"
        raise MillraceError(Problem("is a StreamQuery, and a model is of a flow with costs", hint, str(path), 1))
    try:
        fields = FlowFields.model_validate(document.value, by_name=False)
        operators = [operator.operator(name) for name, operator in fields.operators.items()]
        megabits = fields.task_megabits_per_second
        flow = Flow(operators, None if megabits is None else megabits * MEGABIT)
    except ValidationError as error:
        raise MillraceError(
            *_in_order(
                _at(document, field_location(each), *explain(FlowFields, each)) for each in primary_errors(error)
            )
        ) from None
    except FlowError as error:
        raise MillraceError(*_in_order(_mistake(document, each) for each in error.mistakes)) from None
    sizes = {
        name: Sizing(operator.tasks, operator.batch if batching else 1) for name, operator in fields.operators.items()
    }
    return FlowFile(document, flow, sizes)


_WRITTEN = {
    "fetch_seconds": "fetchNanoseconds",
    "emit_seconds": "emitNanoseconds",
    "record_bytes": "recordBytes",
}


def _mistake(document: Document, mistake: Mistake) -> Problem:
    path = [_WRITTEN.get(step, step) for step in mistake.path]
    return _at(document, ("operators", mistake.operator, *path), mistake.message, mistake.hint)


def _at(document: Document, location: Location, message: str, hint: str) -> Problem:
    return Problem(message, hint, document.file, document.line(location), dotted(location))


def _in_order(problems: Iterable[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: problem.line or 0)


def workload(file: FlowFile, rates: Sequence[str]) -> dict[str, float]:
    """Return the rate of every source from one number for all of them, or ``name=number`` for each.

    Raises:
        MillraceError: if a rate is not a number or below 0, or if a source is unknown, given twice or left out.
    """
    sources = file.flow.sources
    if len(rates) == 1 and "=" not in rates[0]:
        return dict.fromkeys(sources, rate_of(rates[0]))
    given: dict[str, float] = {}
    for option in rates:
        name, equals, number = option.rpartition("=")
        if not equals:
            hint = f"write --rate {sources[0]}={option}, or one rate for all sources"
            raise _error(f'"{option}" names no source', hint)
        if name not in sources:
            raise _error(f'"{name}" is not a source of {file.path}', suggest(name, sources))
        if name in given:
            raise _error(f'the rate of "{name}" is given twice', "keep one of them")
        given[name] = rate_of(number)
    missing = [name for name in sources if name not in given]
    if missing:
        raise _error(f"{', '.join(missing)} of {file.path} got no rate", f"add --rate {missing[0]}=NUMBER")
    return given


def _error(message: str, hint: str) -> MillraceError:
    return MillraceError(Problem(message, hint, field="--rate"))
