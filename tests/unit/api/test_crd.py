import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from millrace_api import crd
from millrace_api.model.base import Model
from millrace_api.model.kafka import REFERENCE_RULES
from millrace_api.model.streamquery import StreamQuery

CRDS = Path(__file__).parents[3] / "crds"
EXAMPLE = Path(__file__).parent / "data" / "valid.yaml"
OPENAPI = jsonschema.Draft4Validator(crd.openapi_schema())  # OpenAPI 3.0 has exclusiveMinimum as draft 4 has it
EDITOR = jsonschema.Draft202012Validator(json.loads(crd.json_schema()))


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}.{key}")


NODES = dict(nodes(crd.openapi_schema())) | {
    f" of a Connection{path}": node for path, node in nodes(crd.openapi_schema("Connection"))
}


def models(root: type[Model]) -> set[type[Model]]:
    return {root}.union(*(models(below) for below in root.__subclasses__()))


def example() -> Any:
    return yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "generated"),
    [
        ("streamqueries.millrace.io.yaml", crd.crd_yaml),
        ("streamquery.schema.json", crd.json_schema),
        ("connections.millrace.io.yaml", lambda: crd.crd_yaml("Connection")),
        ("connection.schema.json", lambda: crd.json_schema("Connection")),
    ],
)
def test_the_generated_file_is_up_to_date(name, generated):
    assert (CRDS / name).read_text(encoding="utf-8") == generated(), f"crds/{name} is stale: run `millrace crd`"


@pytest.mark.parametrize("validator", [OPENAPI, EDITOR], ids=["crd", "editor"])
def test_the_example_is_valid(validator):
    assert [error.message for error in validator.iter_errors(example())] == []


@pytest.mark.parametrize("validator", [OPENAPI, EDITOR], ids=["crd", "editor"])
@pytest.mark.parametrize(
    ("section", "value"),
    [
        ("sources", {}),
        ("emit", "OnClose"),
        ("batchInterval", "0s"),
        ("batchInterval", 2),
        ("executors", {"cores": 0}),
        ("executors", {"cores": "0m"}),
        ("executors", {"cores": 1.5}),
        ("executors", {"cores": "2Gi"}),
        ("executors", {"memory": "2GB"}),
        ("scaling", {"target": 0}),
        ("partitioner", {"algorithm": "best"}),
        ("partitioner", {"placement": "Apart"}),
        ("partitioner", {"pod": {"cores": 0}}),
        ("partitioner", {"pod": {"memory": "2GB"}}),
        ("sink", {"files": {}}),
        ("checkpoint", {"uri": "out"}),
    ],
)
def test_the_schema_refuses_values_that_cannot_be(validator, section, value):
    document = example()
    document["spec"][section] = value
    assert not validator.is_valid(document)


def test_the_editor_is_told_of_unknown_fields():
    document = example()
    document["spec"]["sinks"] = {}
    assert not EDITOR.is_valid(document)


def test_the_schema_is_structural():
    allowed = {
        "type", "properties", "required", "items", "additionalProperties", "enum", "default", "description",
        "format", "pattern", "minLength", "maxLength", "minItems", "maxItems", "minProperties",
        "maxProperties", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    }  # fmt: skip
    for path, node in NODES.items():
        if node.get("x-kubernetes-int-or-string"):  # the one alternative that the API server allows, and only so
            assert node.get("anyOf") == [{"type": "integer"}, {"type": "string"}], path
            node = {key: value for key, value in node.items() if key != "anyOf"} | {"type": "either"}
        assert node.get("type") or node.get("x-kubernetes-preserve-unknown-fields"), path
        assert {key for key in node if not key.startswith("x-kubernetes-")} <= allowed, path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_only_free_form_fields_keep_what_they_do_not_know():
    free = {path.rsplit(".", 1)[1] for path, n in NODES.items() if n.get("x-kubernetes-preserve-unknown-fields")}
    assert free == {"options", "podTemplate", "additionalProperties"}
    assert [p for p in NODES if p.endswith("parameters.additionalProperties")] == [
        ".spec.partitioner.parameters.additionalProperties"
    ]


