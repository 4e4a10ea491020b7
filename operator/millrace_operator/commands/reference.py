"""Generator of docs/reference/streamquery.md for ``make generate``; not a command of ``millrace``.

python -m millrace_operator.commands.reference
"""

from __future__ import annotations

from millrace_api.crd.reference import Behaviour, Meanings, docstrings, reference
from millrace_api.failures import FailureClass
from millrace_api.model.status import ConditionType

from ..lifecycle.conditions import DegradedReason, ProgressingReason, ReadyReason
from ..lifecycle.driver_health import RESTART_POLICIES
from ..lifecycle.scaling_status import ActiveReason, CapacityReason, MetricsReason
from ..resources.spec_fields import EFFECTS, Effect
from ..scaling.decision.decision import Reason
from ..scaling.decision.settings import Guard


def behaviour() -> Behaviour:
    """Return the operator's behaviour as the reference page describes it."""
    return Behaviour(
        effects=EFFECTS,
        changes=docstrings(Effect),
        reasons=_reasons(),
        decisions=docstrings(Reason) | docstrings(Guard),
        patience={name.value: _patience(name) for name in FailureClass},
    )


def _reasons() -> dict[str, Meanings]:
    """Return the reasons of each condition type, in the order of a status."""
    short = {Reason.AT_CAPACITY.value: docstrings(Reason)[Reason.AT_CAPACITY]} | docstrings(Guard)
    reasons: dict[ConditionType, Meanings] = {
        ConditionType.READY: docstrings(ReadyReason),
        ConditionType.PROGRESSING: docstrings(ProgressingReason),
        ConditionType.METRICS_AVAILABLE: docstrings(MetricsReason),
        ConditionType.AT_CAPACITY: docstrings(CapacityReason) | short,
        ConditionType.SCALING_ACTIVE: docstrings(ActiveReason),
        ConditionType.DEGRADED: docstrings(DegradedReason) | docstrings(FailureClass),
    }
    return {each.value: reasons[each] for each in ConditionType}


def _patience(name: FailureClass) -> str:
    runs = RESTART_POLICIES[name].runs
    return "started again as often as it takes" if runs is None else f"given up after {runs} runs in a row"


if __name__ == "__main__":
    print(reference(behaviour()), end="")
