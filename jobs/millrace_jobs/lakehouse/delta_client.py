"""How the library for Delta tables reaches a store, and what it raises."""

from __future__ import annotations

import os
from pathlib import Path

from deltalake.exceptions import DeltaError

from millrace_jobs import s3_login
from millrace_jobs.object_store import endpoint, region
from millrace_jobs.places import Place

DELTA_ERRORS = (DeltaError, OSError, ValueError)
"""What ``deltalake`` raises."""

_OPTIONS = {"timeout": "60s", "connect_timeout": "3s", "max_retries": "4", "retry_timeout": "30s"}
"""Settings of the library's client for S3: time-outs of a request, of a connection and of all repetitions."""


def storage_options(folder: Place) -> dict[str, str]:
    """Return what the library has to know of the store; without keys of the query, it finds the login itself."""
    if isinstance(folder, Path):
        return {}
    url = endpoint()
    own = {} if url is None else {"aws_endpoint_url": url, "allow_http": str(url.startswith("http:")).lower()}
    if s3_login.is_given(os.environ):
        login = s3_login.login()
        own |= {f"aws_{name}": login[name] for name in ("access_key_id", "secret_access_key")}
    return _OPTIONS | {"aws_region": region()} | own
