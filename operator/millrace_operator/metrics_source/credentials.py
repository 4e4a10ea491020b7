"""Authorization header from secret files, read for each request because secrets are renewed at run time."""

from __future__ import annotations

import base64
import string
from pathlib import Path

from millrace_api.errors import Problem

from .error import PrometheusError
from .settings import PrometheusSettings

_IN_TOKENS = frozenset(string.ascii_letters + string.digits + string.punctuation)


def login(settings: PrometheusSettings) -> dict[str, str]:
    """Return the ``Authorization`` header, or no header without credentials.

    Raises:
        PrometheusError: a file cannot be read or has no usable content. The message never quotes the content.
    """
    if settings.token_file is not None:
        token = _read(settings.token_file).strip()
        if not token or not _IN_TOKENS.issuperset(token):
            raise _error(settings.token_file, "has no token in it", "it must have one and nothing else")
        return {"Authorization": f"Bearer {token}"}
    if settings.user is not None and settings.password_file is not None:
        password = _read(settings.password_file).rstrip("\r\n")
        encoded = base64.b64encode(f"{settings.user}:{password}".encode()).decode("ascii")
        return {"Authorization": f"Basic {encoded}"}
    return {}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise _error(path, f"cannot be read: {error.strerror}", "see that it is mounted") from None
    except UnicodeDecodeError:
        raise _error(path, "is not text in UTF-8", "it must have the secret and nothing else") from None


def _error(path: Path, message: str, hint: str) -> PrometheusError:
    return PrometheusError(Problem(f"the file with which to log in at Prometheus {message}", hint, file=str(path)))
