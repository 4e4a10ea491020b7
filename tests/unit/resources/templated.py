"""Pod templates with a container."""

from __future__ import annotations

import yaml

from millrace_api.model.streamquery import StreamQuery

from .cases import SMALLEST

ROLES = ("driver", "executors", "partitioner.pod")
"""Fields of the spec with a pod template."""


def templated(template, role):
    document = yaml.safe_load(SMALLEST)
    above, *below = role.split(".")
    part = {"podTemplate": template}
    document["spec"][above] = {below[0]: part} if below else part
    return StreamQuery.model_validate(document, by_name=False)


def container(**parts):
    return {"containers": [{"name": "driver", **parts}]}
