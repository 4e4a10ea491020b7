"""Pages of a running query."""

from __future__ import annotations

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metrics(base: str) -> dict[str, float]:
    """Value of each series by its name with the labels other than the query's."""
    found = {}
    for family in text_string_to_metric_families(get(f"{base}/metrics")[1]):
        for sample in family.samples:
            labels = [value for name, value in sorted(sample.labels.items()) if name != "query"]
            found[" ".join([sample.name, *labels])] = sample.value
    return found
