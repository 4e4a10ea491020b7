"""Rules, dashboards and runbooks of the repository, and the metric names in their expressions."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lab.parts.go_programs import go_program
from millrace_jobs.dedicated.replica_metrics import ReplicaMetrics
from millrace_jobs.run.metrics_contract import CONTRACT as OF_JOBS
from millrace_operator.telemetry.contract import CONTRACT as OF_OPERATOR
from millrace_operator.telemetry.metrics import OperatorMetrics

ROOT = Path(__file__).parents[3]
RULES = sorted((ROOT / "monitoring/rules").glob("*.yaml"))
RULE_TESTS = sorted((ROOT / "monitoring/tests").glob("*.yaml"))
RUNBOOKS = ROOT / "docs/runbooks"
FILES = ROOT / "charts/millrace/files"

PLACED = frozenset({"cluster", "namespace", "pod", "job", "instance", "le"})
"""Labels that Prometheus adds to series, and the bucket label."""

_SUFFIXES = {"counter": ("",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
_NAME = re.compile(r"(?<![\w:$])(?:(?:millrace|process)_\w+|(?!system:)\w+:\w+:\w+)")
_SELECTOR = re.compile(r"(millrace_\w+)\{([^}]*)\}")


def promtool(*arguments: str | Path) -> tuple[int, str]:
    """Run promtool, and return its exit status and output.

    Raises:
        MissingError: if the lab's programs were not made.
    """
    done = subprocess.run(
        [go_program("promtool"), *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


def rules() -> list[dict[str, Any]]:
    """Return all rules, in order."""
    documents = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in RULES]
    return [rule for document in documents for group in document["groups"] for rule in group["rules"]]


def alerts() -> list[dict[str, Any]]:
    """Return the rules that are alerts."""
    return [rule for rule in rules() if "alert" in rule]


def dashboards() -> dict[str, dict[str, Any]]:
    """Return the dashboards by file name."""
    paths = sorted((FILES / "dashboards").glob("*.json"))
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in paths}


def expressions(dashboard: dict[str, Any]) -> Iterator[str]:
    """Return the PromQL of panels, annotations and variables."""
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["expr"] for each in dashboard["annotations"].get("list", ()))
    yield from (each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query")


def exported() -> dict[str, frozenset[str]]:
    """Return the labels of every series that job, partitioner replicas and operator export, by name."""
    found = {
        metric.name + suffix: frozenset(metric.labels)
        for metric in (*OF_JOBS, *OF_OPERATOR)
        for suffix in _SUFFIXES[metric.kind]
    }
    families = [family for family in OperatorMetrics().registry.collect() if family.name.startswith("process_")]
    families += ReplicaMetrics("trips", 0, 2.0).registry.collect()
    return found | {sample.name: frozenset(sample.labels) for family in families for sample in family.samples}


def names(expression: str) -> set[str]:
    """Return the metrics in an expression."""
    return set(_NAME.findall(expression))


def selected(expression: str) -> Iterator[tuple[str, str]]:
    """Yield each metric of Millrace with each label that selects it."""
    for name, matchers in _SELECTOR.findall(expression):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            yield name, label
