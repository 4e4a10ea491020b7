"""Limits of waiting for pods."""

from __future__ import annotations

from .cluster import KEY

LIMIT = {
    "kind": "ResourceQuota",
    "metadata": {"name": "few", "namespace": KEY.namespace, "uid": "few", "resourceVersion": "1"},
    "spec": {"hard": {"pods": "1"}},
}
