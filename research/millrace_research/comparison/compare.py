"""The comparison: every algorithm places the same stream and is measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.partitioners.base import Hashes, Partitioner, Workers
from millrace_jobs.partitioners.placement_cost import MovedKeys, moved_keys
from millrace_research.comparison.contenders import ComparisonSetting, Contender, parse_contender, parse_contenders
from millrace_research.comparison.replaying import Codes, PlacedStream, SlideRun, key_codes, last_window, replay
from millrace_research.comparison.report import ComparisonReport, InputStream, Result, Slide, StreamWindow
from millrace_research.comparison.stream import Slides, Spans, Stream, cut, parse_spans, read_stream

_MOST_WORKERS = 1_000_000


@dataclass(frozen=True)
class ComparisonRequest:
    """The options of a comparison, as the user wrote them; see ``millrace bench partitioners --help``."""

    file: Path
    keys: Sequence[str]
    time: str | None
    workers: int
    replicas: int
    window: str
    slide: str
    algorithms: str
    seed: int
    assignments: Path | None = None
    resize: int | None = None


def compare(request: ComparisonRequest) -> ComparisonReport:
    """Run the comparison and return its report.

    Raises:
        MillraceError: the request is invalid, the input cannot be read, or assignments cannot be written.
    """
    _check_count("--workers", request.workers, 1)
    _check_count("--replicas", request.replicas, 1)
    if request.resize is not None:
        _check_count("--resize", request.resize, 1)
    _check_count("--seed", request.seed, 0, most=2**64 - 1)
    spans = parse_spans(request.window, request.slide, timed=request.time is not None)
    contenders = parse_contenders(request.algorithms, spans.slides)
    setting = ComparisonSetting(request.workers, request.replicas, request.seed, spans.slides, request.resize)
    if request.assignments is not None:
        _make_folder(request.assignments)
    stream = read_stream(request.file, request.keys, request.time)
    named = (str(request.file), request.keys, request.time)

    def save(contender: Contender, ids: Workers) -> None:
        if request.assignments is not None:
            np.save(request.assignments / f"{contender.file_stem}.npy", ids)

    return compare_stream(stream, named, setting, spans, contenders, save)


def compare_stream(
    stream: Stream,
    named: tuple[str, Sequence[str], str | None],
    setting: ComparisonSetting,
    spans: Spans,
    contenders: Sequence[Contender],
    placed: Callable[[Contender, Workers], None] = lambda contender, ids: None,
) -> ComparisonReport:
    """Compare contenders on a stream with at least one record.

    Args:
        stream: the stream.
        named: what the report calls the stream, the columns of its key, and that of its time.
        setting: workers and replicas.
        spans: lengths of window and slide.
        contenders: the algorithms.
        placed: takes the worker of each record, once for each contender.

    Raises:
        MillraceError: the stream has too many slides.
    """
    slides = cut(stream, spans)
    codes, distinct = key_codes(stream.hashes)
    bench = _Bench(setting, slides, stream.hashes, codes, distinct)
    name, columns, time = named
    results = []
    for contender in contenders:
        result, ids = bench.measure(contender)
        results.append(result)
        placed(contender, ids)
    recorded = InputStream(
        file=name,
        keys=list(columns),
        time=time,
        rows=len(stream.hashes),
        distinct_keys=distinct,
        late=slides.late,
        without_time=slides.without_time,
        hashing_seconds=stream.hashing_seconds,
    )
    hashing, shuffle = (bench.reference(algorithm, results).mean_imbalance for algorithm in ("hash", "shuffle"))
    return ComparisonReport(recorded, setting, spans, results, hashing, shuffle)


@dataclass(frozen=True)
class _Bench:
    """The measurement of contenders on one stream, cut into slides."""

    setting: ComparisonSetting
    slides: Slides
    hashes: Hashes
    codes: Codes
    keys: int

    def measure(self, contender: Contender) -> tuple[Result, Workers]:
        """Place the stream twice: first to compile the kernels and record state sizes, then to measure times."""
        compiled = self._replay(contender, contender.replicas(self.setting), states=True)
        states = [(run.peak_state_bytes, run.state_bytes) for run in compiled]
        replicas = contender.replicas(self.setting)
        runs = list(self._replay(contender, replicas, states=False))
        ids = np.concatenate([run.ids for run in runs])
        placed = PlacedStream(ids, self.codes, self.keys, self.setting.workers)
        numbers = self.slides.numbers.tolist()
        costs = placed.windows(self.slides, self.setting.slides)
        windows = [
            StreamWindow(number, cost, moved if index else None)
            for index, (number, (cost, moved)) in enumerate(zip(numbers, costs, strict=True))
        ]
        rows = np.diff(self.slides.edges).tolist()
        slides = [
            Slide(number, size, run.route_seconds, run.advance_seconds, *state)
            for number, size, run, state in zip(numbers, rows, runs, states, strict=True)
        ]
        return Result(contender, placed.total(), windows, slides, self._moved_on_resize(replicas)), ids

    def _replay(self, contender: Contender, replicas: Sequence[Partitioner], *, states: bool) -> Iterator[SlideRun]:
        return replay(
            replicas,
            self.hashes,
            self.slides,
            slides_per_window=self.setting.slides,
            copies=contender.replicas(self.setting) if contender.is_cooperative else (),
            states=states,
        )

    def _moved_on_resize(self, replicas: Sequence[Partitioner]) -> MovedKeys | None:
        """Return the keys of the last window that a resize moves after the end of the stream; None without one."""
        if self.setting.resize is None:
            return None
        parts = last_window(self.hashes, self.slides, slides_per_window=self.setting.slides, replicas=len(replicas))
        first, *others = zip(replicas, parts, strict=True)
        return moved_on_resize(*first, self.setting.resize, others)

    def reference(self, algorithm: str, results: Sequence[Result]) -> Result:
        """Return the result of ``algorithm``; measure it if it is not among ``results``."""
        known = next((result for result in results if result.contender.label == algorithm), None)
        return known or self.measure(parse_contender(algorithm, self.setting.slides))[0]


def moved_on_resize(
    partitioner: Partitioner, keys: Hashes, workers: int, others: Sequence[tuple[Partitioner, Hashes]] = ()
) -> MovedKeys:
    """Count the keys that ``partitioner`` moves when it is resized to ``workers`` workers between two slides.

    ``partitioner`` places the records ``keys`` before the resize, in a slide that then ends, and again after the
    resize. An algorithm that forgets or learns with its slides moves keys even if the number of workers stays the same.
    ``others`` are further replicas with records of their own; a key is then wherever any replica places it. The state
    of every replica is restored at the end.
    """
    replicas = [(partitioner, keys), *others]
    before, after = zip(*(_around_resize(replica, part, workers) for replica, part in replicas), strict=True)
    stream = np.concatenate([part for _, part in replicas])
    return moved_keys((np.concatenate(before), stream), (np.concatenate(after), stream))


def _around_resize(partitioner: Partitioner, keys: Hashes, workers: int) -> tuple[Workers, Workers]:
    """Return where the records go before and after the resize."""
    state = partitioner.save()
    try:
        before = partitioner.route(keys)
        partitioner.advance()
        partitioner.resize(workers)
        return before, partitioner.route(keys)
    finally:
        partitioner.restore(state)


def _check_count(option: str, value: int, least: int, most: int = _MOST_WORKERS) -> None:
    if not least <= value <= most:
        raise MillraceError(Problem(f"{option} is {value}", f"write a whole number from {least} to {most}"))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        message = f"assignments cannot be written to {folder}: {error.strerror}"
        raise MillraceError(Problem(message, "name another folder with --assignments")) from None
