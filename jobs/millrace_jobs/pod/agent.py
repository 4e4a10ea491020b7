"""In a driver's pod, beside the query: carries out what plans say of executors, and tells how far the job has come."""

from __future__ import annotations

import logging
import threading

from kubernetes.client import ApiException, CoreV1Api
from py4j.protocol import Py4JError, Py4JNetworkError
from urllib3.exceptions import HTTPError

from millrace_api.model.applied import APPLIED_KEY, Applied
from millrace_api.model.deployment import Algorithm
from millrace_jobs.pipeline.progress import BatchReport
from millrace_jobs.plan.pin import Pin
from millrace_jobs.pod.executors import ExecutorScaler
from millrace_jobs.pod.plan_watch import TIMEOUT, PlanWatch, what_it_says

PERIOD = 1.0
"""Seconds from one look at the executors to the next."""

MANAGER = "millrace-driver"
"""Name under which the API server takes down what the driver has written."""

_SHORTEST, _LONGEST = 1.0, 30.0
"""Seconds between attempts to tell, where the API server is away; each pause is twice the one before."""

log = logging.getLogger(__name__)


class Agent:
    """Works in a thread of its own from ``start`` to ``stop``.

    Args:
        api: of the cluster.
        namespace, name: of the ConfigMap with the plan, into which the acknowledgement goes.
        plans: says how many executors there shall be.
    """

    def __init__(self, api: CoreV1Api, namespace: str, name: str, plans: PlanWatch) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._plans = plans
        self._under: Applied | None = None  # without executors
        self._partitions = 1
        self._told: Applied | None = None
        self.ready = 0
        """Executors that take tasks."""
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, executors: ExecutorScaler, partitions: int) -> None:
        """Begin; ``partitions`` are those of the state."""
        self._partitions = partitions
        self._thread = threading.Thread(target=self._work, args=(executors,), name="agent", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the step that was begun; one that waits for the API server is left behind."""
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(PERIOD + sum(TIMEOUT))

    def forget(self) -> None:
        """Take back what an earlier run has told, which is not true of this one.

        Raises ApiException, and urllib3's errors.
        """
        self._write(None)

    def batch(self, report: BatchReport) -> None:
        """A batch has been finished: it says which plan the job is under."""
        if report.pin is not None:
            self._under = self._applied(report.pin)

    def idle(self, pin: Pin) -> None:
        """There is nothing to do: a plan that was followed since the last batch needs none to have taken effect."""
        if self._under is None or self._under.epoch < pin.epoch:
            self._under = self._applied(pin)

    def _applied(self, pin: Pin) -> Applied:
        algorithm = Algorithm(pin.algorithm)
        return Applied(epoch=pin.epoch, algorithm=algorithm, state_partitions=self._partitions, executors_ready=0)

    def _work(self, executors: ExecutorScaler) -> None:
        pause, silent, trouble = _SHORTEST, 0.0, ""
        while not self._stopped.wait(PERIOD):
            try:
                self.ready, trouble = executors.keep(self._plans.newest.executors), ""
            except (Py4JNetworkError, ConnectionError):
                continue  # Spark has ended, which the run finds out by itself
            except Py4JError as error:
                said = str(error).split("\n", 1)[0]
                if said != trouble:
                    log.warning("executors do not follow the plan for now: %s", said)
                trouble = said
            silent -= PERIOD
            if silent <= 0:
                silent = 0.0 if self._tell() else pause
                pause = min(2 * pause, _LONGEST) if silent else _SHORTEST

    def _tell(self) -> bool:
        """Write down what has changed since it was told last; False where the API server cannot be told."""
        if self._under is None:
            return True
        applied = self._under.model_copy(update={"executors_ready": self.ready})
        if applied == self._told:
            return True
        try:
            self._write(applied.to_json())
        except (ApiException, HTTPError, OSError) as error:
            log.warning("the operator is not told of the plan for now: %s", what_it_says(error))
            return False
        self._told = applied
        return True

    def _write(self, text: str | None) -> None:
        """The driver's entry in the ConfigMap; None takes it away."""
        self._api.patch_namespaced_config_map(
            self._name,
            self._namespace,
            {"data": {APPLIED_KEY: text}},
            field_manager=MANAGER,
            _request_timeout=TIMEOUT,
        )
