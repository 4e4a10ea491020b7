"""The Secret by which a driver and its executors know each other, and by which their connections are encrypted.

Spark alone would pass the value in an environment variable of the executor pods, where everyone who may read pods sees
it. A mounted file shows only the Secret's name. The name is random: another client cannot put a Secret with a value of
its own in that place first.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Mapping
from typing import Any

from .driver_config import AUTH_FILE
from .names import Manifest, Owner
from .pods import strategic_merge

_VOLUME = "millrace-auth"
_FOLDER, _, _KEY = AUTH_FILE.rpartition("/")
_BYTES = 32


def auth_secret(owner: Owner) -> Manifest:
    """Return a new Secret, with a random name and value."""
    value = base64.b64encode(secrets.token_hex(_BYTES).encode()).decode()
    name = f"{_prefix(owner)}{secrets.token_hex(5)}"
    return owner.manifest("v1", "Secret", name, {"type": "Opaque", "immutable": True, "data": {_KEY: value}})


def with_auth(template: Manifest, container: str, secret: str) -> Manifest:
    """Mount a Secret of ``auth_secret`` in a container of a pod template, whatever the user's template mounts there."""
    source = {"secretName": secret, "items": [{"key": _KEY, "path": _KEY}], "defaultMode": 0o440}
    mount = {"name": _VOLUME, "mountPath": _FOLDER, "readOnly": True}
    spec = {
        "containers": [{"name": container, "volumeMounts": [mount]}],
        "volumes": [{"name": _VOLUME, "secret": source}],
    }
    return strategic_merge(template, {"spec": spec})


def mounted_auth(owner: Owner, template: Mapping[str, Any]) -> str | None:
    """Return the name of the Secret that ``with_auth`` has put into a pod or its template; None without one.

    Another client may have changed the template: a name that ``auth_secret`` never gives is ignored.
    """
    volumes = template.get("spec", {}).get("volumes") or ()
    names = [(each.get("secret") or {}).get("secretName", "") for each in volumes if each.get("name") == _VOLUME]
    return next((str(name) for name in names if name.startswith(_prefix(owner))), None)


def _prefix(owner: Owner) -> str:
    return f"{owner.name}-auth-"
