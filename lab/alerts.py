"""Alerts of a real Prometheus that evaluates the project's own rules, on a faster clock."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from .prometheus import PrometheusServer

RULES = Path(__file__).parents[1] / "monitoring" / "rules"

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_RANGE = re.compile(r"\[[^\]]+\]|\boffset\s+\w+")
_DURATION = re.compile(r"(\d+)(ms|[smhd])")
_TIMES = ("for", "interval", "keep_firing_for")
_LEAST = 1.0
"""Least seconds of a duration, since Prometheus scrapes once a second."""


class Alert(NamedTuple):
    """A firing alert, with the namespace and name of the query that it names, which may be empty."""

    name: str
    namespace: str
    query: str


def faster_rules(factor: float) -> list[dict[str, Any]]:
    """Return the documents of ``monitoring/rules`` with each duration divided by ``factor``.

    What an expression compares, such as a lag with the batch interval, stays as it is.
    """
    documents = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in sorted(RULES.glob("*.yaml"))]
    for group in (group for document in documents for group in document["groups"]):
        group.setdefault("interval", "1m")  # Prometheus' default
        for rule in (group, *group["rules"]):
            for name in _TIMES:
                if name in rule:
                    rule[name] = _shorter(str(rule[name]), factor)
            if "expr" in rule:
                rule["expr"] = _RANGE.sub(lambda found: _shorter(found[0], factor), rule["expr"])
    return documents


def _shorter(text: str, factor: float) -> str:
    def shorter(found: re.Match[str]) -> str:
        return f"{max(int(found[1]) * _UNITS[found[2]] / factor, _LEAST) * 1000:.0f}ms"

    return _DURATION.sub(shorter, text)


def firing(prometheus: PrometheusServer) -> set[Alert]:
    """Return the alerts that fire now."""
    with urllib.request.urlopen(f"{prometheus.url}/api/v1/alerts", timeout=10) as answer:
        alerts: Sequence[dict[str, Any]] = json.load(answer)["data"]["alerts"]
    labels = [each["labels"] for each in alerts if each["state"] == "firing"]
    return {Alert(each["alertname"], each.get("namespace", ""), each.get("query", "")) for each in labels}


@contextmanager
def fired(prometheus: PrometheusServer, namespace: str) -> Iterator[set[Alert]]:
    """Collect the alerts of one namespace, and those of none, that fire at any time within the block."""
    seen: set[Alert] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.5):
            seen.update(each for each in firing(prometheus) if each.namespace in (namespace, ""))

    thread = threading.Thread(target=watch, name="alerts", daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
