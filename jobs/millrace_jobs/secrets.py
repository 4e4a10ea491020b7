"""Secrets of connections, by reference: the environment variable or the file that holds one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from millrace_api.errors import MillraceError, Problem
from millrace_jobs.confinement import require_login

if TYPE_CHECKING:  # tasks import this module
    from millrace_api.model.secrets import SecretValue


@dataclass(frozen=True)
class Secret:
    """A reference to a secret: its name in messages (``what``), and the file or environment variable that holds it.

    ``in_cluster`` is NAME/KEY of the Kubernetes Secret if the query names only that.
    """

    what: str
    file: str | None
    env: str | None
    in_cluster: str | None

    @classmethod
    def of(cls, what: str, value: SecretValue) -> Self:
        """Return the reference that a query gives for the secret ``what``; read nothing."""
        ref = value.secret_key_ref
        return cls(what, value.file, value.env, f"{ref.name}/{ref.key}" if ref else None)

    def resolve(self) -> str:
        """Return the secret itself, without the line breaks at the end of a file.

        Raises:
            MillraceError: it cannot be read.
        """
        if self.env is not None:
            if value := os.environ.get(self.env):
                return value
            state = "empty" if value == "" else "not set"
            message = f"{self.what} is read from the environment variable {self.env}, which is {state}"
            hint = f"set {self.env} where the query is started, and for its executors"
            raise MillraceError(Problem(message, hint))
        if self.file is not None:
            return self._of_file(self.file)
        message = f"{self.what} is in the Kubernetes Secret {self.in_cluster}, which millrace run cannot read"
        hint = "write file: or env: to say where it is on this machine; on a cluster, the operator mounts the Secret"
        raise MillraceError(Problem(message, hint))

    def _of_file(self, path: str) -> str:
        require_login(path)
        try:
            value = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
            hint = "write in file: the path of a file that holds it and nothing else"
            raise MillraceError(Problem(f"{self.what} cannot be read: {why}", hint, path)) from None
        if not value:
            raise MillraceError(Problem(f"{self.what} cannot be read: the file is empty", "write it there", path))
        return value
