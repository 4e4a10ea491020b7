"""What is known of a running query's costs: the observations from which its model of batch time is calibrated.

They come from the state that the operator saves for the query, from the metrics of a run in one process, or from a file
with either.
"""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.plan import APPLIED_KEY, Applied
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.connections import resolve

from ..capacity.live_flow import LiveFlow
from ..lifecycle.autoscaling.scaling_inputs import LEARNED, bounds_of
from ..metrics_source.endpoint import scraped
from ..resources.names import plan_config_map, scaling_config_map
from ..scaling.answers import AnswerReader
from ..scaling.batch_time.calibration import Calibration
from ..scaling.observation import Observation
from ..scaling.shape import Bounds, Network, Range, Shape
from .user_queries import UserQueries

_RECENT = 5
"""Observations whose median arrival is the present rate."""

_ANY = Range(1, 1)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Recording:
    """Observations of a query, and what else its model needs.

    Attributes:
        query: name of the query.
        executor_cores: cores of an executor.
        state_partitions: tasks of the merge.
        network: what an executor's network carries; None if unknown.
        calibration: the observations, as ``Calibration.save`` returns them.
    """

    query: str
    executor_cores: int
    state_partitions: int
    network: Network | None
    calibration: dict[str, Any]

    @cached_property
    def learned(self) -> Calibration:
        """The calibration with all observations.

        Raises:
            MillraceError: they are too few, or not those of this version.
        """
        found = Calibration(_bounds(self.executor_cores), self.state_partitions)
        try:
            found.restore(self.calibration)
        except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            problem = f"the observations of {self.query} cannot be read: {type(error).__name__}: {error}"
            raise MillraceError(Problem(problem, "use the version of millrace that recorded them")) from None
        if not found.ready:
            message = f"there are too few observations of {self.query} to know what its batches cost"
            raise MillraceError(Problem(message, "wait until it has run some batches under one plan"))
        return found

    @property
    def newest(self) -> Observation:
        """The last observation."""
        newest = self.learned.newest
        assert newest is not None  # a calibration that is ready has one
        return newest

    @property
    def arrival(self) -> float:
        """Records per second that arrived last."""
        rates = [float(one["seen"]["arrival"]) for one in self.calibration["observations"]]
        return statistics.median(rates[-_RECENT:])

    def flow(self, rate: float, shape: Shape, interval: float) -> LiveFlow:
        """Return the query as a flow at a rate, shape and batch interval."""
        return LiveFlow(self.query, self.learned.model(), shape, interval, rate, self.network)

    def write(self, path: Path) -> None:
        """Write the recording to a file. Raises MillraceError."""
        try:
            path.write_text(json.dumps(asdict(self)), encoding="utf-8")
        except OSError as error:
            raise MillraceError(Problem(f"{path} cannot be written: {error.strerror}", "choose another")) from None


def read_recording(path: Path) -> Recording:
    """Read a recording from a file.

    Raises:
        MillraceError: the file cannot be read, or is no recording.
    """
    try:
        return TypeAdapter(Recording).validate_json(path.read_bytes())
    except OSError as error:
        raise MillraceError(Problem(f"{path} cannot be read: {error.strerror}", "write the path of a file")) from None
    except ValidationError as error:
        first = error.errors()[0]
        problem = f"{path} is not a recording: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise MillraceError(Problem(problem, "make one with millrace model record")) from None


def recorded_by_operator(queries: UserQueries, name: str) -> Recording:
    """Return what the operator has learned of a query on the cluster.

    Raises:
        MillraceError: the query does not exist, or the operator has saved nothing of it yet.
    """
    body = queries.get(name).body
    spec = StreamQuery.model_validate(resolve(body, queries.connections(body)).document, by_name=False).spec
    saved = queries.config_map(scaling_config_map(name))
    if saved is None or LEARNED not in saved:
        hint = "wait until the operator has had metrics of it for ten minutes, or has changed its plan"
        raise MillraceError(Problem(f"the operator has saved nothing about what batches of {name} cost", hint))
    applied = (queries.config_map(plan_config_map(name)) or {}).get(APPLIED_KEY)
    partitions = spec.state_partitions(spec.executors.max * spec.executors.cores.slots)
    bounds = bounds_of(spec)
    return Recording(
        query=name,
        executor_cores=bounds.executor_cores,
        state_partitions=partitions if applied is None else Applied.from_json(applied).state_partitions,
        network=bounds.network,
        calibration=json.loads(saved[LEARNED]).get("calibration", {}),
    )


def record_run(url: str, seconds: float, cores: int) -> Recording:
    """Watch the metrics of a run in one process for some seconds, and for as long as its costs are not known.

    Args:
        url: address of its metrics.
        seconds: how long to watch at least.
        cores: cores on which its tasks run.

    Raises:
        MillraceError: there are no such metrics, or no batch ends in ten times as long.
    """
    reader, calibration = AnswerReader(), Calibration(_bounds(cores), state_partitions=1)
    began = time.monotonic()
    while True:
        name, answer = scraped(url)
        epoch = int(answer.epoch) if answer.epoch is not None else 0
        seen = reader.step(answer, answer.time, epoch)
        if isinstance(seen, Observation):
            calibration.add(seen)
        passed = time.monotonic() - began
        if passed >= seconds and calibration.ready:
            break
        if passed >= 10 * seconds:
            message = f"{name} ended too few batches in {passed:.0f} s to know what they cost"
            raise MillraceError(Problem(message, "give it more records, or watch it for longer with --seconds"))
        time.sleep(answer.interval_seconds or 1.0)
    partitions = int(answer.state_partitions or 1)
    return Recording(name, cores, partitions, None, calibration.save())


def _bounds(executor_cores: int) -> Bounds:
    return Bounds(_ANY, _ANY, _ANY, executor_cores)
