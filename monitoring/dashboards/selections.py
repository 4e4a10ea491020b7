"""What several dashboards select: the queries that there are, and the alerts that fire."""

from __future__ import annotations

from collections.abc import Iterable

SEVERITIES = {"critical": "red", "warning": "orange"}
"""Colors of the severities of alerts. Sorted as texts, the most severe one comes first."""


def queries(labels: str, *others: str) -> str:
    """Return a selector of series that every query has, also one that has never run, and one without an operator.

    Args:
        labels: matchers of their labels.
        others: names of further metrics.
    """
    names = "|".join(("namespace_query:millrace_query_info:max", "millrace_batches_total", *others))
    return f'{{__name__=~"{names}", {labels}}}'


def critical(*labels: str) -> str:
    """Return an expression for the critical alerts of Millrace that fire and that any of these matchers select."""
    return _alerts("critical", labels)


def warnings(*labels: str) -> str:
    """Return an expression for those that fire as a warning, and not also as critical."""
    return f"({_alerts('warning', labels)}) unless ignoring (severity) ({critical(*labels)})"


def firing(*labels: str) -> str:
    """Return an expression for all of them, each with its highest severity."""
    return f"{critical(*labels)} or {warnings(*labels)}"


def _alerts(severity: str, labels: Iterable[str]) -> str:
    of_millrace = f'alertname=~"Millrace.*", alertstate="firing", severity="{severity}"'
    return " or ".join(f"ALERTS{{{matchers}, {of_millrace}}}" for matchers in labels)
