"""What the check of the CRD's compatibility finds, and what it lets pass."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace_api import crd
from tools.crd_compatibility import crd_incompatibilities, main

CRDS = Path(__file__).parents[3] / "crds"
RELEASED = CRDS / "released" / "v1alpha1.yaml"
PRESENT = CRDS / "streamqueries.millrace.io.yaml"

Document = dict[str, Any]


def node(document: Document, path: str) -> Document:
    """The schema at a dotted path; ``*`` is a map's value, ``[]`` a list's item."""
    found: Document = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in path.split(".") if path else ():
        if part in ("*", "[]"):
            found = found["additionalProperties" if part == "*" else "items"]
        else:
            found = found["properties"][part]
    return found


def version(document: Document) -> Document:
    found: Document = document["spec"]["versions"][0]
    return found


def put(path: str, **keys: Any) -> Callable[[Document], None]:
    """Sets keywords of the schema at the path; ``x_kubernetes_...`` is ``x-kubernetes-...``; None takes one away."""

    def change(document: Document) -> None:
        for key, value in keys.items():
            name = key.replace("_", "-") if key.startswith("x_") else key
            if value is None:
                del node(document, path)[name]
            else:
                node(document, path)[name] = value

    return change


def add(path: str, name: str, **schema: Any) -> Callable[[Document], None]:
    return lambda document: node(document, path)["properties"].__setitem__(name, schema)


def without(path: str, name: str) -> Callable[[Document], None]:
    return lambda document: node(document, path)["properties"].__delitem__(name)


def require(path: str, *names: str) -> Callable[[Document], None]:
    return lambda document: node(document, path).__setitem__(
        "required", [*node(document, path).get("required", ()), *names]
    )


def rule(path: str, text: str, message: str = "it must hold") -> Callable[[Document], None]:
    return lambda document: (
        node(document, path).setdefault("x-kubernetes-validations", []).append({"rule": text, "message": message})
    )


def swap(path: str, old: str, new: str) -> Callable[[Document], None]:
    """Replaces text in the rules of the schema at the path."""

    def change(document: Document) -> None:
        rules = node(document, path)["x-kubernetes-validations"]
        assert any(old in each["rule"] for each in rules)
        for each in rules:
            each["rule"] = each["rule"].replace(old, new)

    return change


def both(*changes: Callable[[Document], None]) -> Callable[[Document], None]:
    def change(document: Document) -> None:
        for each in changes:
            each(document)

    return change


def changed(*changes: Callable[[Document], None]) -> Document:
    document: Document = yaml.safe_load(crd.crd_yaml())  # in which no two nodes are one object
    both(*changes)(document)
    return document


KAFKA = "spec.sources.*.kafka"
BREAKING = {
    "field gone": (without("spec", "emit"), "spec.emit: the field is gone"),
    "field of a map's values gone": (without(KAFKA, "topic"), f"{KAFKA}.topic: the field is gone"),
    "field of a list's items gone": (
        without("status.conditions.[]", "reason"),
        "status.conditions[].reason: the field is gone",
    ),
    "type": (put("spec.emit", type="integer"), 'spec.emit: its type changed from "string" to "integer"'),
    "enum value": (put("spec.emit", enum=["OnUpdate", "OnWindowEnd"]), 'spec.emit: the value "OnWindowClose" is gone'),
    "enum where was none": (
        put("spec.image", enum=["a"]),
        'spec.image: it accepted any value, and now accepts only ["a"]',
    ),
    "new required field": (
        both(add("spec", "owner", type="string"), require("spec", "owner")),
        "spec.owner: it is required, and was not",
    ),
    "became required": (require("spec", "image"), "spec.image: it is required, and was not"),
    "minimum": (put("spec.executors.cores", minimum=2), "spec.executors.cores: its minimum changed from 1 to 2"),
    "maximum": (
        put("spec.executors.cores", maximum=64),
        "spec.executors.cores: its maximum changed from 999999 to 64",
    ),
    "exclusive": (
        put("spec.executors.cores", exclusiveMinimum=True),
        "spec.executors.cores: its minimum, 1, is no longer allowed itself",
    ),
    "minLength": (put("spec.image", minLength=2), "spec.image: its minLength changed from 1 to 2"),
    "maxLength": (put("spec.image", maxLength=9), "spec.image: its maxLength changed from 65536 to 9"),
    "minItems": (put("status.conditions", minItems=1), "status.conditions: its minItems is new: 1"),
    "maxItems": (put("status.conditions", maxItems=3), "status.conditions: its maxItems changed from 16 to 3"),
    "minProperties": (put("spec.sources", minProperties=2), "spec.sources: its minProperties changed from 1 to 2"),
    "maxProperties": (put("spec.sources", maxProperties=2), "spec.sources: its maxProperties changed from 16 to 2"),
    "pattern": (put("spec.image", pattern="^a$"), 'spec.image: its pattern is new: "^a$"'),
    "format": (put("spec.image", format="uri"), 'spec.image: its format is new: "uri"'),
    "default": (put("spec.driver.cores", default=2), "spec.driver.cores: its default changed from 1 to 2"),
    "default gone": (put("spec.emit", default=None), 'spec.emit: its default is gone: "OnUpdate"'),
    "default where was none": (put("spec.image", default="a"), 'spec.image: its default is new: "a"'),
    "list type": (
        put("status.conditions", x_kubernetes_list_type="atomic"),
        'status.conditions: its x-kubernetes-list-type changed from "map" to "atomic"',
    ),
    "map keys": (
        put("status.conditions", x_kubernetes_list_map_keys=["type", "reason"]),
        'status.conditions: its x-kubernetes-list-map-keys changed from ["type"] to ["type", "reason"]',
    ),
    "new rule": (
        rule("spec", "self.sources.size() < 3"),
        "spec: a rule is new, which stored objects may break: it must hold",
    ),
    "changed rule": (
        swap("spec.scaling", "self.step < self.target", "self.step + 0.1 < self.target"),
        "spec.scaling: a rule changed, which stored objects may break: step is not less than target; "
        "write a smaller step, such as target: 0.9 and step: 0.1",
    ),
    "rule about a value that is not new": (
        rule("spec", "self.emit != 'OnUpdate' || has(self.image)"),
        "spec: a rule is new, which stored objects may break: it must hold",
    ),
    "rule that a new field only seems to guard": (
        both(
            add("spec", "owner", type="string"),
            rule("spec", "!has(self.owner) || has(self.image) ? has(self.image) : true"),
        ),
        "spec: a rule is new, which stored objects may break: it must hold",
    ),
    "rule about a new field that is filled in": (
        both(
            add("spec.scaling", "pace", type="object", default={}),
            rule("spec.scaling", "!has(self.pace) || self.step > 1"),
        ),
        "spec.scaling: a rule is new, which stored objects may break: it must hold",
    ),
    "rule about an entry of a map": (
        rule("spec", "!has(self.sparkConf) || !has(self.sparkConf.pace) || has(self.image)"),
        "spec: a rule is new, which stored objects may break: it must hold",
    ),
    "rule about a new field within another that is filled in": (
        both(
            add("spec.scaling", "pace", type="string", default="slow"),
            rule("spec", "!has(self.scaling) || !has(self.scaling.pace) || has(self.image)"),
        ),
        "spec: a rule is new, which stored objects may break: it must hold",
    ),
    "free form closed": (
        put("spec.driver.podTemplate", x_kubernetes_preserve_unknown_fields=None),
        "spec.driver.podTemplate: it kept fields that are not in the schema, and no longer does",
    ),
    "field in a free form": (
        put("spec.driver.podTemplate", properties={"spec": {"type": "object"}}),
        "spec.driver.podTemplate.spec: it accepted any value, and is now a field",
    ),
    "map closed": (
        put("spec.sparkConf", additionalProperties=None),
        "spec.sparkConf: it was a map, and no longer is",
    ),
    "map's values": (
        put("spec.sparkConf.*", maxLength=8),
        "spec.sparkConf.*: its maxLength is new: 8",
    ),
    "rule with a field that may be absent": (
        rule("spec", "has(self.image) || has(self.s3)"),
        "spec: a rule is new, which stored objects may break: it must hold",
    ),
    "unknown keyword": (put("spec.image", multipleOf=2), "spec.image: its multipleOf is new: 2"),
}
ALLOWED = {
    "descriptions": put("spec.emit", description="When."),
    "new optional field": add("spec", "owner", type="string", maxLength=9),
    "new optional field with a default, also in that of what it is part of": both(
        add("spec.driver", "swap", type="integer", default=0),
        lambda document: node(document, "spec.driver")["default"].__setitem__("swap", 0),
    ),
    "new object with required fields and rules": add(
        "spec",
        "owner",
        type="object",
        properties={"name": {"type": "string"}},
        required=["name"],
        **{"x-kubernetes-validations": [{"rule": "self.name != 'me'", "message": "not me"}]},
    ),
    "new enum value": put("spec.emit", enum=["OnUpdate", "OnWindowEnd", "OnWindowClose", "Never"]),
    "enum gone": put("spec.emit", enum=None),
    "no longer required": put("spec", required=["sources", "query"]),
    "wider minimum": put("spec.executors.cores", minimum=0),
    "wider maximum": put("spec.executors.cores", maximum=2_000_000),
    "bound that is included from now on": put("spec.scaling.target", exclusiveMinimum=None),
    "no maximum": put("spec.executors.cores", maximum=None),
    "wider minLength": put("spec.image", minLength=None),
    "wider maxLength": put("spec.image", maxLength=70_000),
    "wider maxItems": put("status.conditions", maxItems=20),
    "wider minProperties": put("spec.sources", minProperties=0),
    "wider maxProperties": put("spec.sources", maxProperties=20),
    "no pattern": put("spec.batchInterval", pattern=None),
    "no format": put("status.retryTime", format=None),
    "rule gone": put("spec.scaling", x_kubernetes_validations=None),
    "one more of exactly one": both(
        add("spec.sink", "socket", type="object"),
        swap("spec.sink", "[", "[has(self.socket), "),
    ),
    "rule about a new field": both(
        add("spec", "owner", type="string"), rule("spec", "!has(self.owner) || self.owner != 'me'")
    ),
    "rule about a new field within another": both(
        add("spec.driver", "owner", type="string"),
        rule("spec", "!has(self.driver) || !has(self.driver.owner) || self.driver.owner != 'me'"),
    ),
    "rule about a new field within another, whose default has other new fields": both(
        add("spec.driver", "swap", type="integer", default=0),
        lambda document: node(document, "spec.driver")["default"].__setitem__("swap", 0),
        add("spec.driver", "owner", type="string"),
        rule("spec", "!has(self.driver) || !has(self.driver.owner) || self.driver.owner != 'me'"),
    ),
    "rule about a new value": both(
        put("spec.emit", enum=["OnUpdate", "OnWindowEnd", "OnWindowClose", "Never"]),
        rule("spec", "self.emit != 'Never' || has(self.image)"),
    ),
    "rule about a new value of an optional field": both(
        put("spec.emit", enum=["OnUpdate", "OnWindowEnd", "OnWindowClose", "Never"]),
        rule("spec", "!has(self.emit) || self.emit != 'Never' || has(self.image)"),
    ),
    "rule with one more alternative": swap("spec.scaling", "self.target", "self.target || has(self.mode)"),
    "at most one of what was exactly one": swap("spec.sink", "== 1", "<= 1"),
    "rule with a field that is required": rule("spec", "has(self.sources) || has(self.image)"),
    "object of any form": put(
        "spec.eventLog", properties=None, required=None, x_kubernetes_preserve_unknown_fields=True
    ),
    "free form opened": put("spec.driver", x_kubernetes_preserve_unknown_fields=True),
}  # fmt: skip


@pytest.mark.parametrize(("change", "problem"), BREAKING.values(), ids=BREAKING)
def test_what_stored_objects_or_clients_would_suffer_from_is_told(change, problem):
    reported = crd_incompatibilities(crd.crd(), changed(change))
    assert f"v1alpha1: {problem}" in reported
    above = "v1alpha1: spec.driver: its default"  # it contains those of its parts
    assert [each for each in reported if each != f"v1alpha1: {problem}" and not each.startswith(above)] == []


@pytest.mark.parametrize("change", ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed_is_not_told(change):
    new = changed(change)
    assert new != crd.crd()
    assert crd_incompatibilities(crd.crd(), new) == []


def in_version(key: str, value: Any) -> Callable[[Document], None]:
    return lambda document: version(document).__setitem__(key, value)


def in_names(key: str, value: Any) -> Callable[[Document], None]:
    return lambda document: document["spec"]["names"].__setitem__(key, value)


LAG = "additionalPrinterColumns.Lag"
AROUND = {
    "scope": (lambda d: d["spec"].__setitem__("scope", "Cluster"), "scope: it changed from Namespaced to Cluster"),
    "kind": (in_names("kind", "Query"), "names.kind: it changed from StreamQuery to Query"),
    "short name": (in_names("shortNames", ["query"]), "names.shortNames: sq is gone"),
    "version": (in_version("name", "v1"), "versions.v1alpha1: it is gone"),
    "served": (in_version("served", False), "v1alpha1: served: it is no longer served"),
    "column": (lambda d: version(d)["additionalPrinterColumns"].pop(3), f"v1alpha1: {LAG}: the column is gone"),
    "column's path": (
        lambda d: version(d)["additionalPrinterColumns"][3].__setitem__("jsonPath", ".status.lag"),
        f'v1alpha1: {LAG}: its jsonPath changed from ".status.load.lag" to ".status.lag"',
    ),
    "subresource": (lambda d: version(d)["subresources"].pop("scale"), "v1alpha1: subresources.scale: it is gone"),
    "subresource's path": (
        lambda d: version(d)["subresources"]["scale"].pop("labelSelectorPath"),
        'v1alpha1: subresources.scale: its labelSelectorPath is gone: ".status.selector"',
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "problem"), AROUND.values(), ids=AROUND)
def test_names_versions_columns_and_subresources_stay(change, problem):
    assert crd_incompatibilities(crd.crd(), changed(change)) == [problem]


def test_more_names_versions_and_columns_are_allowed():
    def more(document: Document) -> None:
        document["spec"]["names"]["shortNames"].append("query")
        document["spec"]["versions"].append(copy.deepcopy(version(document)) | {"name": "v1beta1"})
        version(document)["additionalPrinterColumns"].insert(0, {"name": "State", "type": "string", "jsonPath": ".a"})

    assert crd_incompatibilities(crd.crd(), changed(more)) == []


def test_the_present_crd_is_compatible_with_the_released_one(capsys):
    assert main([str(RELEASED), str(PRESENT)]) == 0
    assert capsys.readouterr().err == ""


def test_the_command_tells_the_problems_and_fails(tmp_path, capsys):
    new = tmp_path / "new.yaml"
    new.write_text(yaml.safe_dump(changed(without("spec", "emit"))), encoding="utf-8")
    assert main([str(RELEASED), str(new)]) == 1
    reported = capsys.readouterr().err.splitlines()
    assert reported[0] == f"{new}: v1alpha1: spec.emit: the field is gone"
    assert "docs/upgrades.md" in reported[-1]


def test_a_file_that_is_not_there_is_one_sentence(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main([str(RELEASED), str(tmp_path / "absent.yaml")])
    assert "No such file" in capsys.readouterr().err
