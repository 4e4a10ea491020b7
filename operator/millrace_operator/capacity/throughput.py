"""Throughput of a workload under back pressure: paper 002, Algorithm 2 (section 4.1.2), and what it leaves unused.

No record is lost: an overloaded operator throttles those before it, back to the sources.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from millrace_support.batch_sizes import TOLERANCE

from .bottleneck import OperatorLoad, loads
from .cost_model import Inflow, inflow, work
from .flow import Configuration, Flow, Workload


def throughput(flow: Flow, configuration: Configuration, workload: Workload) -> dict[str, float]:
    """Return the records per second that each operator processes: Algorithm 2, and then whatever it leaves unused.

    The sources grow from the rates that the algorithm gives them, all in the same proportion, each until it reaches its
    workload or feeds an operator that is full. docs/capacity.md says why.
    """
    if flow.turns is not None and flow.turns.share <= 0:
        return dict.fromkeys(flow.operators, 0.0)
    names = flow.sources
    wanted = np.array([workload[name] for name in names])
    first = back_pressure(flow, loads(flow, configuration, workload))
    rates = np.array([first[name] for name in names])
    load = np.array([_utilizations(flow, configuration, {name: 1.0}) for name in names])
    if flow.turns is not None:
        rates /= max(float(rates @ load[:, -1]), 1.0)  # Algorithm 2 knows of no limit for all operators together
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
    """Return each operator's effective input rate in records per second: Algorithm 2 on the result of Algorithm 1.

    Line 18 is read as equation 4.12, which it cites (docs/capacity.md). An operator that emits nothing, with
    selectivity 0 or without input, is limited by its capacity alone (4.10).
    """
    effective: dict[str, float] = {}
    for operator in reversed(list(flow.order)):
        name = operator.name
        load = offered[name]
        effective[name] = min(load.arriving.records, load.capacity.total)
        if load.sent:
            shares = (effective[consumer] / offered[consumer].arriving.records for consumer in flow.consumers[name])
            effective[name] *= min(shares, default=1.0)
    return effective


def _growth(used: NDArray[np.float64], growing: NDArray[np.float64], missing: NDArray[np.float64]) -> float:
    """Return the factor by which sources may grow until an operator they feed is full, or one reaches its workload."""
    fed = growing > 0
    return float(min(np.min(1 + (1 - used[fed]) / growing[fed], initial=np.inf), missing.min()))


def time_shares(flow: Flow, configuration: Configuration, rates: Workload) -> dict[str, float]:
    """Return the share of the time for which each operator's tasks are busy, if no operator holds back any record."""
    passing = _unhindered(flow, configuration, rates)
    return {
        name: work(flow, configuration, flow.operators[name], arriving).processing
        / flow.at_once(configuration[name].tasks)
        for name, arriving in passing.items()
    }


def _utilizations(flow: Flow, configuration: Configuration, rates: Mapping[str, float]) -> list[float]:
    """Return the busy share of every operator's processor, input and output network; linear in the sources' rates.

    Where operators take turns, there is one more: the time that they take together, as a share of what they have.
    """
    known = dict.fromkeys(flow.sources, 0.0) | dict(rates)
    passing = _unhindered(flow, configuration, known)
    needed = [(name, work(flow, configuration, flow.operators[name], arriving)) for name, arriving in passing.items()]
    shares = [
        part / flow.at_once(configuration[name].tasks)
        for name, of in needed
        for part in (of.processing, of.input, of.output)
    ]
    if flow.turns is not None:
        shares.append(sum(time_shares(flow, configuration, known).values()) / flow.turns.share)
    return shares


def _unhindered(flow: Flow, configuration: Configuration, rates: Workload) -> dict[str, Inflow]:
    """Return what would arrive at every operator if none were overloaded."""
    result: dict[str, Inflow] = {}
    sent: dict[str, float] = {}
    for operator in flow.order:
        result[operator.name] = inflow(flow, configuration, operator, sent, rates)
        sent[operator.name] = operator.selectivity * result[operator.name].records
    return result
