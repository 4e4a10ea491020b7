"""The folder of a query's local copies of its tables, and the removal of copies that the query no longer uses.

- ``table``: the rows of ``spec.sink`` that can be looked up;
- ``keys.sqlite`` and files beside it: the keys of its rows, if rows can go;
- ``outputs/NAME``: the keys of a further output.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from millrace_api.model.streamquery import Spec
from millrace_jobs.sinks.base import ResultKeys

TABLE = "table"
"""The folder of the rows that can be looked up."""

KEYS = "keys"
"""The name of each file for keys, before its suffix."""

_OUTPUTS = "outputs"


def copies_of(copies: Path, field: str) -> Path:
    """Return the folder of an output's keys; ``field`` is that of ``Spec.outputs``."""
    return copies if field == "spec" else copies / _OUTPUTS / field.rpartition(".")[2]


def remove_unused(copies: Path, spec: Spec, keys: Mapping[str, ResultKeys], *, has_rows: bool) -> None:
    """Remove what earlier runs have left and this one does not use, as after an output was removed.

    Args:
        copies: the folder of copies; it need not exist.
        spec: the query's spec.
        keys: the keys of each output, by its field.
        has_rows: whether the rows that can be looked up are among the copies.
    """
    tables = (field for field, output in spec.outputs.items() if output.sink.table is not None)
    used = {copies_of(copies, field) for field in tables if keys[field].rows_can_go}
    if has_rows:
        used.add(copies / TABLE)
    for found in (*copies.glob("*"), *copies.glob(f"{_OUTPUTS}/*")):
        is_of_sink = found.parent == copies and copies in used and found.name.startswith(f"{KEYS}.")
        if found in used or is_of_sink or found == copies / _OUTPUTS:
            continue
        if found.is_dir():
            shutil.rmtree(found, ignore_errors=True)
        else:
            with suppress(OSError):
                found.unlink()
