"""The login to a storage account of Azure with a key, read again every few minutes, so that a rotated one is used."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypedDict

from millrace_jobs import s3_login

ACCOUNT_KEY = "MILLRACE_AZURE_ACCOUNT_KEY"
"""Environment variable that says where the key is that a query names: ``file:PATH``, or ``env:NAME``."""

KEY, ENDPOINT = "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ENDPOINT"
"""Environment variables with the key where a query names none, and with the URL of an emulator."""


class AzureKey(TypedDict):
    """A key, and when to read it again, as the client of Millrace takes them."""

    access_key: str
    expires_at: datetime | None


@dataclass(frozen=True)
class AzureLogin:
    """A login whose key is at ``reference``."""

    reference: str

    def __call__(self) -> AzureKey:
        """Return the key."""
        return {"access_key": s3_login.referred(self.reference), "expires_at": datetime.now(UTC) + s3_login.VALID}


def reference() -> str | None:
    """Return where the key of the account is, as ``file:PATH`` or ``env:NAME``; None if there is none."""
    return os.environ.get(ACCOUNT_KEY) or (f"env:{KEY}" if os.environ.get(KEY) else None)


def endpoint() -> str | None:
    """Return the URL of an emulator that the environment names, as scheme, host and port; None for Azure itself."""
    url = os.environ.get(ENDPOINT)
    return url.rstrip("/") if url else None
