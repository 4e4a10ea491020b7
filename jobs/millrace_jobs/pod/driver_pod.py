"""A driver's pod as a platform: Spark in client mode, a plan from a ConfigMap, and executors in separate pods.

The plan comes from ``plan_watch``; ``agent`` has executors follow it, and acknowledges it.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kubernetes import config
from kubernetes.client import ApiException, CoreV1Api
from kubernetes.config.config_exception import ConfigException
from pyspark.sql import SparkSession
from urllib3.exceptions import HTTPError

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.memory_use import ExecutorSeries, MemorySeries
from millrace_api.model.streamquery import EXECUTOR, QUERY_LABEL, ROLE_LABEL, Spec, StreamQuery
from millrace_api.model.takeover import POD_UID_VARIABLE
from millrace_jobs.checkpoint.checkpoint import Checkpoint
from millrace_jobs.checkpoint.spark_settings import settings_of
from millrace_jobs.dedicated.processes import PodReplicas, ReplicaProcesses
from millrace_jobs.own_code.own_code import current, with_lists
from millrace_jobs.pending import PendingCall
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import PlanSource
from millrace_jobs.pod.agent import Agent, ExecutorScaler
from millrace_jobs.pod.plan_watch import TIMEOUT, PlanWatch, error_line
from millrace_jobs.pod.versions import LoadedVersion, PodVersions
from millrace_jobs.process import jvm
from millrace_jobs.session import ExecutorState, authenticated, following_session, pod_session, silence


class DriverPod:
    """The platform of a driver that runs in this pod, whose identity comes from the downward API.

    Args:
        config_map: name of the ConfigMap with the plan.
        mounted: the file that the plan is mounted as.
        auth_secret: file with the secret of driver and executors; None for connections that everyone may make.
        query: the file of the query that the pod was created for.
        read_query: reads the file of another version of it.

    Raises:
        MillraceError: not in a driver's pod, no service account token, or a first plan that cannot be followed.
    """

    def __init__(
        self,
        config_map: str,
        mounted: Path,
        auth_secret: Path | None,
        query: Path,
        read_query: Callable[[Path], StreamQuery],
    ) -> None:
        self._namespace, self.host = _pod_variable("POD_NAMESPACE"), _pod_variable("POD_IP")
        self._api = _api()
        self._config_map = config_map
        pod = os.environ.get(POD_UID_VARIABLE, "")
        self._versions = PodVersions(self._api, self._namespace, pod, query, read_query)
        self._watch = PlanWatch(self._api, self._namespace, config_map, mounted, self._versions)
        self._agent = Agent(self._api, self._namespace, config_map, self._watch, self._versions)
        self._auth_secret = auth_secret
        self.chooses_algorithm = True
        self._minimum = 1
        self._spark: SparkSession | None = None

    def first_version(self) -> LoadedVersion:
        """Return the version of the query to begin with: one that has taken over in this pod, or the mounted one.

        Raises:
            MillraceError: the API server cannot be reached, without which there are no executors either.
        """
        try:
            api: Any = self._api
            found = api.read_namespaced_config_map(self._config_map, self._namespace, _request_timeout=TIMEOUT)
            return self._versions.first(found.data or {})
        except (ApiException, HTTPError, OSError) as error:
            problem = f"it is not known which version of the query to run: {error_line(error)}"
            hint = "wait: the driver starts again by itself, and needs the API server to get executors"
            raise MillraceError(Problem(problem, hint)) from None

    def next_version(self) -> LoadedVersion | None:
        """Return the version that takes over from the one that has ended; None without one."""
        return self._versions.take_next()

    def when_replaced(self, give_way: Callable[[], None]) -> None:
        """Call ``give_way`` once another version of the query is to take over."""
        self._versions.when_next(give_way)

    def state_partitions(self, spec: Spec) -> int:
        """Return the number of state partitions, at most one per task slot of the maximum number of executors."""
        return spec.state_partitions(spec.executors.max * spec.executors.cores.slots)

    def plans(self) -> PlanSource:
        """Start the watch on the ConfigMap, and return it as the plan source."""
        self._watch.start()
        return self._watch

    def session(self, query: StreamQuery, partitions: int, workspace: Path, *, quiet: bool) -> SparkSession:
        """Remove what an earlier run left behind, then return a Spark session with new executors.

        A version that takes over gets a session of the same Spark.
        """
        self._minimum = query.spec.executors.min
        if self._spark is not None:
            self._spark = following_session(self._spark, partitions)
            return self._spark
        self._clear(query.name)
        # unique names: the pods of an earlier run may still exist
        prefix = f"{query.name}-{secrets.token_hex(3)}"
        wanted = self._watch.newest.executors
        settings = with_lists(settings_of(query), current().executor_settings())
        settings |= authenticated(self._auth_secret) if self._auth_secret else {}
        self._spark = pod_session(query.name, partitions, settings, workspace, self.host, prefix, wanted)
        return self._spark

    def replicas(self, query: StreamQuery, workspace: Path) -> ReplicaProcesses:
        """Return the replicas' pods, which the operator scales by the same plan."""
        return PodReplicas()

    def copies(self, checkpoint: Checkpoint) -> Path:
        """Return a folder of the pod's own disk, which outlives its containers; volumes are often those of networks."""
        return Path(tempfile.gettempdir(), "millrace-copies", checkpoint.id)

    def cores(self, spark: SparkSession) -> int:
        """Return the task slots of the executors that take tasks; before any does, of those that the plan wants.

        A plan without executors counts as one: the first tasks get it.
        """
        executors = self._agent.ready or self._watch.newest.executors or 1
        return executors * int(spark.conf.get("spark.executor.cores") or 1)

    def executors(self) -> ExecutorState:
        """Return the executors; the query needs the minimum of its spec, or those of a plan that has fewer."""
        return ExecutorState(self._agent.ready, min(self._minimum, self._watch.newest.executors), self._agent.signs)

    def snapshot_requests(self) -> Agent:
        """Return the agent, by which the operator asks for snapshots."""
        return self._agent

    def started(self, spark: SparkSession, partitions: int) -> None:
        """Start the agent, so that executors and acknowledgement follow the plan."""
        self._agent.start(ExecutorScaler(spark), partitions)

    def batch(self, report: BatchReport) -> None:
        """Report the finished batch's plan to the operator."""
        self._versions.computes()
        self._agent.batch(report)

    def idle(self, pin: Pin) -> None:
        """Report a plan that takes effect without a batch to the operator."""
        self._versions.computes()
        self._agent.idle(pin)

    def waits(self, calls: Sequence[PendingCall]) -> MillraceError | None:
        """Report the calls that last to the operator, and that none does any longer."""
        self._agent.waits(calls)
        return None

    def memory(self, driver: Sequence[MemorySeries], executor: ExecutorSeries | None) -> None:
        """Report the memory in use to the operator, once much of it is."""
        self._agent.memory(driver, executor)

    def close(self) -> None:
        """Stop the agent and the watch, and silence Spark if its JVM is running."""
        self._agent.stop()
        self._watch.stop()
        if self._spark is not None and jvm.is_running():
            silence(self._spark)

    def _clear(self, query: str) -> None:
        """Remove an earlier run's acknowledgement and its executors, whose owner is the pod and not the run.

        Raises:
            MillraceError: the API server cannot be reached; without it there are no new executors either.
        """
        try:
            self._agent.forget()
            self._api.delete_collection_namespaced_pod(
                self._namespace,
                label_selector=f"{QUERY_LABEL}={query},{ROLE_LABEL}={EXECUTOR}",
                _request_timeout=TIMEOUT,
            )
        except (ApiException, HTTPError, OSError) as error:
            problem = f"the executors of an earlier run cannot be removed: {error_line(error)}"
            hint = "wait: the driver starts again by itself, and needs the API server to get executors"
            raise MillraceError(Problem(problem, hint)) from None


def _pod_variable(name: str) -> str:
    """Return an environment variable of a driver's pod."""
    try:
        return os.environ[name]
    except KeyError:
        hint = "millrace driver is for pods that the operator creates; on this machine use millrace run"
        raise MillraceError(Problem(f"the environment variable {name} is not set", hint)) from None


def _api() -> CoreV1Api:
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    except ConfigException:
        hint = "mount the token of its service account"
        raise MillraceError(Problem("this pod cannot log in to its cluster", hint)) from None
    return CoreV1Api()
