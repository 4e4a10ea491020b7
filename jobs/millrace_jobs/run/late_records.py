"""The reason why records were late, for the end of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from millrace_api.model.streamquery import Spec
from millrace_jobs.checkpoint.checkpoint import Checkpoint

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def closed_until(checkpoint: Checkpoint) -> datetime | None:
    """Return the watermark up to which an earlier run has closed all windows at the end of its input, else None."""
    offsets = checkpoint.committed().values()
    if not offsets or not all("closed" in offset for offset in offsets):
        return None
    try:
        return _EPOCH + timedelta(milliseconds=checkpoint.watermark_ms())
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def all_closed(until: datetime) -> str:
    """Return one sentence on what it means for later runs that this one has closed all windows at its end."""
    return (
        f"all windows up to {until:%Y-%m-%dT%H:%M:%SZ} are closed, since the input has ended: records before that time "
        "which a later run reads are late, and in no result; --available-now leaves windows open"
    )


def why_late(records: int, spec: Spec, *, before_1970: bool, closed: datetime | None) -> str:
    """Return one sentence on why records were late, and what to do about it.

    ``before_1970`` is whether there was a record with such an event time, and ``closed`` what ``closed_until`` returned
    before the run.
    """
    reasons = []
    if before_1970:
        reasons.append("windows that ended before 1970 are closed from the start, since Spark's watermark begins there")
    if closed is not None:
        until = f"{closed:%Y-%m-%dT%H:%M:%SZ}"
        reasons.append(
            f"an earlier run closed all windows up to {until} when its input ended (--available-now leaves them open)"
        )
    delays = " or ".join(
        f"spec.sources.{name}.watermark.delay: {source.watermark.delay}"
        for name, source in spec.sources.items()
        if source.watermark is not None
    )
    reasons.append(f"the watermark follows the latest event time, and a longer {delays} keeps windows open longer")
    return f"late={records}: the windows of these records had closed: {'; '.join(reasons)}"
