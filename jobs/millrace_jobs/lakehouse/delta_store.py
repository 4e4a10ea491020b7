"""Where Delta tables are, and how the library reaches them."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from millrace_api.model.lakehouse import DeltaTableSpec
from millrace_jobs.disk import absolute_path
from millrace_jobs.places import Place
from millrace_jobs.stores.clients import s3_endpoint, s3_region
from millrace_jobs.stores.login import has_s3_keys, s3_login
from millrace_jobs.stores.objects import ObjectPath

_OPTIONS = {"timeout": "60s", "connect_timeout": "3s", "max_retries": "4", "retry_timeout": "30s"}
"""Settings of the library's client for S3: time-outs of a request, of a connection and of all repetitions."""


def delta_place(spec: DeltaTableSpec) -> Place:
    """Return where a table is."""
    return absolute_path(spec.path) if spec.is_local else ObjectPath.of(spec.path.rstrip("/"))


def delta_options(place: Place) -> dict[str, str]:
    """Return what the library has to know of the store; without keys of the query, it finds the login itself."""
    if isinstance(place, Path):
        return {}
    url = s3_endpoint()
    own = {} if url is None else {"aws_endpoint_url": url, "allow_http": str(url.startswith("http:")).lower()}
    if has_s3_keys():
        login = s3_login()
        own |= {f"aws_{name}": login[name] for name in ("access_key_id", "secret_access_key")}
    return _OPTIONS | {"aws_region": s3_region()} | own


def plain_path(path: str) -> str:
    """Return a path without a scheme and an encoding, in which the library may name it once more encoded."""
    while (decoded := unquote(path)) != path:
        path = decoded
    return path.partition("://")[2] or path
