"""Where Spark finds the schemas of its state: it writes their absolute paths into the checkpoint.

A copy, or a checkpoint that was moved, would look for them where the original was, which may be gone, or have the state
of another query by now. Spark 4.3 has the paths in ``state/OPERATOR/_metadata/v2/BATCH`` for operators whose schema may
change: a line with the version of the format, and a line of JSON.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from millrace_jobs.places import Place, files_below, folders_in, within, write_durably

_SCHEMAS = "_stateSchema"


def point_to_own_schemas(spark: Place) -> None:
    """Let the operators of Spark's part of a checkpoint find their schemas in it; call it before Spark reads it.

    Raises:
        OSError: a file cannot be read or written.
    """
    try:
        operators = folders_in(spark / "state")
    except FileNotFoundError:
        return  # the query keeps no state, or has no batch yet
    for operator in operators:
        found = operator / "_metadata" / "v2"
        for name, _ in list(files_below(found)):
            if name.isdigit():
                _point(found / name, operator)


def _point(file: Place, operator: Place) -> None:
    version, _, text = file.read_text(encoding="utf-8").partition("\n")
    metadata: dict[str, Any] = {}
    with suppress(ValueError):  # Spark names a damaged file
        metadata = json.loads(text)
    changed = False
    for store in metadata.get("stateStoreInfo", ()):
        before = store.get("stateSchemaFilePaths", [])
        store["stateSchemaFilePaths"] = [_here(path, operator) for path in before]
        changed = changed or store["stateSchemaFilePaths"] != before
    if not changed:
        return
    if isinstance(file, Path):
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)  # it would no longer match
    write_durably(file, "\n".join([version, json.dumps(metadata, separators=(",", ":"))]).encode())


def _here(path: str, operator: Place) -> str:
    """Return the path of a schema below an operator, as Spark writes it: with a scheme, and not encoded."""
    _, marker, rest = path.rpartition(f"/{_SCHEMAS}/")
    if not marker:
        return path
    own = within(operator, f"{_SCHEMAS}/{rest}")
    scheme = "file:" if isinstance(own, Path) else ""
    return f"{scheme}{own}"
