"""Write all dashboards of the chart into a folder; the output is deterministic."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from . import autoscaler, fleet, operator, partitioning, query

DASHBOARDS = {
    "autoscaler": autoscaler.dashboard,
    "fleet": fleet.dashboard,
    "operator": operator.dashboard,
    "partitioning": partitioning.dashboard,
    "query": query.dashboard,
}
"""Dashboard factories by file name, without the extension."""


def texts() -> dict[str, str]:
    """Return the text of each dashboard file, by its name."""
    return {f"{name}.json": _json(make().build()) for name, make in DASHBOARDS.items()}


def _json(model: object) -> str:
    return json.dumps(model, cls=JSONEncoder, sort_keys=True, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m monitoring.dashboards FOLDER")
    for file, text in texts().items():
        Path(sys.argv[1], file).write_text(text, encoding="utf-8")
