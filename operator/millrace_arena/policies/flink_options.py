"""Options of the autoscaler of the Flink Kubernetes operator, with the defaults of its release 1.10.0."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FlinkOptions:
    """Options of the autoscaler, each with its published name after ``job.autoscaler.`` in a comment.

    Times are whole seconds. ``busy_from_total`` selects AVG as the aggregator of busy time instead of MAX.
    """

    target_utilization: float = 0.7  # target.utilization
    utilization_boundary: float = 0.3  # target.utilization.boundary
    metrics_window: int = 900  # metrics.window
    stabilization: int = 300  # stabilization.interval
    scale_down_interval: int = 3600  # scale-down.interval
    min_parallelism: int = 1  # vertex.min-parallelism
    max_parallelism: int = 200  # vertex.max-parallelism
    max_scale_down: float = 0.6  # scale-down.max-factor
    max_scale_up: float = 100_000.0  # scale-up.max-factor
    catch_up: int = 1800  # catch-up.duration
    restart: int = 300  # restart.time
    backlog_lag: int = 300  # backlog-processing.lag-threshold
    observed_lag: int = 30  # observed-true-processing-rate.lag-threshold
    observed_switch: float = 0.15  # observed-true-processing-rate.switch-threshold
    observed_samples: int = 2  # observed-true-processing-rate.min-observations
    block_ineffective: bool = False  # scaling.effectiveness.detection.enabled
    effectiveness: float = 0.1  # scaling.effectiveness.threshold
    history_age: int = 86_400  # history.max.age
    busy_from_total: bool = False  # metrics.busy-time.aggregator
    excluded: frozenset[str] = frozenset()  # vertex.exclude.ids
