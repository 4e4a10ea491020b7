"""What the API server shows of a query, and waiting for it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

PATIENCE = 120.0


def status_of(kubectl: Callable[..., str], name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(kubectl("get", "sq", name, "-o", "json")).get("status", {})
    return found


def ready_of(kubectl: Callable[..., str], name: str, generation: int = 1) -> dict[str, Any]:
    """The condition Ready for a generation, when it has come."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        status = status_of(kubectl, name)
        if status.get("observedGeneration") == generation:
            (ready,) = [each for each in status["conditions"] if each["type"] == "Ready"]
            return dict(ready)
        time.sleep(0.1)
    raise AssertionError(f"no status of {name} for generation {generation}: {status_of(kubectl, name)}")


def mounted_configuration(kubectl: Callable[..., str], query: str = "trips-by-cell") -> str:
    """The ConfigMap with the configuration of a query's driver, as kubectl takes it."""
    path = "{.spec.template.spec.volumes[?(@.name=='query')].configMap.name}"
    return f"configmap/{kubectl('get', 'statefulset', f'{query}-driver', '-o', f'jsonpath={path}')}"


def wait_until(condition: Callable[[], bool]) -> None:
    """Until it holds; what cannot be looked at yet does not."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if condition():
                return
            why = "it does not hold"
        except AssertionError as error:
            why = str(error)
        assert time.monotonic() < deadline, why
        time.sleep(0.2)
