"""A verified upgrade: both versions of a query are compared in a pod, beside the driver that runs the old one.

The driver goes on writing its checkpoint meanwhile. Of that, only snapshots are read, and at most one is added.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_api.model.upgrade import UpgradeSpec
from millrace_api.model.values import ByteSize
from millrace_jobs.checkpoint.checkpoint import checkpoint_root
from millrace_jobs.checkpoint.snapshots import place_of_snapshot, snapshots_of
from millrace_jobs.comparison import EXAMPLES, TOLERANCE
from millrace_jobs.comparison.changed_fields import require_same_records
from millrace_jobs.comparison.compare import MOST_BYTES, ComparedVersion, ComparisonHints, Say, VersionsRequest, compare
from millrace_jobs.comparison.own_snapshot import has_state, own_snapshot, remove_left_over, usable_snapshot
from millrace_jobs.comparison.report import BEGINNING, VersionsReport
from millrace_jobs.comparison.start import SnapshotGoneError, obstacle
from millrace_jobs.run.checkpoints import reported
from millrace_jobs.stores.spark import use

_ATTEMPTS = 3
"""How often a snapshot is chosen, while the query's retention removes those that were chosen."""

_ANOTHER_NAME = (
    "run it beside this one under another metadata.name, with another place for its results; millrace compare --from "
    "beginning says what differs"
)

_HINTS = ComparisonHints("write a lower spec.upgrade.records", "write a longer spec.upgrade.duration")


def compare_upgrade(
    old: ComparedVersion,
    new: ComparedVersion,
    command: Sequence[str],
    say: Say,
    wait: Callable[[float], None] = time.sleep,
) -> VersionsReport:
    """Compare the version of a query that runs with the one that is to follow it, as the new one's spec says.

    Args:
        old: the version that runs, as its driver reads it.
        new: the changed version.
        command: the command that runs a task, followed by the task's file.
        say: takes a line about what happens.
        wait: waits for a number of seconds.

    Raises:
        MillraceError: they cannot be compared.
    """
    wanted = new.query.spec.upgrade or UpgradeSpec()
    old, new = (replace(each, query=_without_upgrade(each.query)) for each in (old, new))
    require_same_records(old.query, new.query)
    request = request_of(old, new, wanted, command)
    for attempt in count(1):
        with _start(old.query, new.query, wanted.duration.timedelta, say, wait) as start:
            try:
                report = compare(replace(request, start=start), say)
            except SnapshotGoneError as error:
                if attempt == _ATTEMPTS:
                    raise
                say(f"another start is chosen: {error}")
                continue
            return report
    raise AssertionError  # the loop ends in one of these ways


def _without_upgrade(query: StreamQuery) -> StreamQuery:
    """Return a query without the fields of its upgrade, of which the operator gives only those of the new version."""
    return query.model_copy(update={"spec": query.spec.model_copy(update={"upgrade": None})})


def request_of(
    old: ComparedVersion, new: ComparedVersion, wanted: UpgradeSpec, command: Sequence[str]
) -> VersionsRequest:
    """Return what a spec asks of its comparison, but for the start."""
    # no version runs while their results are compared, which takes several times their size
    return VersionsRequest(
        old=old,
        new=new,
        connections=(),
        start=None,
        records=wanted.records,
        within=wanted.duration,
        ignored=frozenset(wanted.ignore),
        tolerance=TOLERANCE if wanted.tolerance is None else wanted.tolerance,
        bound=wanted.slower_than,
        examples=EXAMPLES,
        command=command,
        in_pod=True,
        most_bytes=min(MOST_BYTES, heap_of(new.query.spec).bytes // 4),
        hints=_HINTS,
    )


def heap_of(spec: Spec) -> ByteSize:
    """Return the memory of Java in a comparison: one process does the work of the driver and of an executor."""
    return max(spec.driver.memory, spec.executors.memory, key=lambda size: size.bytes)


@contextmanager
def _start(
    old: StreamQuery, new: StreamQuery, duration: timedelta, say: Say, wait: Callable[[float], None]
) -> Iterator[str]:
    """Choose where to begin, the name of a snapshot or BEGINNING, and remove at the end what was stored for that.

    Raises:
        MillraceError: the new version cannot go on from the state, or that cannot be read.
    """
    use(old.spec.s3, old.spec.azure)
    root = checkpoint_root(old)
    with reported(root):
        for name in remove_left_over(root):
            say(f"removed the snapshot {name}, which a killed comparison has left")
        is_used, found, now = has_state(root), snapshots_of(root), datetime.now(UTC)
        if is_used and (why := obstacle(old, new, root)):
            raise MillraceError(Problem(f"{why}, so it cannot take the place of that", _ANOTHER_NAME))
        usable = usable_snapshot(found, duration, now)
        if usable is not None and obstacle(old, new, place_of_snapshot(root, usable.name)):
            usable = None  # the state has since taken up what the new version needs
    if usable is not None:
        yield usable.name
    elif not is_used:
        yield BEGINNING
    else:
        seconds = duration.total_seconds()
        with own_snapshot(root, now) as taken:
            say(f"took the snapshot {taken.name}, and wait {seconds:g} s for records after it")
            wait(seconds)
            yield taken.name
