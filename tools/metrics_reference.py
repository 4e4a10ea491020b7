"""Write the reference of all metrics, docs/reference/metrics.md, from the contracts of what exports them.

python -m tools.metrics_reference >docs/reference/metrics.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from millrace_jobs.dedicated.replica_metrics import CONTRACT as OF_REPLICAS
from millrace_jobs.run.metrics_contract import CONTRACT as OF_JOBS
from millrace_operator.telemetry.contract import CONTRACT as OF_OPERATOR
from millrace_support.metric import Label, Metric

_PARTS = (
    (
        "Of a job",
        "Exported by the driver of a query, and by `millrace run`. Gauges describe the last batch: what it did not "
        "have is absent. Prometheus adds the namespace of the driver's pod as the label `namespace`.",
        OF_JOBS,
    ),
    (
        "Of a partitioner replica",
        "Exported by each replica in a pod of its own, where the placement is Dedicated.",
        OF_REPLICAS,
    ),
    (
        "Of the operator",
        "Exported by each operator; those that begin with `millrace_query_` by the leader only, for each query that "
        "exists and is not a canary. The namespace of a query is the label `query_namespace`, since Prometheus sets "
        "`namespace` to that of the operator's pod. Besides these there are those of the Python process (`process_`, "
        "`python_gc_`).",
        OF_OPERATOR,
    ),
)


def reference() -> str:
    """Return the whole page."""
    parts = [
        "# Metrics",
        "Everything that Millrace exports, at `/metrics`. This page is written by `make generate` from the contracts "
        "in the code; do not edit it. Counters begin at 0 when their process starts.",
    ]
    for title, about, contract in _PARTS:
        parts += [f"## {title}", about, "\n".join(_table(contract)), "### Labels", "\n".join(_labels(contract))]
    return "\n\n".join(parts) + "\n"


def _table(contract: Iterable[Metric]) -> Iterator[str]:
    yield "| metric | type | unit | labels | meaning |"
    yield "|---|---|---|---|---|"
    for metric in contract:
        labels = ", ".join(f"`{each}`" for each in metric.labels)
        text = metric.help
        if metric.buckets:
            text += f" Buckets up to {metric.buckets[0]:g}, ..., {metric.buckets[-1]:g}."
        unit = "" if metric.unit == "number" else metric.unit
        yield f"| `{metric.name}` | {metric.kind} | {unit} | {labels} | {_escaped(text)} |"


def _labels(contract: Iterable[Metric]) -> Iterator[str]:
    """Yield the values of each label; a label that has other values elsewhere is named with its metrics."""
    users: dict[Label, list[str]] = {}
    for metric in contract:
        for label in metric.dimensions:
            users.setdefault(label, []).append(metric.name)
    names = [label.name for label in users]
    yield "| label | values |"
    yield "|---|---|"
    for label, metrics in users.items():
        of = "" if names.count(label.name) == 1 else " of " + ", ".join(f"`{each}`" for each in metrics)
        yield f"| `{label.name}`{of} | {_values(label)} |"


def _values(label: Label) -> str:
    if not label.values:
        return _escaped(f"`{label.pattern}`: {label.bound}")
    return ", ".join(f"`{each}`" if each else "empty" for each in map(str, label.values))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
