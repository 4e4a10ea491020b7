"""docs/reference/streamquery.md: all of the API is in it, with a meaning each, and its links lead somewhere."""

import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from millrace_api import crd
from millrace_api.model.status import ConditionType, FailureClass
from millrace_api.model.streamquery import Annotation
from millrace_operator.lifecycle.autoscaling.ineffective import IneffectiveReason
from millrace_operator.lifecycle.autoscaling.scaling_status import LIMITS, ActiveReason, LimitedReason, MetricsReason
from millrace_operator.lifecycle.chains.chain_status import UpstreamReason
from millrace_operator.lifecycle.conditions import DegradedReason, ProgressingReason, ReadyReason
from millrace_operator.resources.spec_changes import EFFECTS
from millrace_operator.scaling.decision.decision import Reason
from millrace_operator.scaling.decision.settings import Guard
from millrace_operator.scaling.serial_time import SerialCause
from tools.reference import docstrings, reference

FILE = Path(__file__).parents[3] / "docs" / "reference" / "streamquery.md"
PAGE = reference()
SECTIONS = {
    title.strip("` "): text for title, text in re.findall(r"^##+ (.*)\n((?:(?!##).*(?:\n|$))*)", PAGE, re.MULTILINE)
}
COLUMNS = (*crd.PRINTER_COLUMNS, *crd.WIDE_COLUMNS)
REASONS = {
    "Ready": (ReadyReason,),
    "Progressing": (ProgressingReason,),
    "UpstreamReady": (UpstreamReason,),
    "MetricsAvailable": (MetricsReason,),
    "ScalingLimited": (LimitedReason, LIMITS),
    "ScalingIneffective": (IneffectiveReason, SerialCause),
    "ScalingActive": (ActiveReason,),
    "Degraded": (DegradedReason, FailureClass),
    "Scaling decisions": (Reason, Guard),
    "Failures": (FailureClass,),
}


def rows(section: str) -> dict[str, list[str]]:
    """The cells of a section's table by what its first column says."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("| `")]
    cells = [re.split(r" (?<!\\)\| ", line.removeprefix("| ").removesuffix(" |")) for line in lines]
    return {first.strip("`"): rest for first, *rest in cells}


def section_of(path: str) -> str:
    """The section that describes an object: its own, or that of an object that is the same."""
    if path in SECTIONS:
        return path
    above, _, name = path.rpartition(".")
    if above:
        inner = f"{section_of(above)}.{name}"
        if inner in SECTIONS:
            return inner
        path = inner
    [found] = [title for title, text in SECTIONS.items() if re.search(rf"^The same: .*`{re.escape(path)}`", text, re.M)]
    return found


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    """The fields of all objects, each with the path of its object."""
    for name, below in schema.get("properties", {}).items():
        yield path, name
        yield from fields(below, f"{path}.{name}" if path != "StreamQuery" else name)
    if isinstance(schema.get("additionalProperties"), dict):
        yield from fields(schema["additionalProperties"], f"{path}.*")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


FIELDS = list(fields(crd.openapi_schema(), "StreamQuery"))


def test_the_file_is_up_to_date():
    assert FILE.read_text(encoding="utf-8") == PAGE, "docs/reference/streamquery.md is stale: run `make generate`"


def test_every_field_is_in_the_table_of_its_object():
    assert len(FIELDS) > 200
    assert [(path, name) for path, name in FIELDS if name not in rows(section_of(path))] == []


def test_every_entry_of_the_page_has_a_description():
    cells = [cell for line in PAGE.splitlines() if line.startswith("|") for cell in line.split("|")[1:-1]]
    assert len(cells) > 1000
    assert [cell for cell in cells if not cell.strip()] == []
    for title in {section_of(path) for path, _ in FIELDS}:
        assert SECTIONS[title].strip()[0].isalpha(), title


@pytest.mark.parametrize("field", EFFECTS)
def test_the_page_says_what_a_change_of_each_field_takes(field):
    above, _, name = f"spec.{field}".rpartition(".")
    assert rows(above)[name][-1] == EFFECTS[field]


def test_what_is_below_a_field_takes_the_same():
    assert rows("spec.sources.*.kafka")["topic"][-1] == "driver replaced"
    assert rows("spec.checkpoint")["claimName"][-1] == "fixed"
    assert rows("spec.partitioner.replicas")["max"][-1] == "in place"
    assert rows("spec")["executors"][-1] == "by field"


def test_the_page_has_types_bounds_and_defaults():
    assert rows("spec.scaling")["target"][:2] == ["number (above 0 and at most 1)", "`0.9`"]
    assert rows("spec.scaling")["step"][0] == "number (above 0 and below 1)"
    assert rows("spec")["batchInterval"][:2] == ["duration longer than zero", "`2s`"]
    assert rows("spec")["sources"][:2] == ["map (1 to 16 entries) of [object](#specsources)", "required"]
    assert rows("spec")["emit"][:2] == ["`OnUpdate`, `OnWindowEnd`, `OnWindowClose`", "`OnUpdate`"]
    assert rows("status")["retryTime"][:2] == ["time", "-"]
    assert rows("spec.driver")["podTemplate"][0] == "object of any form"


def test_every_rule_is_told():
    def messages(schema: Any) -> Iterator[str]:
        if isinstance(schema, dict):
            yield from (rule["message"] for rule in schema.get("x-kubernetes-validations", ()))
            for below in schema.values():
                yield from messages(below)

    assert [message for message in messages(crd.openapi_schema()) if f"- {message}\n" not in PAGE] == []


def test_every_type_of_condition_has_its_reasons():
    assert [name for name in REASONS if name in set(ConditionType)] == list(ConditionType)


@pytest.mark.parametrize("section", REASONS)
def test_every_reason_has_a_meaning(section):
    found = rows(section)
    assert {str(each.value) for reasons in REASONS[section] for each in reasons} <= set(found)
    assert all(meaning[0].endswith(".") for meaning in found.values())


def test_the_page_has_all_annotations_and_columns():
    assert set(rows("Annotations")) == set(Annotation)
    assert all(f"| {name} | `{path}` |" in SECTIONS["Columns"] for name, _, path, _ in COLUMNS)


def test_links_lead_to_one_section_each():
    anchors = [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in SECTIONS]
    assert set(re.findall(r"\]\(#([^)]*)\)", PAGE)) <= set(anchors)
    assert len(anchors) == len(set(anchors))


def test_a_member_without_a_docstring_is_an_error():
    with pytest.raises(ValueError, match=r"Undescribed.TWO has no docstring"):
        docstrings(Undescribed)


class Undescribed(Enum):
    ONE = "one"
    """It has one."""
    TWO = "two"
