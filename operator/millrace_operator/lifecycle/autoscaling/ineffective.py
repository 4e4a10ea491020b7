"""The condition ScalingIneffective: what keeps more executors from helping a query, with the figures and the remedy.

``scaling.serial_time`` finds the cause; here it is put into words, with the fields of the spec. Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import StrEnum

from millrace_api.model.deployment import Algorithm
from millrace_api.model.status import Condition, ConditionType
from millrace_api.model.streamquery import Spec

from ...scaling.serial_time import SerialCause, SerialTime
from ..conditions import condition


class IneffectiveReason(StrEnum):
    """Reason of the ScalingIneffective condition; the cause is a possible reason too."""

    EXECUTORS_HELP = "ExecutorsHelp"
    """Enough executors bring batches under the target, as far as measurements show."""


def ineffective_condition(
    spec: Spec, serial: SerialTime | None, unknown: str | None, generation: int, now: datetime
) -> Condition:
    """Return the condition; ``unknown`` is the reason why nothing is known, if nothing can be.

    ``serial`` is None before enough was measured.
    """
    kind = ConditionType.SCALING_INEFFECTIVE
    if unknown is not None:
        return condition(kind, None, unknown, "", generation, now)
    if serial is None or not serial.exceeds:
        return condition(kind, False, IneffectiveReason.EXECUTORS_HELP, "", generation, now)
    return condition(kind, True, serial.cause, ineffective_text(spec, serial), generation, now)


def ineffective_text(spec: Spec, serial: SerialTime) -> str:
    """Return why more executors do not help a query, and what does, as one sentence."""
    whole = serial.share * serial.interval
    what, remedy = _WORDS[serial.cause](spec, serial)
    return (
        f"more executors cannot bring W to {spec.scaling.target:g}, since {whole:.2f} s of a batch do not become "
        f"shorter with them, at an interval of {serial.interval:g} s: {what} {serial.seconds:.2f} s of it; {remedy}"
    )


_SPLITS_EVENLY = (Algorithm.SHUFFLE, Algorithm.WCHOICES)


def _hot_key(spec: Spec, serial: SerialTime) -> tuple[str, str]:
    what = f"one key has {serial.concentration or 0.0:.0%} of the records, whose worker takes"
    algorithm = spec.partitioner.algorithm
    if algorithm in _SPLITS_EVENLY:
        return what, "group by a finer key first"
    if algorithm is Algorithm.PYTHON:
        return what, "let the class of spec.partitioner.parameters place this key on more workers"
    kept = " (auto keeps it whole)" if algorithm is Algorithm.AUTO else f", instead of {algorithm}"
    return what, f"write spec.partitioner.algorithm: wchoices, which splits it among all workers{kept}"


def _undivided(spec: Spec, serial: SerialTime) -> tuple[str, str]:
    what = f"one slice of the source has {serial.concentration or 0.0:.0%} of the records, which take"
    named = ", ".join(f"spec.sources.{name}" for name, source in spec.sources.items() if source.files is not None)
    return what, f"write smaller files to {named or 'the source'}, or of a format that can be read in parts"


def _few_workers(spec: Spec, serial: SerialTime) -> tuple[str, str]:
    most = spec.parallelism.max
    return (
        f"{_counted(most, 'worker')} of spec.parallelism.max combine for",
        f"write a spec.parallelism.max above {most}",
    )


def _few_replicas(spec: Spec, serial: SerialTime) -> tuple[str, str]:
    most = spec.partitioner.replicas.max
    what = f"{_counted(most, 'replica')} of spec.partitioner.replicas.max read and place records for"
    return what, f"write a spec.partitioner.replicas.max above {most}"


def _few_state_partitions(spec: Spec, serial: SerialTime) -> tuple[str, str]:
    return (
        "the tasks that merge into the state, one for each of its partitions, take",
        "change their number by `millrace state repartition FILE --partitions N`",
    )


def _slow_sink(spec: Spec, serial: SerialTime) -> tuple[str, str]:
    fields = [
        f"{'spec.sink' if field == 'spec' else f'{field}.sink'}.{output.sink.kind}"
        for field, output in spec.outputs.items()
    ]
    longer = "if its time does not grow with the records, write a longer spec.batchInterval"
    if len(fields) == 1:
        return f"{fields[0]} writes for", f"make what it writes to faster or, {longer}"
    names = f"{', '.join(fields[:-1])} and {fields[-1]}"
    return f"the outputs {names} write for", f"make what the slowest one of the outputs writes to faster or, {longer}"


def _slow_source(spec: Spec, serial: SerialTime) -> tuple[str, str]:
    names = ", ".join(f"spec.sources.{name}" for name in spec.sources)
    return (
        f"{names} {'takes' if len(spec.sources) == 1 else 'take'} to say what is new",
        "keep fewer files or partitions there, or write a longer spec.batchInterval",
    )


def _slow_checkpoint(spec: Spec, serial: SerialTime) -> tuple[str, str]:
    return (
        "the store of spec.checkpoint writes Spark's logs for",
        f"use a faster volume or store, or write {_longer(spec, serial)}",
    )


def _short_interval(spec: Spec, serial: SerialTime) -> tuple[str, str]:
    return "planning and committing a batch take the driver", f"write {_longer(spec, serial)}"


def _longer(spec: Spec, serial: SerialTime) -> str:
    """Return an interval at which the serial part leaves as much room as the target."""
    least = math.ceil(serial.share * serial.interval / (spec.scaling.target - spec.scaling.step) + 0.5)
    return f"a spec.batchInterval of {least} s or more"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


_WORDS: Mapping[SerialCause, Callable[[Spec, SerialTime], tuple[str, str]]] = {
    SerialCause.HOT_KEY: _hot_key,
    SerialCause.UNDIVIDED_SOURCE: _undivided,
    SerialCause.FEW_WORKERS: _few_workers,
    SerialCause.FEW_REPLICAS: _few_replicas,
    SerialCause.FEW_STATE_PARTITIONS: _few_state_partitions,
    SerialCause.SLOW_SINK: _slow_sink,
    SerialCause.SLOW_SOURCE: _slow_source,
    SerialCause.SLOW_CHECKPOINT: _slow_checkpoint,
    SerialCause.SHORT_INTERVAL: _short_interval,
}
"""What takes the time, as the words before the seconds, and the remedy."""
