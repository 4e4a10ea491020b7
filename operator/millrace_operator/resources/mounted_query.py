"""The query as the driver finds it: with paths of mounted files in place of what only the cluster can resolve."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millrace_api.model.streamquery import StreamQuery

SECRETS = "/etc/millrace/secrets"
"""Below it each Secret is a folder, and each of its entries a file."""

CHECKPOINT = "/var/lib/millrace/checkpoint"
"""Where a volume claim is mounted, in the driver and in the executors; each query has a folder of its name there."""


@dataclass
class MountedQuery:
    """``document`` is what the driver runs; ``secrets`` the entries it needs, by Secret."""

    document: dict[str, Any]
    secrets: dict[str, set[str]] = field(default_factory=dict)


def mounted_query(query: StreamQuery) -> MountedQuery:
    """The query without what concerns the operator alone.

    A Secret is mounted and read as a file when it is used, so it is in no ConfigMap, and a rotated one is taken over.
    """
    document = query.to_document()
    name = document["metadata"]["name"]
    spec = {part: value for part, value in document["spec"].items() if part not in _OPERATORS}
    for pod in ("driver", "executors"):
        spec[pod].pop("podTemplate", None)
    mounted = MountedQuery({"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": {"name": name}})
    mounted.document["spec"] = _with_files(spec, mounted.secrets)
    if query.spec.checkpoint is not None and query.spec.checkpoint.claim is not None:
        mounted.document["spec"]["checkpoint"] = {"uri": f"file://{CHECKPOINT}/{name}"}
    return mounted


_OPERATORS = frozenset({"state", "image", "serviceAccountName", "restartNonce", "replanNonce"})
"""Parts of a spec that the operator carries out."""


def _with_files(value: Any, secrets: dict[str, set[str]]) -> Any:
    """The same with ``file: PATH`` wherever there was a ``secretKeyRef``."""
    if isinstance(value, dict):
        if set(value) == {"secretKeyRef"}:
            name, key = value["secretKeyRef"]["name"], value["secretKeyRef"]["key"]
            secrets.setdefault(name, set()).add(key)
            return {"file": f"{SECRETS}/{name}/{key}"}
        return {part: _with_files(below, secrets) for part, below in value.items()}
    return [_with_files(each, secrets) for each in value] if isinstance(value, list) else value
