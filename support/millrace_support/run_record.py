"""The record of a run: what its pages show, event by event, as lines of JSON.

A run writes it (``millrace run --record``), and the operator's package makes one of the samples in Prometheus. Pages
show the ``RunHistory`` of these events, so a page made from a record is the page that the run had.

Each line is an object whose ``line`` names its kind. The first one is a ``RunLine`` with the version. A process that is
killed leaves half a line at most, at the end, which readers leave out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from millrace_api.errors import MillraceError, Problem

VERSION = 1
"""Version of the record. Fields may be added to it; another version is one that older readers would misread."""

MAX_MESSAGE_CHARACTERS = 2000
"""Characters of a message that are kept."""


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """The figures of one finished batch, or of several that were combined, as charts and findings use them.

    ``ended`` is in seconds since 1970. ``rate`` is the records read per second since the end of the batch before it.
    ``taken`` and ``waiting`` are in the sources' own units, such as files.
    ``median`` and ``p95`` are latencies of its records in seconds; None if their arrival is unknown. ``loads`` are the
    records of each worker, or the rows and matches of each task of a join; empty if nothing was placed. With many of
    them, each load is the largest of ``load_size`` neighbors. ``mean_load`` is the mean of all, and ``imbalance`` the
    largest over the mean, less 1; None without loads. ``batches`` is how many batches these figures are of.
    """

    batch: int
    ended: float
    seconds: float
    interval: float
    rows: int
    rate: float
    taken: int
    waiting: int
    median: float | None
    p95: float | None
    late: int
    rejected: int
    incomplete: int
    loads: tuple[int, ...]
    load_size: int
    mean_load: float
    imbalance: float | None
    algorithm: str
    batches: int = 1

    @property
    def utilization(self) -> float:
        """Processing time over batch interval: W."""
        return self.seconds / self.interval

    def combined_with(self, later: BatchFigures) -> BatchFigures:
        """Return the figures of this and a later batch as one: counts are added, and of the rest the worse is kept."""
        busier = self if (self.imbalance or 0.0) > (later.imbalance or 0.0) else later
        slower = self if self.utilization > later.utilization else later
        both = self.batches + later.batches
        return replace(
            later,
            seconds=slower.seconds,
            interval=slower.interval,
            rows=self.rows + later.rows,
            rate=(self.rate * self.batches + later.rate * later.batches) / both,
            taken=max(self.taken, later.taken),
            waiting=max(self.waiting, later.waiting),
            median=_worse(self.median, later.median),
            p95=_worse(self.p95, later.p95),
            late=self.late + later.late,
            rejected=self.rejected + later.rejected,
            incomplete=self.incomplete + later.incomplete,
            loads=busier.loads,
            load_size=busier.load_size,
            mean_load=busier.mean_load,
            imbalance=busier.imbalance,
            batches=both,
        )


def _worse(one: float | None, other: float | None) -> float | None:
    return max((each for each in (one, other) if each is not None), default=None)


@dataclass(frozen=True)
class BatchPlan:
    """The plan that a batch ran under."""

    epoch: int
    algorithm: str
    workers: int
    replicas: int


@dataclass(frozen=True)
class HottestKeys:
    """The counts of the hottest keys of a batch, largest first, of ``whole`` records or matches.

    ``keys`` is the number of distinct keys, and ``is_exact`` whether that is a count and not an estimate.
    """

    counts: tuple[int, ...]
    whole: int
    keys: int | None = None
    is_exact: bool = True


@dataclass(frozen=True)
class BatchDetails:
    """What the pages show of the newest batch only, beside its figures.

    ``steps`` has the seconds of Spark's steps by name, and ``work`` those in which tasks ran and results were written.
    ``task_seconds`` is the time that all tasks took to read, compute and keep state, added up; None if it is unknown.
    ``behind`` is the backlog of the partitions with the longest ones, by source. ``watermark_delay`` is how far the
    watermark was behind the newest event time, in seconds.
    """

    batch: int
    seconds: float
    interval: float
    work: float
    steps: Mapping[str, float] = field(default_factory=dict)
    plan: BatchPlan | None = None
    is_join: bool = False
    hot_records: HottestKeys | None = None
    hot_matches: HottestKeys | None = None
    state_rows: int | None = None
    state_bytes: int = 0
    state_partitions: int | None = None
    watermark: datetime | None = None
    watermark_delay: float | None = None
    taken_from: Mapping[str, int] = field(default_factory=dict)
    waiting_in: Mapping[str, int] = field(default_factory=dict)
    behind: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    task_seconds: float | None = None


@dataclass(frozen=True)
class AlgorithmPrediction:
    """The batch time in seconds that ``auto`` predicts under an algorithm.

    ``imbalance`` is the largest load of a ``bearer``, such as a task, over the mean, less 1; ``aggregation_cost`` is a
    number of ``parts``, such as partial results.
    """

    algorithm: str
    seconds: float
    imbalance: float
    aggregation_cost: float
    bearer: str
    parts: str


@dataclass(frozen=True)
class RunLine:
    """The beginning of a run, at ``time`` in seconds since 1970, as in all lines.

    ``query`` is the query as a document, ``millrace`` the version that runs it, and ``timed`` whether batches are to be
    in time. ``origin`` says where the figures are from, if it was not the run that wrote them: then ``step`` is the
    time between two samples in seconds, and ``newest`` that of the last sample. ``dropped`` batches were left out to
    keep the record within its size.
    """

    line: Literal["run"] = field(default="run", kw_only=True)
    time: float
    query: Mapping[str, Any]
    millrace: str
    timed: bool = True
    origin: str = ""
    version: int = VERSION
    step: float = 0.0
    newest: float | None = None
    dropped: int = 0


@dataclass(frozen=True)
class StepLine:
    """A step of a start that begins, such as ``starting Spark``."""

    line: Literal["step"] = field(default="step", kw_only=True)
    time: float
    text: str


@dataclass(frozen=True)
class StartedLine:
    """The end of a start: batches follow.

    ``plan_origin`` says where plans come from: empty if the run makes its own, else a sentence. ``chooses`` is whether
    ``auto`` chooses the algorithm, and ``output`` the place of the results.
    """

    line: Literal["started"] = field(default="started", kw_only=True)
    time: float
    chooses: bool = False
    plan_origin: str = ""
    output: str = ""


@dataclass(frozen=True)
class BatchLine:
    """A finished batch."""

    line: Literal["batch"] = field(default="batch", kw_only=True)
    time: float
    figures: BatchFigures
    details: BatchDetails


@dataclass(frozen=True)
class IdleLine:
    """A trigger that found nothing to do."""

    line: Literal["idle"] = field(default="idle", kw_only=True)
    time: float


@dataclass(frozen=True)
class MessageLine:
    """A message of the run."""

    line: Literal["message"] = field(default="message", kw_only=True)
    time: float
    text: str


@dataclass(frozen=True)
class DecisionLine:
    """A decision on the plan of the run after ``batch``, with its reason in ``text``; ``by`` says what decided."""

    line: Literal["decision"] = field(default="decision", kw_only=True)
    time: float
    batch: int | None
    text: str
    by: Literal["auto", "operator"]


@dataclass(frozen=True)
class PredictionsLine:
    """What ``auto`` predicts of the algorithms now."""

    line: Literal["predictions"] = field(default="predictions", kw_only=True)
    time: float
    predictions: tuple[AlgorithmPrediction, ...]


@dataclass(frozen=True)
class FailureLine:
    """A failure with its remedy: of the run as a whole if it ``is_final``, else one after which it starts again."""

    line: Literal["failure"] = field(default="failure", kw_only=True)
    time: float
    reason: str
    remedy: str
    is_final: bool


@dataclass(frozen=True)
class EndLine:
    """The end of a run: ``finished``, ``drained`` (stopped by a user or a signal) or ``failed``."""

    line: Literal["end"] = field(default="end", kw_only=True)
    time: float
    outcome: str


RecordLine = (
    RunLine
    | StepLine
    | StartedLine
    | BatchLine
    | IdleLine
    | MessageLine
    | DecisionLine
    | PredictionsLine
    | FailureLine
    | EndLine
)
"""An event of a run."""

_BEGINNING = b'{"line":"run",'

_LINE: TypeAdapter[RecordLine] = TypeAdapter(Annotated[RecordLine, Field(discriminator="line")])


def encode(line: RecordLine) -> bytes:
    """Return an event as a line of a record."""
    return _LINE.dump_json(line) + b"\n"


def read_record(path: Path) -> list[RecordLine]:
    """Return the events of a record; what a killed process left of its last line is left out.

    Raises:
        MillraceError: the file cannot be read, is no record, or one of another version.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        hint = "write the file that millrace run --record wrote"
        raise MillraceError(Problem(f"the record {path} cannot be read: {error.strerror}", hint)) from None
    lines = list(_lines(content, path))
    if not lines:
        raise MillraceError(Problem(f"{path} has no event of a run", "make a record with millrace run --record FILE"))
    return lines