def test_every_field_is_described():
    undescribed = [
        path
        for path, node in NODES.items()
        if "description" not in node and path.rsplit(".", 1)[-1] not in ("", " of a Connection", "items", "metadata")
        and not path.endswith("additionalProperties")
    ]  # fmt: skip
    assert undescribed == []


def test_every_default_is_valid_and_complete():
    """The API server checks a default, with its CEL rules, before it fills in the defaults below it."""
    for path, node in NODES.items():
        if "default" in node:
            assert jsonschema.Draft4Validator(node).is_valid(node["default"]), path
            inner = {name for name, below in node.get("properties", {}).items() if "default" in below}
            assert inner <= set(node["default"] if inner else ()), path


def test_every_cel_rule_of_every_model_is_in_the_crd():
    declared = {
        (rule.cel, f"{rule.message}; {rule.hint}")
        for model in models(Model)
        if model.__name__ != "Plan"
        for rule in model.rules
        if rule.cel is not None
    }
    written = {
        (rule["rule"], rule["message"]) for node in NODES.values() for rule in node.get("x-kubernetes-validations", ())
    }
    assert written == declared


def test_every_rule_is_enforced_somewhere():
    for model in models(Model):
        for rule in model.rules:
            keys = (
                "a source's name",
                "a function's name",
                "an aggregate's name",
                "an output's name",
                "a label has a key",
            )
            typed_keys = rule.message.startswith(keys)
            transition = rule.cel is not None and "oldSelf" in rule.cel
            resolves = rule in REFERENCE_RULES  # validation/connections.py
            assert rule.check is not None or typed_keys or transition or resolves, rule.message


def test_lists_and_maps_of_objects_in_the_spec_are_bounded():
    """The cost of a CEL rule is estimated from these bounds."""
    for path, node in NODES.items():
        if path.startswith(".spec") and node.get("type") == "array":
            assert "maxItems" in node, path
        values = node.get("additionalProperties")
        if path.startswith(".spec") and isinstance(values, dict) and "properties" in values:
            assert "maxProperties" in node, path


def test_the_crd_has_its_names_columns_and_subresources():
    document = yaml.safe_load(crd.crd_yaml())
    names, [version] = document["spec"]["names"], document["spec"]["versions"]
    assert document["metadata"]["name"] == "streamqueries.millrace.io"
    assert names["shortNames"] == ["sq"]
    assert set(version["subresources"]) == {"status", "scale"}
    paths = [version["subresources"]["scale"][key] for key in ("specReplicasPath", "statusReplicasPath")]
    paths += [version["subresources"]["scale"]["labelSelectorPath"]]
    columns = version["additionalPrinterColumns"]
    paths += [column["jsonPath"] for column in columns if column["name"] != "Age"]
    assert [path for path in paths if re.sub(r"\[(\?[^]]*|\d+)\]", ".items", path) not in NODES] == []
    assert [(column["name"], column.get("priority", 0)) for column in columns] == [
        ("Ready", 0), ("Reason", 0), ("Utilization", 0), ("Lag", 0), ("Age", 0), ("Algorithm", 1), ("Executors", 1),
        ("Workers", 1), ("Replicas", 1), ("Placement", 1), ("Chain", 1), ("Snapshot", 1),
    ]  # fmt: skip


def test_the_crd_has_neither_anchors_nor_references():
    text = crd.crd_yaml()
    assert "&id" not in text
    assert "$ref" not in text


def test_kubectl_can_apply_the_crd():
    """It keeps a copy as JSON in an annotation, and all annotations of an object have 256 KiB at most."""
    assert len(json.dumps(yaml.safe_load(crd.crd_yaml()), separators=(",", ":"))) < 240 * 1024


def test_the_version_is_the_one_of_the_models():
    assert StreamQuery.model_fields["api_version"].examples == [f"{crd.GROUP}/{crd.VERSION}"]
