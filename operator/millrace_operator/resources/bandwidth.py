"""The network of executors, as far as the pod template limits it.

Kubernetes has no field for a pod's bandwidth. The bandwidth plugin of the CNI reads two annotations of the pod and
enforces them, so that they are the one place where the capacity of a pod's network stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from millrace_api.errors import quote
from millrace_api.model.deployment import Pod

from ..scaling.shape import Network

INGRESS, EGRESS = "kubernetes.io/ingress-bandwidth", "kubernetes.io/egress-bandwidth"
"""Annotations with the bits per second that a pod may receive and send, as quantities such as 500M."""

_LEAST, _MOST = 1_000, 10**15
"""Bits per second that the plugin accepts: 1k to 1P."""


def executor_network(pod: Pod) -> Network | None:
    """Return the network that the pod template states; None if it states nothing, or nothing that can be read."""
    annotations = _annotations(pod.pod_template or {})
    receives, sends = (_bits(annotations.get(name)) for name in (INGRESS, EGRESS))
    if receives is None and sends is None:
        return None
    return Network(*(math.inf if bits is None else bits / 8 for bits in (receives, sends)))


def wrong_bandwidths(template: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield places in a pod template whose bandwidth the plugin would reject, each with a message and a hint."""
    annotations = _annotations(template)
    for name in (INGRESS, EGRESS):
        if name in annotations and _bits(annotations[name]) is None:
            message = f"{quote(annotations[name])} is not a bandwidth"
            yield f"metadata.annotations[{name}]", message, "write bits per second from 1k to 1P, such as 500M"


def _annotations(template: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = template.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return annotations if isinstance(annotations, Mapping) else {}


def _bits(quantity: Any) -> float | None:
    try:
        bits = parse_quantity(quantity) if isinstance(quantity, str) else Decimal(-1)  # type: ignore[no-untyped-call]
        return float(bits) if _LEAST <= bits <= _MOST else None  # a comparison with NaN is an ArithmeticError, too
    except (ValueError, ArithmeticError):
        return None
