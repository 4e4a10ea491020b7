"""Programs that tests start. Each ends with the process that started it, and is identified exactly."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1
_MARK = "MILLRACE_TEST_PROCESS"


class Mark:
    """An environment variable that identifies a process and all its descendants, whatever their session."""

    def __init__(self) -> None:
        self._value = uuid.uuid4().hex

    @property
    def environment(self) -> dict[str, str]:
        """The environment for the process."""
        return {_MARK: self._value}

    def processes(self) -> set[int]:
        """Return the ids of the living processes."""
        return {int(folder.name) for folder in Path("/proc").glob("[0-9]*") if self._is_on(folder)}

    def _is_on(self, folder: Path) -> bool:
        with suppress(OSError):  # it has ended
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            return state != "Z" and f"{_MARK}={self._value}".encode() in (folder / "environ").read_bytes()
        return False


class Process:
    """A program in a session of its own that writes its output to a file.

    The kernel ends it with the thread that starts it.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        log: Path,
        *,
        errors: Path | None = None,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Start the program. ``errors`` is the file for standard error; None is the log."""
        self.log = log
        self._mark = Mark()
        with log.open("ab") as out, (errors or log).open("ab") as err:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=os.environ | dict(environment or {}) | self._mark.environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=end_with_parent,
            )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status, or None while the process runs."""
        return self._process.poll()

    @property
    def said(self) -> str:
        """The whole content of the log."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def wait(self, patience: float) -> int:
        """Wait for the exit status, and return it. Raise ``subprocess.TimeoutExpired`` after ``patience`` seconds."""
        return self._process.wait(patience)

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process only, if it is running."""
        self._process.send_signal(number)

    def pause(self) -> None:
        """Pause the process and its descendants."""
        signal_all(self.members(), signal.SIGSTOP)

    def resume(self) -> None:
        """Resume the process and its descendants."""
        signal_all(self.members(), signal.SIGCONT)

    def end(self, patience: float = 60.0) -> int:
        """Send SIGTERM, kill what is left after ``patience`` seconds, and return the exit status."""
        self.send(signal.SIGTERM)
        self.resume()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        return self.kill()

    def kill(self) -> int:
        """Kill the process and its descendants, and return the exit status."""
        while signal_all(self.members(), signal.SIGKILL):
            self._process.poll()
        return self._process.wait()

    def members(self) -> set[int]:
        """Return the ids of the process and its descendants, as far as they are alive."""
        return self._mark.processes()


def command_of(process: int) -> str:
    """Return the command line of a process, or an empty string if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""


def signal_all(processes: Collection[int], number: signal.Signals) -> bool:
    """Send a signal to processes, which may have ended by themselves meanwhile; return whether there were any."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)
    return bool(processes)


def end_with_parent() -> None:
    """Have the kernel kill the calling process when the thread that started it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