def _lines(content: bytes, path: Path) -> Iterator[RecordLine]:
    whole = content.split(b"\n")
    for number, text in enumerate(whole[:-1], 1):
        if text.startswith(_BEGINNING):
            _require_version(text, path)
        elif number == 1:
            raise _not_a_record(path)
        try:
            line = _LINE.validate_json(text)
        except ValidationError as error:
            raise _unreadable(path, number, error) from None
        yield line


def _require_version(text: bytes, path: Path) -> None:
    try:
        first = json.loads(text)
    except ValueError:
        return  # the validation of the line says what is wrong
    if first.get("version") != VERSION:
        problem = f"{path} is a record of version {first.get('version')}, made by millrace {first.get('millrace')}"
        raise MillraceError(Problem(problem, f"this one reads version {VERSION}: use the millrace that made it"))


def _unreadable(path: Path, number: int, error: ValidationError) -> MillraceError:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(map(str, first["loc"]))
    message = f"this line is no event of a record: {place + ': ' if place else ''}{first['msg']}"
    hint = "remove the line, or use the version of millrace that wrote it"
    return MillraceError(Problem(message, hint, file=str(path), line=number))


def _not_a_record(path: Path) -> MillraceError:
    return MillraceError(Problem(f"{path} is not a record of a run", "make one with millrace run --record FILE"))


