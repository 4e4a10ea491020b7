"""Metrics of a run in one process, read from its own endpoint instead of Prometheus."""

from __future__ import annotations

import time

import urllib3
from prometheus_client.parser import text_string_to_metric_families
from urllib3.exceptions import HTTPError, LocationParseError

from millrace_api.errors import MillraceError, Problem

from ..scaling.observation import Answer
from .job_metrics import CREATED, whole_scrapes
from .result import Sample, Series

_TIMEOUT = urllib3.Timeout(connect=3.0, read=10.0)
_HINT = "write the address that `millrace run` prints as metrics, such as http://127.0.0.1:8080/metrics"


def scraped(url: str) -> tuple[str, Answer]:
    """Return the name of the query whose metrics are at ``url``, and what they are now.

    The run is taken to be one executor.

    Raises:
        MillraceError: nothing answers there, or something that is not a job of Millrace.
    """
    now = time.time()
    try:
        response = urllib3.request("GET", url, timeout=_TIMEOUT, retries=False, redirect=False)
        if response.status != 200:
            raise MillraceError(Problem(f"{url} answers HTTP {response.status}", _HINT))
        families = list(text_string_to_metric_families(response.data.decode()))
    except (HTTPError, LocationParseError) as error:
        raise MillraceError(Problem(f"{url} cannot be read: {error}", _HINT)) from None
    except ValueError as error:
        raise MillraceError(Problem(f"{url} has no metrics: {error}", _HINT)) from None
    series = [
        Series({"__name__": sample.name} | sample.labels, (Sample(now, sample.value),))
        for family in families
        for sample in family.samples
    ]
    names = {one.labels["query"] for one in series if one.labels["__name__"] == CREATED and "query" in one.labels}
    if len(names) != 1:
        raise MillraceError(Problem(f"{url} has no metrics of a query", _HINT))
    (scrape,) = whole_scrapes(series)
    return names.pop(), Answer(time=now, executors=1.0, **scrape.values)
