"""Records of runs: what a run has written, and files of it."""

from dataclasses import replace
from datetime import UTC, datetime

from builders import a_batch
from millrace_jobs.page.history import RunHistory
from millrace_support.run_record import RunLine, encode

from .runs import BEGAN, Clock, a_late_batch, a_query


def a_start(query=None, **changes):
    document = (query or a_query()).model_dump(mode="json", by_alias=True, exclude_unset=True)
    return RunLine(**{"time": BEGAN, "query": document, "millrace": "0.1.0"} | changes)


def recording(query=None):
    """A history of a run that has just begun, its clock, and the events that it records."""
    lines, clock = [], Clock()
    kept = RunHistory(clock, record=lines.append)
    kept.add(a_start(query))
    return kept, clock, lines


def write(path, lines):
    path.write_bytes(b"".join(map(encode, lines)))
    return path


def record_of(*batches):
    """The events of a run with these batches, two seconds apart."""
    kept, clock, lines = recording()
    kept.started(chooses=False, plan_origin="", output="out/*.csv")
    for number, batch in enumerate(batches):
        add(kept, clock, batch, number)
    return kept, clock, lines


def add(kept, clock, batch, number):
    clock.now += 2
    kept.batch(replace(batch, batch=number, began=datetime.fromtimestamp(clock.now - batch.seconds, UTC)))


def an_incident():
    """A run that keeps up, falls behind for half a minute, and keeps up again."""
    late = [a_late_batch(waiting=number * 4000, taken=10) for number in range(15)]
    return record_of(*[a_batch()] * 10, *late, *[a_batch()] * 10)