def require_record_of(path: Path, name: str) -> None:
    """Make sure that a file that is not empty is the record of a query; its first line may be torn.

    Raises:
        MillraceError: it is another file, or the record of another query.
    """
    with path.open("rb") as file:
        first = file.readline()
    if not first.startswith(_BEGINNING):
        raise _not_a_record(path)
    for line in _lines(first, path):
        found = line.query.get("metadata", {}).get("name") if isinstance(line, RunLine) else None
        if found != name:
            problem = f"{path} is the record of {found}, not of {name}"
            raise MillraceError(Problem(problem, "write the name of another file", field="--record"))


def halved(lines: Iterable[RecordLine]) -> list[RecordLine]:
    """Return a record in which pairs of batches are combined that have nothing but triggers and predictions in between.

    What a batch had beside its figures is kept of the later one of a pair. Of the predictions between them the newest
    are kept. Of idle triggers in a row, the first and the last are kept: the time of the first shows that no batch ran.
    """
    kept: list[RecordLine] = []
    for line in lines:
        place = _place_of_batch(kept) if isinstance(line, BatchLine) else None
        before = None if place is None else kept[place]
        if isinstance(line, BatchLine) and isinstance(before, BatchLine) and _can_join(before, line):
            predictions = [each for each in kept[place:] if isinstance(each, PredictionsLine)]
            del kept[place:]
            for each in predictions[-1:]:
                _append(kept, each)
            kept.append(replace(line, figures=before.figures.combined_with(line.figures)))
        else:
            _append(kept, line)
    return kept


def _append(kept: list[RecordLine], line: RecordLine) -> None:
    """Append a line, or let it take the place of one that it makes superfluous."""
    is_repeated = all(isinstance(each, IdleLine) for each in (*kept[-2:], line)) and len(kept) > 1
    if is_repeated or (isinstance(line, PredictionsLine) and kept and isinstance(kept[-1], PredictionsLine)):
        kept[-1] = line
    else:
        kept.append(line)


def _place_of_batch(kept: list[RecordLine]) -> int | None:
    """Return the place of the last batch; None if more than triggers and predictions came after it."""
    for place in range(len(kept) - 1, -1, -1):
        if isinstance(kept[place], BatchLine):
            return place
        if not isinstance(kept[place], IdleLine | PredictionsLine):
            return None
    return None


def _can_join(before: BatchLine, line: BatchLine) -> bool:
    """Whether two batches can be one: both are of the same resolution and plan."""
    return before.figures.batches <= line.figures.batches and before.details.plan == line.details.plan
