"""Records of runs: what a run has written, and files of it."""

from millrace_jobs.page.history import RunHistory
from millrace_support.run_record import RunLine, encode

from .runs import BEGAN, Clock, a_query


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
