"""The check of a store that an earlier run has left, in a process of its own: reading a damaged file may end it.

python -m millrace_jobs.lookups.check FOLDER    # started by the driver; exit status 0 if the rows are whole
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from millrace_jobs.lookups.store import CONTINUED, DamagedError, TableReader, opened

WAIT_SECONDS = 5.0
"""Longest wait for a check, beyond what the driver does beside it: then it is faster to begin without the store."""

_POLL_SECONDS = 0.05


class StoreCheck:
    """The check of the store in a folder, if it has one; it begins when this object is made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        if (folder / "data.mdb").exists() and not (folder / CONTINUED).exists():
            command = [sys.executable, "-P", "-m", "millrace_jobs.lookups.check", str(folder)]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def wait(self, is_stopped: Callable[[], bool] = lambda: False, seconds: float = WAIT_SECONDS) -> None:
        """Wait for the result; afterwards the folder has a store that is whole, or is empty.

        A store that takes longer to be checked is removed. Where ``is_stopped`` ends the wait, it stays as it is, for
        the check of a later run.
        """
        deadline = time.monotonic() + seconds
        while self._process is not None and self._process.poll() is None and time.monotonic() < deadline:
            if is_stopped():
                return
            time.sleep(_POLL_SECONDS)
        is_whole = self._process is not None and self._process.poll() == 0
        if not is_whole:
            self.close()
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        if is_whole:
            (self._folder / CONTINUED).touch()

    def close(self) -> None:
        """End the process, if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def check(folder: Path) -> None:
    """Check that the visible rows of the store in a folder are whole, by reading them all.

    Call it in a process of its own: reading a damaged file may end the process.

    Raises:
        DamagedError: they are not, or there is no store.
    """
    file = folder / "data.mdb"
    reader = TableReader.open(folder)
    about = reader._environment.info(), reader._environment.stat()
    if file.stat().st_size < (about[0]["last_pgno"] + 1) * about[1]["psize"]:
        raise DamagedError(f"{file} is too short")
    with reader.snapshot() as table:
        rows, transaction = table._databases.rows, table._transaction
        last, count = b"", 0
        with transaction.cursor(rows) as cursor:
            for key, value in cursor:
                opened(key, value)
                if key <= last:
                    raise DamagedError(f"{file} has a row out of order")
                last, count = key, count + 1
        if count != transaction.stat(rows)["entries"]:
            raise DamagedError(f"{file} has {count} rows of {transaction.stat(rows)['entries']}")


if __name__ == "__main__":
    check(Path(sys.argv[1]))
