"""A driver's pod as a platform: Spark in client mode, a plan from a ConfigMap, executors in pods of their own."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kubernetes import config
from kubernetes.client import ApiException, CoreV1Api
from kubernetes.config.config_exception import ConfigException
from pyspark.sql import SparkSession
from urllib3.exceptions import HTTPError

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.labels import EXECUTOR, QUERY, ROLE
from millrace_api.model.streamquery import Spec, StreamQuery
from millrace_jobs import jvm
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.following import PlanSource
from millrace_jobs.plan.pin import Pin
from millrace_jobs.pod.agent import Agent
from millrace_jobs.pod.executors import ExecutorScaler
from millrace_jobs.pod.plan_watch import TIMEOUT, PlanWatch, what_it_says
from millrace_jobs.session import pod_session, silence


@dataclass(frozen=True)
class PodIdentity:
    """Which pod this is, as its manifest says by the downward API."""

    name: str
    namespace: str
    address: str

    @classmethod
    def from_environment(cls) -> Self:
        """Raises MillraceError where this is no driver's pod."""
        try:
            return cls(os.environ["POD_NAME"], os.environ["POD_NAMESPACE"], os.environ["POD_IP"])
        except KeyError as error:
            hint = "millrace driver is for pods that the operator makes; on this machine write millrace run"
            raise MillraceError(Problem(f"the environment variable {error.args[0]} is not set", hint)) from None


class DriverPod:
    """This pod.

    Args:
        pod: which it is.
        config_map: name of the ConfigMap with the plan.
        mounted: the file as which the plan is mounted.

    Raises:
        MillraceError: the pod has no account of the cluster, or its first plan cannot be followed.
    """

    def __init__(self, pod: PodIdentity, config_map: str, mounted: Path) -> None:
        self._pod = pod
        self._api = _api()
        self._watch = PlanWatch(self._api, pod.namespace, config_map, mounted)
        self._agent = Agent(self._api, pod.namespace, config_map, self._watch)
        self.host = pod.address
        self.chooses_algorithm = True
        self._spark: SparkSession | None = None

    def state_partitions(self, spec: Spec) -> int:
        """At most one per core that there may ever be."""
        return spec.state_partitions(spec.executors.max * spec.executors.cores)

    def plans(self) -> PlanSource:
        """The ConfigMap's, from now on."""
        self._watch.start()
        return self._watch

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        """With executors that nobody has used before; what a driver that died has left is taken away first."""
        self._clear(query.name)
        # names of their own: those of a run before may still be taken
        prefix = f"{query.name}-{secrets.token_hex(3)}"
        wanted = self._watch.newest.executors
        self._spark = pod_session(
            query.name, partitions, query.spec.spark_conf, workspace, self._pod.address, prefix, wanted
        )
        return self._spark

    def cores(self, spark: SparkSession) -> int:
        """Of the executors that take tasks; before any does, of those that the plan wants."""
        executors = self._agent.ready or self._watch.newest.executors
        return executors * int(spark.conf.get("spark.executor.cores") or 1)

    def started(self, spark: SparkSession, partitions: int) -> None:
        """Let executors and acknowledgement follow the plan from now on."""
        self._agent.start(ExecutorScaler(spark), partitions)

    def batch(self, report: BatchReport) -> None:
        """Of which the operator is told the plan."""
        self._agent.batch(report)

    def idle(self, pin: Pin) -> None:
        """A plan takes effect without a batch, too."""
        self._agent.idle(pin)

    def close(self) -> None:
        """Follow the plan no longer."""
        self._agent.stop()
        self._watch.stop()
        if self._spark is not None and jvm.is_running():
            silence(self._spark)

    def _clear(self, query: str) -> None:
        """Remove an earlier run's word about its plan, and its executors: they belong to the pod, which outlives it.

        Raises:
            MillraceError: the API server is away, without which there come no other executors either.
        """
        try:
            self._agent.forget()
            self._api.delete_collection_namespaced_pod(
                self._pod.namespace, label_selector=f"{QUERY}={query},{ROLE}={EXECUTOR}", _request_timeout=TIMEOUT
            )
        except (ApiException, HTTPError, OSError) as error:
            problem = f"what an earlier run has left cannot be removed: {what_it_says(error)}"
            hint = "the driver is started again by itself; without the API server there are no executors"
            raise MillraceError(Problem(problem, hint)) from None


def _api() -> CoreV1Api:
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except ConfigException:
        hint = "let its service account's token be mounted"
        raise MillraceError(Problem("this pod has no account of the cluster", hint)) from None
    return CoreV1Api()
