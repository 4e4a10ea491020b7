"""How things are written into objects: YAML that people can read, and JSON that is the same for the same value."""

from __future__ import annotations

import json
from typing import Any

import yaml


class _ManifestDumper(yaml.SafeDumper):
    """Without anchors; with ``|`` for texts of several lines."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_ManifestDumper.add_representer(str, _text)


def to_yaml(*documents: Any) -> str:
    """The documents, in the order of their fields."""
    return yaml.dump_all(documents, Dumper=_ManifestDumper, sort_keys=False, width=120)


def to_json(value: Any) -> str:
    """One line."""
    return json.dumps(value, separators=(",", ":"))
