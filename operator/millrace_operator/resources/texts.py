"""Serialization of values into objects: readable YAML and deterministic JSON."""

from __future__ import annotations

import json
from typing import Any

import yaml


class _ManifestDumper(yaml.SafeDumper):
    """YAML dumper without anchors and with ``|`` for multi-line text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_ManifestDumper.add_representer(str, _text)


def to_yaml(*documents: Any) -> str:
    """Format documents as YAML, with fields in their given order."""
    return yaml.dump_all(documents, Dumper=_ManifestDumper, sort_keys=False, width=120)


def to_json(value: Any) -> str:
    """Format a value as JSON on one line."""
    return json.dumps(value, separators=(",", ":"))
