"""A driver's configuration: an immutable ConfigMap that is named by its content and mounted by the driver's pod.

A driver that crashes starts again with what it was started with, executors included, although the operator meanwhile
has another default image or is of another version: their configuration has another name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from .driver_config import FILES
from .names import Manifest, Owner
from .pods import strategic_merge

_VOLUME = "query"


def configuration(owner: Owner, files: Mapping[str, str]) -> Manifest:
    """Return the ConfigMap with the files of a configuration."""
    text = json.dumps(files, sort_keys=True, separators=(",", ":"))
    name = owner.configuration(hashlib.sha256(text.encode()).hexdigest()[:10])
    return owner.manifest("v1", "ConfigMap", name, {"immutable": True, "data": dict(files)})


def with_configuration(template: Manifest, container: str, name: str) -> Manifest:
    """Mount a configuration in a container of a pod template, whatever the user's template mounts there."""
    mount = {"name": _VOLUME, "mountPath": FILES, "readOnly": True}
    spec = {
        "containers": [{"name": container, "volumeMounts": [mount]}],
        "volumes": [{"name": _VOLUME, "configMap": {"name": name}}],
    }
    return strategic_merge(template, {"spec": spec})


def mounted_configuration(owner: Owner, template: Mapping[str, Any]) -> str | None:
    """Return the name of the configuration that a pod or its template mounts; None without one."""
    volumes = template.get("spec", {}).get("volumes") or ()
    names = [(each.get("configMap") or {}).get("name", "") for each in volumes if each.get("name") == _VOLUME]
    return next((str(name) for name in names if owner.is_configuration(name)), None)
