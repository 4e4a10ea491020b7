"""Query document for the driver, with paths of mounted files instead of references to cluster objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from millrace_api.model.streamquery import StreamQuery

SECRETS = "/etc/millrace/secrets"
"""Mount path of Secrets: one folder per Secret, one file per entry."""

CHECKPOINT = "/var/lib/millrace/checkpoint"
"""Mount path of the checkpoint's volume claim in driver and executors, with one folder per query name."""


@dataclass
class MountedQuery:
    """Document that the driver runs, and the entries that it needs, by Secret."""

    document: dict[str, Any]
    secrets: dict[str, set[str]] = field(default_factory=dict)


def mounted_query(query: StreamQuery) -> MountedQuery:
    """Return the query without the parts that only the operator uses.

    A Secret is mounted and read as a file on use. So no ConfigMap contains it, and a rotated Secret takes effect.
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
"""Fields of a spec that only the operator uses."""


def _with_files(value: Any, secrets: dict[str, set[str]]) -> Any:
    """Replace each ``secretKeyRef`` by ``file: PATH`` and add its entry to ``secrets``."""
    if isinstance(value, dict):
        if set(value) == {"secretKeyRef"}:
            name, key = value["secretKeyRef"]["name"], value["secretKeyRef"]["key"]
            secrets.setdefault(name, set()).add(key)
            return {"file": f"{SECRETS}/{name}/{key}"}
        return {part: _with_files(below, secrets) for part, below in value.items()}
    return [_with_files(each, secrets) for each in value] if isinstance(value, list) else value
