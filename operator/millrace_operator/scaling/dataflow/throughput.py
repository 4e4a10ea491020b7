"""How much of a workload gets through with back pressure: paper 002, Algorithm 2 (section 4.1.2), and what it leaves.

No record is lost: an overloaded operator holds back those before it, down to the sources.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .bottleneck import OperatorLoad, arrivals, loads
from .cost_model import TOLERANCE, Inflow, work
from .flow import Configuration, Flow, Workload


def throughput(flow: Flow, configuration: Configuration, workload: Workload) -> dict[str, float]:
    """Records per second that each operator processes: Algorithm 2, and then whatever it leaves unused.

    The algorithm passes back once. An operator that shares its capacity among producers does not learn that one of
    them is held back elsewhere, and keeps a share for it that is never used. So the sources grow from what the
    algorithm gives them, all in the same proportion; one stops when it has its workload or when an operator that it
    feeds is full. Where the algorithm leaves nothing, nothing changes. With one source, the result is the largest
    rate up to the workload at which no operator is overloaded.
    """
    names = flow.sources
    wanted = np.array([workload[name] for name in names])
    first = back_pressure(flow, loads(flow, configuration, workload))
    rates = np.array([first[name] for name in names])
    load = np.array([_utilizations(flow, configuration, {name: 1.0}) for name in names])
    while True:
        used = rates @ load
        full = used >= 1 - TOLERANCE
        growing = (rates < wanted * (1 - TOLERANCE)) & ~(load[:, full] > 0).any(axis=1)
        if not growing.any():
            break
        growth = _growth(used, (rates * growing) @ load, wanted[growing] / rates[growing])
        rates[growing] *= growth
    passing = _unhindered(flow, configuration, dict(zip(names, rates.tolist(), strict=True)))
    return {name: arriving.records for name, arriving in passing.items()}


def back_pressure(flow: Flow, offered: Mapping[str, OperatorLoad]) -> dict[str, float]:
    """Algorithm 2 on the result of Algorithm 1: effective input rate of each operator, records per second.

    Line 18 prints min over consumers of their whole effective input, divided by s; a consumer with several producers
    would thus be granted to each of them in full. Equation 4.12, which the line cites, divides the operator's own
    effective output by s, and that is what line 16 has just computed (4.11): the consumer's input in the proportion
    in which the operator contributes to it. An operator that emits nothing, with selectivity 0 or without input, is
    held back by nobody, and limited by its capacity alone (4.10).
    """
    effective: dict[str, float] = {}
    for operator in reversed(list(flow.order)):
        name = operator.name
        able = offered[name]
        effective[name] = min(able.arriving.records, able.capacity.total)
        if able.sent:
            shares = (effective[consumer] / offered[consumer].arriving.records for consumer in flow.consumers[name])
            effective[name] *= min(shares, default=1.0)
    return effective


def _growth(used: NDArray[np.float64], growing: NDArray[np.float64], missing: NDArray[np.float64]) -> float:
    """By what factor sources may grow: until an operator that they feed is full, or one has its workload."""
    fed = growing > 0
    return float(min(np.min(1 + (1 - used[fed]) / growing[fed], initial=np.inf), missing.min()))


def _utilizations(flow: Flow, configuration: Configuration, rates: Mapping[str, float]) -> list[float]:
    """Busy share of processor and network in and out of every operator; linear in the rates of the sources."""
    passing = _unhindered(flow, configuration, dict.fromkeys(flow.sources, 0.0) | dict(rates))
    needed = [(name, work(flow, configuration, flow.operators[name], arriving)) for name, arriving in passing.items()]
    return [part / configuration[name].tasks for name, of in needed for part in (of.processing, of.input, of.output)]


def _unhindered(flow: Flow, configuration: Configuration, rates: Workload) -> dict[str, Inflow]:
    """What arrives at every operator, were none overloaded."""
    result: dict[str, Inflow] = {}
    sent: dict[str, float] = {}
    for operator in flow.order:
        result[operator.name] = arrivals(flow, configuration, operator, rates, sent)
        sent[operator.name] = operator.selectivity * result[operator.name].records
    return result
