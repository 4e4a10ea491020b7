"""Annotations of a StreamQuery by which people steer the operator for a while, without changing the spec."""

from __future__ import annotations

from collections.abc import Mapping

PAUSED = "millrace.io/paused"
"""Nothing is changed: no scaling, no replacement, nothing put right. What runs goes on; a deletion is carried out."""

PAUSED_SCALE_IN = "millrace.io/paused-scale-in"
"""No cores are given back."""

PAUSED_SCALE_OUT = "millrace.io/paused-scale-out"
"""No cores are added."""

SKIP_DRAIN = "millrace.io/skip-drain"
"""A deletion does not wait for the driver's running batch."""


def is_set(annotations: Mapping[str, str], name: str) -> bool:
    """Whether an annotation is there and is not ``"false"``."""
    return annotations.get(name, "false").lower() != "false"
