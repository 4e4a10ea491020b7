"""The plan in a ConfigMap, as the operator writes it, followed by a watch that survives outages of the API server.

``pod.agent`` scales the executors to it, and ``run.steering`` puts it into the next batch.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from kubernetes.client import ApiException, CoreV1Api, V1ConfigMap
from kubernetes.watch import Watch
from pydantic import ValidationError
from urllib3.exceptions import HTTPError

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.plan import PLAN_KEY, Plan
from millrace_api.model.snapshots import SNAPSHOT_REQUEST_KEY, SnapshotRequest
from millrace_api.validation.loading import load_plan
from millrace_jobs.plan.plan_source import pin_of
from millrace_jobs.pod.versions import PodVersions
from millrace_support.backoff import Backoff
from millrace_support.refusals import refusal

WATCH_SECONDS = 60
"""Seconds after which the server ends a watch, so that a dead connection does not go unnoticed."""

TIMEOUT = (5, 20)
"""Seconds to wait for a connection, and for an answer."""

log = logging.getLogger(__name__)


class PlanWatch:
    """A plan source that follows a ConfigMap on a thread from ``start`` to ``stop``.

    The first plan comes from the mounted file of the ConfigMap, so a driver starts without the API server. The kubelet
    updates that file only after about a minute; the watch delivers later plans at once.

    Args:
        api: client of the cluster.
        namespace, name: the ConfigMap.
        mounted: the file that the ConfigMap is mounted as.
        versions: loads the version of the query that the ConfigMap names.

    Raises:
        MillraceError: the first plan cannot be followed.
    """

    def __init__(
        self, api: CoreV1Api, namespace: str, name: str, mounted: Path, versions: PodVersions | None = None
    ) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._versions = versions
        first = load_plan(mounted)
        pin_of(first)
        self._newest = first
        self._seen = first.epoch
        self._unread: Plan | None = first
        self._invalid: MillraceError | None = None
        self._refused: str | None = None  # the text of the invalid plan that is in the ConfigMap
        self.restores = 0
        """How often the ConfigMap has gone back to an earlier plan, as when the API server's store is restored."""
        self.snapshot_request: SnapshotRequest | None = None
        """The snapshot that the operator asks for; None if it does not, or nothing that could be read."""
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._is_started = False

    @property
    def newest(self) -> Plan:
        """The newest plan that could be read."""
        return self._newest

    def current(self) -> Plan | None:
        """Return the newest plan, or None if it has not changed since the last call.

        Raises:
            MillraceError: the ConfigMap has no valid plan; raised once for each such change.
        """
        with self._lock:
            invalid, self._invalid = self._invalid, None
            if invalid is not None:
                raise invalid
            unread, self._unread = self._unread, None
            return unread

    def start(self) -> None:
        """Start the thread that follows the ConfigMap; once it runs, hand out the newest plan to another reader."""
        if self._is_started:
            with self._lock:
                self._unread = self._newest
            return
        self._is_started = True
        threading.Thread(target=self._follow, name="plan-watch", daemon=True).start()

    def stop(self) -> None:
        """Stop following the ConfigMap; a watch that is still open is abandoned."""
        self._stopped.set()

    def _follow(self) -> None:
        backoff = Backoff()
        while not self._stopped.is_set():
            try:
                self._watch(self._read())
                backoff.reset()
            except (ApiException, HTTPError, OSError) as error:
                log.warning("the plan cannot be followed for now: %s", error_line(error))
                self._stopped.wait(backoff.next())

    def _read(self) -> str:
        """Read the current plan; return the resource version to watch from."""
        found: Any = self._api.read_namespaced_config_map(self._name, self._namespace, _request_timeout=TIMEOUT)
        self._adopt(found)
        return str(found.metadata.resource_version)

    def _watch(self, version: str) -> None:
        """Follow one watch to its end."""
        events: Any = Watch().stream(  # type: ignore[no-untyped-call]
            self._api.list_namespaced_config_map,
            self._namespace,
            field_selector=f"metadata.name={self._name}",
            resource_version=version,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(TIMEOUT[0], WATCH_SECONDS + TIMEOUT[1]),
        )
        for event in filter(None, events):  # None is a line without an event
            if self._stopped.is_set():
                return
            if event["type"] in ("ADDED", "MODIFIED"):
                self._adopt(event["object"])

    def _adopt(self, found: V1ConfigMap) -> None:
        """Adopt a plan of a later epoch; report an unreadable one once, and keep the last good plan.

        An earlier plan is not followed: the operator writes it under a later epoch once it knows the driver's.
        """
        self.snapshot_request = _snapshot_request_in(found)
        self._adopt_plan(found)
        if self._versions is not None:
            self._versions.adopt(found.data or {})

    def _adopt_plan(self, found: V1ConfigMap) -> None:
        text = (found.data or {}).get(PLAN_KEY)
        if text is None or text == self._refused:  # every acknowledgement and every new watch brings it again
            return
        try:
            plan = Plan.from_json(text)
        except ValidationError as error:
            self._refused = text
            why = f"{PLAN_KEY} of the ConfigMap {self._name} is not a plan: {error.errors()[0]['msg']}"
            with self._lock:
                self._invalid = MillraceError(Problem(why, "leave it to the operator to write it"))
            return
        self._refused = None
        with self._lock:
            if plan.epoch > self._newest.epoch:
                self._newest = self._unread = plan
            self.restores += plan.epoch < min(self._seen, self._newest.epoch)
            self._seen = plan.epoch


def _snapshot_request_in(found: V1ConfigMap) -> SnapshotRequest | None:
    with suppress(ValidationError):
        text = (found.data or {}).get(SNAPSHOT_REQUEST_KEY)
        return SnapshotRequest.from_json(text) if text else None
    return None


def error_line(error: Exception) -> str:
    """Return the error of a request to the API server as one line."""
    if isinstance(error, ApiException):
        return refusal(error.status, error.reason, error.body)
    return str(error).split("\n", 1)[0]
