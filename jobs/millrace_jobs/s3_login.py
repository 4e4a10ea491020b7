"""The login to S3 with keys that a query names, read again every few minutes, so that a rotated Secret takes effect.

Run as a script, it prints the login for the ``credential_process`` of Java's AWS SDK, in each driver and executor; the
profile ``s3.aws-config`` names it. That takes nothing but the standard library.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypedDict

ACCESS_KEY, SECRET_KEY = "MILLRACE_S3_ACCESS_KEY_ID", "MILLRACE_S3_SECRET_ACCESS_KEY"
"""Environment variables that say where the two keys are: ``file:PATH``, or ``env:NAME`` for another variable."""

VALID = timedelta(minutes=5)
"""Time after which keys are read again."""


class S3Login(TypedDict):
    """Keys, and when to read them again, as the client of Millrace takes them."""

    access_key_id: str
    secret_access_key: str
    expires_at: datetime | None


def login() -> S3Login:
    """Return the login whose keys the environment refers to."""
    access, secret = referred(os.environ[ACCESS_KEY]), referred(os.environ[SECRET_KEY])
    return {"access_key_id": access, "secret_access_key": secret, "expires_at": datetime.now(UTC) + VALID}


def is_given(environment: Mapping[str, str]) -> bool:
    """Return whether a query names keys."""
    return ACCESS_KEY in environment


def referred(reference: str) -> str:
    """Return what is at ``file:PATH`` or ``env:NAME``."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        return os.environ[name]
    return Path(name).read_text(encoding="utf-8").rstrip("\r\n")


def _as_process(found: S3Login) -> str:
    """Return the login as JSON, in the form that a ``credential_process`` prints."""
    until = found["expires_at"]
    answer = {"Version": 1, "AccessKeyId": found["access_key_id"], "SecretAccessKey": found["secret_access_key"]}
    return json.dumps(answer | ({} if until is None else {"Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ")}))


if __name__ == "__main__":
    print(_as_process(login()))
