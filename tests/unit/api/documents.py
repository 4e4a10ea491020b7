"""A small valid query as lines of YAML, for tests that change one line."""

from pathlib import Path

from millrace_api.validation.loading import validate_file

MINIMAL = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: trips-by-cell}
spec:
  sources:
    trips:
      files: {path: data/*.csv, format: csv}
      schema: cell STRING, fare DOUBLE, at TIMESTAMP
  query:
    sql: SELECT cell, count(*) AS n FROM trips GROUP BY cell
  sink: {console: {}}
"""

ON_CLUSTER = f"{MINIMAL}  checkpoint: {{claimName: checkpoints}}\n"

PYTHON = """\
apiVersion: millrace.io/v1alpha1
kind: StreamQuery
metadata: {name: top-routes}
spec:
  sources:
    trips:
      files: {path: data/*.csv, format: csv}
      schema: cell STRING, fare DOUBLE, at TIMESTAMP, tags STRING
      watermark: {column: at, delay: 30s}
  query:
    python:
      aggregator: mypackage.routes:TopRoutes
      groupBy: [cell]
      window: {column: at, size: 10m, slide: 1m}
  sink: {console: {}}
  emit: OnWindowClose
"""


def changed(text: str, line: int, replacement: str) -> str:
    """Return the text with one line (from 1) replaced. A line past the end is appended."""
    lines = text.splitlines()
    lines[line - 1 : line] = [replacement]
    return "\n".join(lines) + "\n"


def problems(folder: Path, text: str) -> list[str]:
    """Return the problems of the text as a file, one ``line: field: message; hint`` each."""
    path = folder / "query.yaml"
    path.write_text(text, encoding="utf-8")
    return [str(problem).removeprefix(f"{path}:") for problem in validate_file(path)]
