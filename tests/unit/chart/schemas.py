"""JSON schemas for kubeconform, made from Kubernetes' published API and from the CRD."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from lab.parts.go_programs import go_program

from .tools import CHART

LOCATION = "{{.ResourceKind}}{{.KindSuffix}}.json"
"""Template of schema file names, for kubeconform."""

_NUMBERS = {"io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString"}
"""Types of strings that may be written as numbers."""


def write_schemas(folder: Path) -> None:
    """Write a schema for each kind that refuses fields unknown to the API.

    Raises:
        MissingError: if the lab's programs were not made.
    """
    definitions = {name: _strict(name, schema) for name, schema in _published()["definitions"].items()}
    (folder / "definitions.json").write_text(json.dumps({"definitions": definitions}), encoding="utf-8")
    for name, schema in definitions.items():
        for kind in schema.get("x-kubernetes-group-version-kind", ()):
            reference = {"$ref": f"file://{folder}/definitions.json#/definitions/{name}"}
            _write(folder, kind["group"], kind["kind"], kind["version"], reference)
    crd = yaml.safe_load((CHART / "files/streamqueries.millrace.io.yaml").read_text(encoding="utf-8"))["spec"]
    for version in crd["versions"]:
        schema = _strict_below(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        _write(folder, crd["group"], crd["names"]["kind"], version["name"], schema)


def _published() -> dict[str, Any]:
    """Return the published API of the lab's Kubernetes."""
    return dict(json.loads(go_program("swagger.json").read_text(encoding="utf-8")))


def _strict(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    if name in _NUMBERS:
        return {"type": ["string", "number"]}
    return schema | {"additionalProperties": False} if "properties" in schema else schema


def _strict_below(schema: Any) -> Any:
    """Return a CRD's schema that refuses unknown fields, except where it admits them explicitly."""
    if isinstance(schema, list):
        return [_strict_below(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _strict_below(value) for name, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        made["additionalProperties"] = schema.get("x-kubernetes-preserve-unknown-fields", False)
    return made


def _write(folder: Path, group: str, kind: str, version: str, schema: dict[str, Any]) -> None:
    name = "-".join(filter(None, (kind.lower(), group.partition(".")[0], version)))
    (folder / f"{name}.json").write_text(json.dumps(schema), encoding="utf-8")
