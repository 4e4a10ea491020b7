"""Write all dashboards of the chart into a folder; the output is deterministic."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from . import autoscaler, fleet, operator, partitioning, query

_DASHBOARDS = {
    "autoscaler": autoscaler.dashboard,
    "fleet": fleet.dashboard,
    "operator": operator.dashboard,
    "partitioning": partitioning.dashboard,
    "query": query.dashboard,
}
"""Dashboard factories by file name, without the extension."""

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m monitoring.dashboards FOLDER")
    for name, make in _DASHBOARDS.items():
        text = json.dumps(make().build(), cls=JSONEncoder, sort_keys=True, indent=1, ensure_ascii=False)
        Path(sys.argv[1], f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
