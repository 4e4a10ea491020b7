"""The versions of a query in one driver's pod: the one that it runs, and the one that is to take over from it.

The operator names the next version, for this pod, in the plan's ConfigMap; ``plan_watch`` hands that over. Its
configuration is read, and its query checked, while the old version runs. ``run.job`` then ends the old one after its
running batch, and ``agent`` reports which one runs. A container that starts again in this pod begins with the newest.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubernetes.client import CoreV1Api
from pydantic import ValidationError

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.confinement import CONFINEMENT_FILE
from millrace_api.model.streamquery import StreamQuery
from millrace_api.model.takeover import NEXT_VERSION_KEY, RUNNING_VERSION_KEY, NextVersion, RunningVersion

_TIMEOUT = (5, 20)
_LONGEST_MESSAGE = 1024

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedVersion:
    """A version of the query that can be run: its revision, and the file of its query with its confinement beside it.

    The revision is empty for the version that the pod was created for.
    """

    revision: str
    file: Path
    query: StreamQuery | None = None


class PodVersions:
    """The versions in this pod; without the uid of the pod there is only the one that is mounted.

    Args:
        api: client of the cluster.
        namespace: the pod's.
        pod: uid of the pod; empty if it is not known.
        mounted: the file of the query that the pod was created for.
        read_query: reads a query's file.
    """

    def __init__(
        self, api: CoreV1Api, namespace: str, pod: str, mounted: Path, read_query: Callable[[Path], StreamQuery]
    ) -> None:
        self._api, self._namespace, self._pod, self._mounted = api, namespace, pod, mounted
        self._read_query = read_query
        self._lock = threading.Lock()
        self._running = RunningVersion(pod=pod)
        self._next: LoadedVersion | None = None
        self._folders: list[Path] = []
        self._give_way: Callable[[], None] = lambda: None

    @property
    def pod(self) -> str:
        """The uid of the driver's pod; empty if it is unknown."""
        return self._pod

    @property
    def report(self) -> RunningVersion | None:
        """The report for the operator; None if it can name no version for this pod."""
        with self._lock:
            return self._running if self._pod else None

    def first(self, found: Mapping[str, str]) -> LoadedVersion:
        """Return the version to begin with in a container that has just started, by the entries of the ConfigMap.

        Raises:
            MillraceError: the configuration of the next version is not what its name says.
            ApiException: the API server refuses the request; urllib3's errors if it cannot be reached.
        """
        wanted = self._named_in(found)
        if wanted is None:
            return LoadedVersion("", self._mounted)
        version = self._loaded(wanted, self._files(wanted))
        with suppress(ValidationError, KeyError):
            before = RunningVersion.from_json(found[RUNNING_VERSION_KEY])
            if (before.pod, before.revision) == (self._pod, wanted.revision):
                self._running = before  # an earlier run of this container: the version's time goes on
                return version
        self._began(version)
        return version

    def adopt(self, found: Mapping[str, str]) -> None:
        """Load the version that the ConfigMap names for this pod, if it is another one, and have the run give way.

        Raises:
            ApiException: the API server refuses the request; urllib3's errors if it cannot be reached.
        """
        wanted = self._named_in(found)
        if wanted is None or wanted.revision == self._running.revision or self._next is not None:
            return
        if wanted.revision == self._running.refused:
            return
        files = self._files(wanted)
        try:
            version = self._loaded(wanted, files)
        except (MillraceError, OSError, ValueError) as error:
            log.warning("revision %s cannot take over here: %s", wanted.revision, error)
            update = {"refused": wanted.revision, "message": str(error)[:_LONGEST_MESSAGE]}
            with self._lock:
                self._running = self._running.model_copy(update=update)
            return
        with self._lock:
            self._next, give_way = version, self._give_way
        give_way()

    def when_next(self, give_way: Callable[[], None]) -> None:
        """Call ``give_way`` once another version is loaded, from any thread; at once if one is."""
        with self._lock:
            self._give_way, waits = give_way, self._next is not None
        if waits:
            give_way()

    def take_next(self) -> LoadedVersion | None:
        """Return the version that follows the one that has ended, and report it from now on; None without one."""
        with self._lock:
            version, self._next, self._give_way = self._next, None, lambda: None
            if version is not None:
                ended = [each for each in self._folders if each != version.file.parent]
                self._folders = [version.file.parent]
        if version is not None:
            self._began(version)
            for each in ended:
                shutil.rmtree(each, ignore_errors=True)
        return version

    def computes(self) -> None:
        """Note that the version that runs has finished a batch, or has nothing to do."""
        with self._lock:
            if self._running.revision and self._running.computes_since is None:
                self._running = self._running.model_copy(update={"computes_since": _now()})

    def _began(self, version: LoadedVersion) -> None:
        with self._lock:
            self._running = RunningVersion(pod=self._pod, revision=version.revision, time=_now())

    def _named_in(self, found: Mapping[str, str]) -> NextVersion | None:
        """Return the version that the ConfigMap names for this pod; None without one."""
        text = found.get(NEXT_VERSION_KEY)
        if not text or not self._pod:
            return None
        with suppress(ValidationError):
            wanted = NextVersion.from_json(text)
            return wanted if wanted.pod == self._pod else None
        return None

    def _files(self, wanted: NextVersion) -> dict[str, str]:
        """Read the configuration of a version; the driver's Role names the one that the operator has made."""
        found: Any = self._api.read_namespaced_config_map(
            wanted.configuration, self._namespace, _request_timeout=_TIMEOUT
        )
        return dict(found.data or {})

    def _loaded(self, wanted: NextVersion, files: Mapping[str, str]) -> LoadedVersion:
        """Check a configuration, whose name is a hash of its content, and the query in it."""
        text = json.dumps(files, sort_keys=True, separators=(",", ":"))
        if not wanted.configuration.endswith("-" + hashlib.sha256(text.encode()).hexdigest()[:10]):
            problem = f"the ConfigMap {wanted.configuration} does not have the content that its name stands for"
            raise MillraceError(Problem(problem, "leave it to the operator to make it"))
        folder = Path(tempfile.mkdtemp(prefix="millrace-version-"))
        with self._lock:
            self._folders.append(folder)
        for name in (self._mounted.name, CONFINEMENT_FILE):
            if name in files:
                (folder / name).write_text(files[name], encoding="utf-8")
        file = folder / self._mounted.name
        return LoadedVersion(wanted.revision, file, self._read_query(file))


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
