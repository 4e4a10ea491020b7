"""Output of ``millrace explain`` for a query on a cluster: its last scaling decision in full."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Group, RenderableType
from rich.text import Text

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.status import ConditionType

from ..lifecycle.query_facts import ago, one_line
from ..lifecycle.query_view import QueryView
from ..resources.names import scaling_config_map
from ..scaling.decision.changes import ChangeOutcome
from ..scaling.decision.decision import Decision, Inputs, from_before
from ..scaling.decision.search import REPLICAS, Forecast
from .cluster import Cluster
from .formatting import console, facts_table
from .user_queries import UserQueries


def explain_query(cluster: Cluster, name: str) -> None:
    """Print the last scaling decision of a query, or the state of scaling if there is no decision.

    Raises:
        MillraceError: if the query does not exist, or this version cannot parse its decision.
    """
    queries = UserQueries(cluster)
    view = queries.get(name)
    text = queries.decision(name)
    if text is None:
        typer.echo(f"no scaling decision for {name} has been recorded yet; {_scaling_active(view)}")
        return
    try:
        decision = TypeAdapter(Decision).validate_json(text)
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, ("decision.json", *wrong["loc"])))
        problem = f"the ConfigMap {scaling_config_map(name)} cannot be parsed: {where}: {wrong['msg']}"
        raise MillraceError(Problem(problem, "use the operator's version of millrace")) from None
    console().print(screen(name, decision, datetime.now(UTC)))


def screen(name: str, decision: Decision, now: datetime) -> RenderableType:
    """Return a decision with everything that it is based on."""
    time = datetime.fromtimestamp(decision.time, UTC)
    change = f"{decision.before} -> {decision.plan}" if decision.changed else f"{decision.plan} stays"
    if decision.dedicated is not None:
        change += f", replicas in {'pods' if decision.dedicated else 'tasks'}"
    head = Text.assemble((name, "bold"), " ", (change, "yellow" if decision.changed else "green"))
    decided = "decided", f"{time:%Y-%m-%d %H:%M:%S}Z, {ago(time.isoformat(), now)}"
    legend = Text("plans are executors/parallelism/replicas; W is batch time over batch interval", "dim")
    return Group(head, Text(one_line(decision.sentence)), facts_table([decided, *_facts(decision)]), legend)


def _facts(decision: Decision) -> Iterator[tuple[str, str]]:
    yield "reason", f"{decision.reason}{': ' if decision.detail else ''}{decision.detail}"
    yield "guard", "none" if decision.guard is None else str(decision.guard)
    if decision.zone is not None:
        drivers = " and ".join(sorted(decision.drivers)) or "nothing in particular"
        yield "zone", f"{decision.zone}, driven by {drivers}"
    if decision.inputs is not None:
        yield from _inputs(decision.inputs)
    if decision.present is not None:
        yield "current", _forecast(decision.present)
    if decision.chosen is not None and decision.chosen != decision.present:
        yield "best plan", _forecast(decision.chosen)
    if (serial := decision.serial) is not None:
        yield "serial part", f"{serial}{'; more than the target' if serial.exceeds else ''}"
    if decision.placement:
        yield "placement", decision.placement
    for number, (plan, why) in enumerate(decision.ruled_out):
        yield "" if number else "ruled out", f"{plan}: {why}"
    yield "last change", _outcome(decision.outcome)


def _inputs(inputs: Inputs) -> Iterator[tuple[str, str]]:
    interval = f"at an interval of {inputs.interval:g} s"
    yield "W", f"{inputs.utilization:.2f} {interval}; without catching up {inputs.at_arrival:.2f}"
    growth = ""
    if inputs.growth is not None:
        before = from_before(inputs)
        growth = f", {before} at the last change" if before else f", {inputs.growth:+.0%} since the last change"
    yield "arrival", f"{inputs.arrival:,.0f} records/s{growth}; {inputs.lag:,.0f} records wait"
    keys = "an unknown number of" if inputs.keys is None else f"{inputs.keys:,.0f}"
    yield "demand", f"plans are made for {inputs.demand:,.0f} records/s, with {keys} keys in a batch"


def _forecast(forecast: Forecast) -> str:
    longest = {"fixed": "fixed costs take longest", REPLICAS: "replicas are busier than that"}
    limit = longest.get(forecast.bottleneck, f"{forecast.bottleneck} takes longest")
    interval = f"{forecast.low:.2f} to {forecast.high:.2f}"
    return f"{forecast.plan}: W {forecast.utilization:.2f} is predicted, {interval}; {limit}"


def _outcome(outcome: ChangeOutcome | None) -> str:
    if outcome is None:
        return "none, or its effect is not known yet"
    change = outcome.change
    return (
        f"{change.before} -> {change.after} {'helped' if outcome.helped else 'did not help'}: batches took "
        f"{outcome.observed:.2f} s, {outcome.predicted:.2f} s were predicted ({outcome.error:+.0%}), and "
        f"{outcome.without:.2f} s without it"
    )


def _scaling_active(view: QueryView) -> str:
    condition = view.condition(ConditionType.SCALING_ACTIVE)
    if condition is None:
        return "whether scaling is active is not reported either"
    message = f": {one_line(condition.message)}" if condition.message else ""
    return f"ScalingActive is {condition.status} ({condition.reason}{message})"
