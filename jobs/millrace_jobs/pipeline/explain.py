"""Description of how a query will run, in words and as a text diagram."""

from __future__ import annotations

from collections.abc import Iterator

from millrace_api.model.streamquery import Emit, Spec
from millrace_jobs.aggregates.python_reducing import PythonReduction
from millrace_jobs.pipeline.aggregation import Native
from millrace_jobs.pipeline.compile import CompiledQuery, Routed
from millrace_jobs.pipeline.expressions.compiler import compile_projection
from millrace_jobs.plan.control import Pin
from millrace_jobs.sources.base import Source


def explain(query: CompiledQuery, spec: Spec, sources: dict[str, Source], pin: Pin) -> str:
    """Return the text of ``millrace explain``."""
    plan = query.plan
    if isinstance(plan, Native):
        why = f"runs natively, by Spark's own plan: {plan.reason}"
        return "\n".join([why, "", *_drawing(_native_steps(spec))])
    evaluated = compile_projection(plan.projection, sources[plan.source].schema)
    if pin.algorithm == "native":
        why = "can be routed, and runs natively: the plan's algorithm is native"
        how = "each replica combines its own slice" if plan.aggregation is None else "Spark combines by its own plan"
        steps = [
            *_source_steps(plan, spec, pin, evaluated),
            f"combine  {how}",
            *_merge_steps(query, plan, spec),
        ]
    else:
        why = f"is routed by {pin.algorithm}"
        steps = [
            *_source_steps(plan, spec, pin, evaluated),
            f"route    {pin.algorithm} on {_keys(plan)}, m={pin.replicas} replicas to n={pin.workers} workers",
            f"combine  {_combining(plan)}",
            *_merge_steps(query, plan, spec),
        ]
    return "\n".join([why, "", *_drawing(steps)])


def _native_steps(spec: Spec) -> list[str]:
    return [
        *(f"source   {name} ({source.kind})" for name, source in spec.sources.items()),
        "Spark    the SQL as it is written",
        f"emit     {spec.emit.value} -> {spec.sink.kind}",
    ]


def _source_steps(plan: Routed, spec: Spec, pin: Pin, evaluated: object) -> list[str]:
    if pin.algorithm == "native" and plan.aggregation is not None:
        where = "by Spark"
    else:
        where = f"by Spark, because of {evaluated}" if isinstance(evaluated, str) else "by the replicas (Arrow)"
    columns = ", ".join(sql for _, sql in plan.projection.columns)
    steps = [
        f"source   {plan.source} ({spec.sources[plan.source].kind}), {pin.replicas} slices a batch",
        f"decode   to {columns}; expressions {where}",
    ]
    if plan.projection.where:
        steps.append(f"filter   {plan.projection.where}")
    return steps


def _keys(plan: Routed) -> str:
    return ", ".join(sql for _, sql in plan.projection.columns[: plan.projection.keys]) or "nothing (one group)"


def _combining(plan: Routed) -> str:
    what = _keys(plan) if plan.window is None else f"{_keys(plan)} and pane of {_seconds(plan.window.pane)}"
    if isinstance(plan.reduction, PythonReduction):
        return f"{type(plan.reduction.aggregator).__name__} by {what}"
    assert plan.aggregation is not None
    if plan.window is not None and plan.window.per_record > 1:
        what += ", then by window"
    return f"{', '.join(aggregate.call for aggregate in plan.aggregation.aggregates)} by {what}"


def _merge_steps(query: CompiledQuery, plan: Routed, spec: Spec) -> list[str]:
    watermark = spec.sources[plan.source].watermark
    if plan.window is None:
        state = "state for ever"
    elif watermark is None:
        state = "state for ever, as the source has no watermark"
    else:
        state = f"state until the watermark, {watermark.delay} behind, passes the window"
    window = f", {plan.window.per_record} windows of {_seconds(plan.window.size)} per pane" if plan.window else ""
    when = "every change" if spec.emit is Emit.ON_UPDATE else "when a window closes"
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in query.result)
    return [
        f"merge    by key in Spark's state store{window}; {state}",
        f"emit     {when}: {columns} -> {spec.sink.kind}",
    ]


def _seconds(micros: int) -> str:
    return f"{micros / 1e6:g} s"


def _drawing(steps: list[str]) -> Iterator[str]:
    for index, step in enumerate(steps):
        if index:
            yield "   |"
        yield f"  {step}"
