"""Wording of a decision as one plain sentence."""

from __future__ import annotations

from .changes import ChangeOutcome
from .decision import Decision, Reason
from .search import Forecast
from .settings import Guard, Settings

_WAITING: dict[Reason | Guard, str] = {
    Reason.STABLE: "it fits the load",
    Reason.DRAINING: "batches are long since they catch up",
    Guard.COOLDOWN: "the last change has still to show what it brings",
    Guard.CALIBRATING: "too little has been seen to predict",
    Guard.UNCERTAIN: "the prediction is too wide to give cores back",
    Guard.SCALE_IN_DELAYED: "cores are given back only if less has been enough for longer",
    Guard.SCALE_IN_LIMITED: "giving cores back would not pay for the change yet",
    Guard.FLAPPING: "executors that were just added are not given back so soon",
    Guard.SCALE_IN_PAUSED: "scaling in is paused",
}


def sentence(decision: Decision, settings: Settings) -> str:
    """Return what is decided and why, with the numbers, as one sentence."""
    if decision.reason is Reason.OFF:
        return "Scaling is switched off."
    if decision.reason is Reason.NO_ANSWER:
        return f"Nothing is decided, since the metrics cannot be relied on ({decision.detail})."
    if decision.reason is Reason.OUT_OF_BOUNDS:
        return f"{_arrow(decision)}, since the bounds have changed."
    if decision.reason is Reason.UNDONE and decision.outcome is not None:
        return f"{_arrow(decision)}: {_no_help(decision.outcome)}."
    return f"{_load(decision)}: {_conclusion(decision, settings)}."


def _conclusion(decision: Decision, settings: Settings) -> str:
    reason = decision.reason
    if reason in (Guard.PAUSED, Guard.ADVISE):
        why = "everything is paused" if reason is Guard.PAUSED else "only advice is wanted"
        chosen = decision.chosen
        best = f"{decision.before} -> {chosen.plan} would be best {_predicted(chosen)}" if chosen else "a change is due"
        return f"{best}, but {why}"
    if reason is Reason.TRIAL:
        return (
            f"{_arrow(decision)} is tried in proportion to W, since no plan that ran of late is predicted to be enough"
        )
    if reason is Reason.AT_CAPACITY:
        useless = (
            "no plan is predicted to be enough" if decision.changed else "more cores would not make batches shorter"
        )
        why = decision.detail or useless
        return f"{_arrow(decision)} is the best there is {_predicted(decision.chosen)}, since {why}"
    if reason is Guard.CLUSTER:
        return f"{_arrow(decision)} is the best for the executors that are ready, since {decision.detail}"
    if reason is Guard.CALIBRATING and decision.changed:
        return f"{_arrow(decision)} in proportion to W, since too little has been seen to predict"
    if not decision.changed:
        return f"{decision.before} stays, since {decision.detail or _WAITING.get(reason, str(reason))}"
    limit = settings.target if reason is not Reason.SCALE_IN else settings.target - settings.step / 2
    text = f"{_arrow(decision)} is the cheapest plan that is predicted under {limit:.2f} {_predicted(decision.chosen)}"
    if decision.guard is not None:
        text += f" and allowed, since {decision.detail}"
    return f"{text}; {_bottleneck(decision.chosen)}"


def _load(decision: Decision) -> str:
    """Return W and what arrives, as the beginning of a sentence."""
    inputs = decision.inputs
    if inputs is None:
        return "No batch has been seen"
    text = f"W was {inputs.utilization:.2f} of {inputs.interval:g} s, and {inputs.arrival:,.0f} records/s arrive"
    if inputs.growth is not None and abs(inputs.growth) >= 0.005:
        text += f", {abs(inputs.growth):.0%} {'more' if inputs.growth > 0 else 'less'} than at the last change"
    if inputs.lag:
        text += f", while {inputs.lag:,.0f} wait"
    if inputs.demand > inputs.arrival * 1.005:
        text += f"; the plan is for {inputs.demand:,.0f}"
    return text


def _arrow(decision: Decision) -> str:
    return f"{decision.before} -> {decision.plan}" if decision.changed else str(decision.plan)


def _predicted(chosen: Forecast | None) -> str:
    return f"({chosen.utilization:.2f}, {chosen.low:.2f} to {chosen.high:.2f})" if chosen is not None else ""


def _bottleneck(chosen: Forecast | None) -> str:
    if chosen is None:
        return ""
    return (
        "no stage takes as long as what is fixed"
        if chosen.bottleneck == "fixed"
        else f"{chosen.bottleneck} is the bottleneck"
    )


def _no_help(outcome: ChangeOutcome) -> str:
    change = outcome.change
    return (
        f"{change.before} -> {change.after} did not help, batches took {outcome.observed:.2f} s where "
        f"{outcome.predicted:.2f} s were predicted, and {outcome.without:.2f} s without it"
    )
