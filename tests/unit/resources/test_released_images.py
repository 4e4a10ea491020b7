"""What the operator gives to jobs, against what images of the last release take: they refuse what they do not know."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from apiserver.crd_documents import VALID
from millrace_api.crd import GROUP, VERSION
from millrace_api.model.plan import Applied, Plan
from millrace_api.model.streamquery import DRIVER, PARTITIONER
from millrace_api.validation.loading import read_query
from millrace_operator.resources.driver_config import mounted_query

from .cases import CASES, objects_of

RELEASED = Path(__file__).parents[3] / "crds" / "released"
JOB = yaml.safe_load((RELEASED / "job.yaml").read_text(encoding="utf-8"))
CRD = yaml.safe_load((RELEASED / f"{VERSION}.yaml").read_text(encoding="utf-8"))
NEW_SINCE = (
    "additionalOutputs:",
    "connection:",
    "table:",
    "s3:",
    "azure:",
    "STRUCT<",
    "timeFormats:",
    "delta:",
    "iceberg:",
    "partitionColumns:",
    "protobuf",
    "login:",
    "eventLog:",
    "lineage:",
    "lookups:",
    "code:",
    "functions:",
    "aggregates:",
    "write:",
    "read:",
    "algorithm: python",
    "transaction:",
    "sasl:",
    "scheduling:",
    "fromSnapshot:",
    "snapshots:",
)
"""Fields that the released version lacks: a query that has one needs a later image. Logins are in the CRD of Connections."""


def closed(schema: Any) -> Any:
    """Return a schema of the CRD that takes no field which it does not name, as the models of the images do."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(each) for name, each in schema.items() if not name.startswith("x-kubernetes-")}
    is_open = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not is_open:
        found["additionalProperties"] = False
    return found


SPEC = jsonschema.Draft4Validator(closed(CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]))


@pytest.mark.parametrize(
    "text", [text for text in (*CASES.values(), *VALID) if not any(field in text for field in NEW_SINCE)]
)
def test_a_query_without_new_fields_is_one_of_the_released_version(text):
    document, _ = mounted_query(read_query(yaml.safe_load(text)))
    SPEC.validate(document["spec"])
    assert document["apiVersion"] == f"{GROUP}/{VERSION}"


def test_the_released_version_refuses_a_field_that_it_lacks():
    (text, *_) = [text for text in VALID if "additionalOutputs:" in text]
    document, _ = mounted_query(read_query(yaml.safe_load(text)))
    with pytest.raises(jsonschema.ValidationError, match="'additionalOutputs' was unexpected"):
        SPEC.validate(document["spec"])


@pytest.mark.parametrize("role", [DRIVER, PARTITIONER])
def test_the_options_of_a_command_are_those_of_the_released_version(role):
    (pod,) = [
        each["spec"]["template"]["spec"]
        for each in objects_of(CASES["dedicated"])
        if each["kind"] == "StatefulSet" and each["metadata"]["name"].endswith(role)
    ]
    arguments = pod["containers"][0]["args"]
    assert arguments[:2] == ["millrace", role]
    assert {each for each in arguments if each.startswith("--")} <= set(JOB[role])


def test_the_fields_of_a_plan_are_those_of_the_released_version():
    assert set(_plans()) <= set(JOB["plan"])


def _plans() -> Iterator[str]:
    for text in CASES.values():
        yield from Plan.initial(read_query(yaml.safe_load(text)).spec).to_short_document()


def test_a_later_image_may_acknowledge_with_more_fields():
    text = '{"epoch": 3, "algorithm": "hash", "statePartitions": 4, "executorsReady": 2, "later": true}'
    assert Applied.from_json(text).executors_ready == 2
