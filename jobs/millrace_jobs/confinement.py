"""What a policy keeps a query from reaching, where only a run can see it: paths once links are followed.

The driver reads it from a file beside its query, and gives it to its executors by an environment variable. Without it,
as for ``millrace run``, a query may read and write what its user may.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.confinement import CONFINEMENT_FILE, Confinement
from millrace_api.validation.places import is_object

VARIABLE = "MILLRACE_CONFINEMENT"
"""Environment variable with the confinement of this process, as JSON."""


def confine(query: Path) -> None:
    """Confine this process, and those that it starts, by the file beside a query, if there is one.

    Raises:
        OSError, pydantic.ValidationError: the file cannot be read, so the query must not run.
    """
    file = query.parent / CONFINEMENT_FILE
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if text:
        os.environ[VARIABLE] = Confinement.from_json(text).to_json()
    else:
        os.environ.pop(VARIABLE, None)


def confinement() -> Confinement | None:
    """Return what this process is confined to; None for everything."""
    text = os.environ.get(VARIABLE)
    return _parsed(text) if text else None


def require_data(path: str | Path) -> None:
    """Raise MillraceError if a file or folder of data, which may not exist yet, is not where the query may have it.

    What is in an object store, the operator has compared with the policy: there are no links.
    """
    confined = confinement()
    if confined is not None and not is_object(str(path)):
        _require_below(path, confined.folders, "data")


def require_login(path: str | Path) -> None:
    """Raise MillraceError if a file that a login is read from is not where the query may have it."""
    confined = confinement()
    if confined is not None:
        _require_below(path, (*confined.logins, *confined.folders), "logins")


def _require_below(path: str | Path, folders: Iterable[str], what: str) -> None:
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(os.path.realpath(folder)) for folder in folders):
        leads = "" if str(real) == str(path) else f", which leads to {real},"
        message = f"{path}{leads} is not on a volume that the query mounts for {what}"
        raise MillraceError(Problem(message, "write a path on such a volume, and use no links that leave it"))


@lru_cache(maxsize=4)
def _parsed(text: str) -> Confinement:
    return Confinement.from_json(text)
