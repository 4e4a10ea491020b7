"""What pods get beside what their query says: see ``PodDefaults``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from millrace_api.model.status import MemoryStatus

from .memory import AS_SPECIFIED
from .names import Manifest

_USER = 10001
"""User id in the image; it owns no files there."""

_FIXED_USER: Manifest = {"runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER}


@dataclass(frozen=True)
class PodDefaults:
    """Settings of the pods of all queries, which a query's own image and pod templates override.

    The memory that was raised is that of one query.

    Attributes:
        image: image of queries without one.
        pull_policy: when nodes pull the image; None for Kubernetes' own rule.
        pull_secrets: Secrets with which it is pulled, in the namespace of the query.
        fixed_user: whether pods ask for the user and groups of the image. OpenShift assigns them, and refuses others.
        raised: memory of the query's driver and executors that was raised after it ran out.
    """

    image: str
    pull_policy: str | None = None
    pull_secrets: Sequence[str] = ()
    fixed_user: bool = True
    raised: MemoryStatus = AS_SPECIFIED

    @property
    def container(self) -> Manifest:
        """Fields of a container besides its image."""
        return {} if self.pull_policy is None else {"imagePullPolicy": self.pull_policy}

    @property
    def pod(self) -> Manifest:
        """Fields of a pod."""
        secrets: list[Any] = [{"name": name} for name in self.pull_secrets]
        return {"imagePullSecrets": secrets} if secrets else {}

    @property
    def security(self) -> Manifest:
        """Security context of a pod, at the restricted level."""
        return {
            "runAsNonRoot": True,
            **(_FIXED_USER if self.fixed_user else {}),
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        }
