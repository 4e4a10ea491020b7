"""What the operator exports."""

from __future__ import annotations


def show(metrics, **others):
    shown = {
        "queue_depth": lambda: 0,
        "phases": tuple,
        "queries": tuple,
        "leads": lambda: True,
        "canary_age": lambda: 1.0,
        "canary_path": lambda: 0.5,
        "kept_bytes": lambda: {f"n{number}": number for number in range(20)},
    }
    metrics.show(**shown | others)
