"""Generators of records, by their names on the command line."""

from __future__ import annotations

from datetime import datetime

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.sources import NexmarkSourceSpec as NexmarkSpec
from millrace_api.model.sources import NexmarkStream, SourceSpec
from millrace_jobs.sources.generated import GeneratedSource
from millrace_jobs.sources.nexmark import NexmarkSource, share
from millrace_jobs.sources.opening import schema_of
from millrace_jobs.sources.pacing import RatePace
from millrace_jobs.sources.rate import RateSource

NAMES = ("rate", *(stream.value for stream in NexmarkStream))


def generator(
    name: str,
    pace: RatePace,
    *,
    keys: int,
    skew: float,
    drift: float | None,
    seed: int,
    start: datetime | None,
) -> GeneratedSource:
    """Return a generator whose event times follow ``pace``: ``rate``, or a NEXMark stream.

    Raises:
        MillraceError: the name is unknown.
    """
    if name == "rate":
        return RateSource(name, pace, keys=keys, skew=skew, drift=drift, seed=seed, start_time=start)
    if name not in NAMES:
        raise MillraceError(Problem(f"--generate {name} is unknown", f"write one of {', '.join(NAMES)}"))
    schema = schema_of(name, SourceSpec(nexmark=NexmarkSpec(stream=NexmarkStream(name))))
    events = pace.scaled(1 / share(name))
    return NexmarkSource(name, schema, name, events, skew=skew, drift=drift, seed=seed, start_time=start)
