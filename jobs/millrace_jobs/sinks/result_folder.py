"""Folders that results are written to."""

from __future__ import annotations

import tempfile
from pathlib import Path

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.confinement import require_data
from millrace_jobs.disk import make_folder, path_for_spark, remove_folders


def require_folder(path: str | Path, field: str) -> None:
    """Check that a folder, and files in it, can be created; leave nothing behind. ``field`` is where it is written.

    Raises:
        MillraceError: the folder cannot be created or written to, or Spark cannot use a folder of this name.
    """
    folder = path_for_spark(path, field)
    require_data(folder)
    try:
        made = make_folder(folder)
        with tempfile.TemporaryDirectory(prefix="_", dir=folder):
            pass
        remove_folders(made)
    except OSError as error:
        raise unwritable(folder, error, field) from None


def unwritable(folder: Path, error: OSError, field: str) -> MillraceError:
    """Return the error of results that cannot be written to a folder."""
    message = f"results cannot be written to {folder}: {error.strerror or error}"
    return MillraceError(Problem(message, "write a folder that this user may write to", field=field))
