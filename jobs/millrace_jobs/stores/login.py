"""Logins to S3 and Azure with keys that a query names, read again every few minutes, so that a rotated one is used.

Run as a script, it prints the login to S3 for the ``credential_process`` of Java's AWS SDK, in each driver and
executor; the profile ``s3.aws-config`` names it. That takes nothing but the standard library.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypedDict

ACCESS_KEY, SECRET_KEY = "MILLRACE_S3_ACCESS_KEY_ID", "MILLRACE_S3_SECRET_ACCESS_KEY"
ACCOUNT_KEY = "MILLRACE_AZURE_ACCOUNT_KEY"
"""Environment variables that say where the keys of a query are: ``file:PATH``, or ``env:NAME`` for another variable."""

AZURE_KEY = "AZURE_STORAGE_ACCOUNT_KEY"
"""Environment variable with the key of the storage account where a query names none."""

VALID = timedelta(minutes=5)
"""Time after which keys are read again."""


class S3Login(TypedDict):
    """Keys, and when to read them again, as the client of Millrace takes them."""

    access_key_id: str
    secret_access_key: str
    expires_at: datetime | None


class AzureKey(TypedDict):
    """A key, and when to read it again, as the client of Millrace takes them."""

    access_key: str
    expires_at: datetime | None


def s3_login() -> S3Login:
    """Return the login whose keys the environment refers to."""
    access, secret = _referred(os.environ[ACCESS_KEY]), _referred(os.environ[SECRET_KEY])
    return {"access_key_id": access, "secret_access_key": secret, "expires_at": datetime.now(UTC) + VALID}


def has_s3_keys() -> bool:
    """Return whether the environment refers to keys of a query for S3."""
    return ACCESS_KEY in os.environ


@dataclass(frozen=True)
class AzureLogin:
    """A login to a storage account whose key is at ``reference``."""

    reference: str

    def __call__(self) -> AzureKey:
        """Return the key."""
        return {"access_key": _referred(self.reference), "expires_at": datetime.now(UTC) + VALID}


def azure_reference() -> str | None:
    """Return where the key of the storage account is, as ``file:PATH`` or ``env:NAME``; None if there is none."""
    return os.environ.get(ACCOUNT_KEY) or (f"env:{AZURE_KEY}" if os.environ.get(AZURE_KEY) else None)


def _referred(reference: str) -> str:
    kind, _, name = reference.partition(":")
    if kind == "env":
        return os.environ[name]
    return Path(name).read_text(encoding="utf-8").rstrip("\r\n")


if __name__ == "__main__":
    found = s3_login()
    answer = {"Version": 1, "AccessKeyId": found["access_key_id"], "SecretAccessKey": found["secret_access_key"]}
    until = found["expires_at"]
    print(json.dumps(answer | ({} if until is None else {"Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ")})))
