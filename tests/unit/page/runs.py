"""Runs as the page knows them: histories of batches, and the facts beside them."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np

from builders import PIN, a_batch, a_query
from millrace_jobs.page.history import RunHistory
from millrace_jobs.page.rendering import render
from millrace_jobs.page.view import RunFacts, page_view
from millrace_jobs.pipeline.arrivals import RecordLatencies
from millrace_jobs.selection.costs import BatchTime, JoinLoad
from millrace_jobs.selection.switch import Candidate
from millrace_jobs.sketches.key_profile import EVERY, KeyCounts, KeyProfile
from millrace_support.http_server import ProbeResult

BEGAN = 1_357_041_600.0
"""When the runs began, in seconds since 1970."""


class Clock:
    def __init__(self):
        self.now = BEGAN

    def __call__(self):
        return self.now


def history(*batches, seconds_apart=2.0):
    """The history of a run with these batches, and its clock, which shows the end of the last one."""
    clock = Clock()
    kept = RunHistory(clock)
    for number, batch in enumerate(batches):
        clock.now += seconds_apart
        began = datetime.fromtimestamp(clock.now - batch.seconds, UTC)
        kept.batch(replace(batch, batch=number, began=began, ended=datetime.fromtimestamp(clock.now, UTC)))
    return kept, clock


def alive():
    return ProbeResult(True, "running")


def facts(query=None, **changes):
    return RunFacts(**{"query": query or a_query(), "alive": alive} | changes)


def view_of(kept, clock, known=None):
    return page_view(kept.snapshot(), known or facts(), clock.now)


def page_of(kept, clock, known=None):
    """The page as text."""
    return render(view_of(kept, clock, known)).decode()


def candidate(algorithm, seconds, imbalance=0.1):
    return Candidate(algorithm, BatchTime(0.0, seconds, 0.0, 0.0), imbalance, 400.0, by_rule=False)


def a_skewed_batch(**changes):
    """A batch of which one worker of four has two thirds, and one key half of the records."""
    hashes = np.arange(1, 4, dtype=np.uint64)
    keys = KeyProfile(1000, KeyCounts(hashes, np.array([500, 300, 200])), EVERY, KeyCounts.none())
    skewed = {"rows": 1000, "worker_rows": (640, 120, 120, 120), "worker_keys": (1, 1, 1, 1), "profile": keys}
    return a_batch(**skewed | {"distinct_keys": 3, "pin": replace(PIN, algorithm="hash")} | changes)


def a_late_batch(**changes):
    """A batch that takes one and a half times its interval."""
    return a_batch(**{"seconds": 3.0, "steps": {"addBatch": 2.8}} | changes)


def a_join_batch(**changes):
    """A batch of a join of orders and items, whose second task has most to match."""
    joins = (JoinLoad(0, 0, 0, 100, 100), JoinLoad(0, 1, 1, 300, 700, hot=(400, 80)))
    sides = {"taken_from": {"orders": 120, "items": 280}, "waiting_in": {"orders": 7, "items": 9}}
    joined = {"worker_rows": (), "worker_keys": (), "distinct_keys": None, "joins": joins}
    return a_batch(**joined | sides | changes)


def a_join_query():
    source = {"files": {"path": "in/*.csv", "format": "csv"}, "schema": "at TIMESTAMP, id INT",
              "watermark": {"column": "at", "delay": "1m"}}  # fmt: skip
    return a_query("spec", "sources", value={"orders": source, "items": source})


def latencies(*seconds):
    return RecordLatencies(np.array(seconds, float), np.ones(len(seconds), np.int64))
