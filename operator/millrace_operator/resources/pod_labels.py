"""The labels of a query's pods: those that only Millrace, Spark and Kubernetes set, and those that a policy wants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from millrace_api.errors import Problem, quote
from millrace_api.model.streamquery import Spec

from .patterns import matches_any
from .spec_values import pod_templates

PREFIX = "millrace.io/"
"""Prefix of the labels by which the operator knows a query's pods, and of its annotations."""

_OURS = (
    "app.kubernetes.io/component",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/name",
)
"""Labels that the operator sets; by them, its own Service, NetworkPolicy and Deployment find its pods."""

_OTHERS = ("spark-", "apps.kubernetes.io/", "batch.kubernetes.io/", "statefulset.kubernetes.io/")
"""Labels by which Spark knows the executors of a driver, which it also deletes, and Kubernetes the pods of a set."""

_PODS = ("driver", "executors", "partitioner.pod")


def reserved_label(name: str) -> tuple[str, str] | None:
    """Return why a query may not set a label, and what to write instead; None if it may."""
    if name.startswith(PREFIX):
        return f'"{name}" is the operator\'s own', "leave it out, or write it without that prefix"
    if name in _OURS or name.startswith(_OTHERS):
        message = f'"{name}" says what the pod belongs to, and is set by Millrace, Spark or Kubernetes'
        return message, "leave it out, or write another label"
    return None


def label_problems(spec: Spec) -> Iterator[Problem]:
    """Yield the labels of ``spec.labels`` that a query may not set."""
    for name in spec.labels or ():
        if (found := reserved_label(name)) is not None:
            yield Problem(*found, field=f"spec.labels[{name}]")


def missing_labels(required: Mapping[str, tuple[str, ...]], spec: Spec, where: str) -> Iterator[Problem]:
    """Yield the labels that a policy asks for and a pod lacks, or has with another value, each with its field.

    The label of a pod template replaces that of ``spec.labels``; a null there removes it.
    """
    templates = pod_templates(spec)
    for name, patterns in required.items():
        listed = ", ".join(patterns)
        hint = f'write labels: {{"{name}": ...}} with a value that matches one of {listed}'
        for field, value in _values(name, spec, templates):
            if value is None:
                yield Problem(f'a pod without the label "{name}" is {where}', hint, field=field)
            elif not matches_any(patterns, value):
                yield Problem(f'the label "{name}" with the value {quote(value)} is {where}', hint, field=field)


def _values(name: str, spec: Spec, templates: Mapping[str, Mapping[str, object]]) -> Iterator[tuple[str, str | None]]:
    """Yield each value that a label has in the pods of a query, with the field that it comes from."""
    common = (spec.labels or {}).get(name)
    for pod in _PODS:
        field = f"spec.{pod}.podTemplate"
        metadata = templates.get(field, {}).get("metadata")
        labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
        if isinstance(labels, Mapping) and name in labels:
            value = labels[name]
            yield f"{field}.metadata.labels", None if value is None else str(value)
        else:
            yield f"spec.labels[{name}]" if common is not None else "spec.labels", common
