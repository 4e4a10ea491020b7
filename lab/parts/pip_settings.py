"""Settings of pip for builds of images."""

from __future__ import annotations

import sys
from configparser import ConfigParser
from io import StringIO

from .commands import run

_KEPT = ("index-url", "extra-index-url", "trusted-host", "proxy", "timeout")
"""This machine's settings of pip for package indexes."""


def pip_settings(authorities: str, cache: str) -> str:
    """Return this machine's ``pip.conf``, with other paths for the file of authorities and the cache."""
    listed = run([sys.executable, "-m", "pip", "config", "list"], seconds=120)
    known = dict(line.split("=", 1) for line in listed.splitlines() if "=" in line)
    values = {name: known.get(f"global.{name}") for name in _KEPT}
    settings = ConfigParser(interpolation=None)
    settings["global"] = {name: value.strip("'") for name, value in values.items() if value is not None} | {
        "cert": authorities,
        "cache-dir": cache,
        "disable-pip-version-check": "true",
    }
    text = StringIO()
    settings.write(text)
    return text.getvalue()
