"""Keys of labels: those that Kubernetes takes, by the model and by the rule of the API server alike."""

from __future__ import annotations

import re

import pytest
from pydantic import TypeAdapter, ValidationError

from millrace_api.model.reporting import LabelKey
from millrace_api.model.streamquery import Spec

KEYS: TypeAdapter[str] = TypeAdapter(LabelKey)

_RULE = next(rule for rule in Spec.rules if rule.fields == ("labels",)).as_cel()["rule"]
_TAKEN, _NOT_TAKEN = re.findall(r"name\.matches\('([^']+)'\)", _RULE)


def is_taken_by_the_rule(key: str) -> bool:
    return len(key) <= 317 and bool(re.search(_TAKEN, key)) and not re.search(_NOT_TAKEN, key)


@pytest.mark.parametrize(
    "key",
    [
        "team",
        "Team_a.b-c",
        "a",
        "a" * 63,
        "example.org/team",
        "a/b",
        "a-b.c-d.e/Team",
        "1.2.3/4",
        f"{'a' * 253}/{'b' * 63}",
        f"{'a.' * 126}a/b",
    ],
)
def test_keys_that_kubernetes_takes_are_taken(key: str) -> None:
    assert KEYS.validate_python(key) == key
    assert is_taken_by_the_rule(key)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "-team",
        "team.",
        "a b",
        "a" * 64,
        "/team",
        "a/",
        "a/b/team",
        "A/team",
        "a_b/team",
        "a..b/c",
        ".a/b",
        "a./b",
        "x.-y/b",
        "x-.y/b",
        "-x/b",
        f"{'a' * 254}/b",
        f"{'a.' * 127}a/b",
    ],
)
def test_keys_that_kubernetes_refuses_are_refused(key: str) -> None:
    with pytest.raises(ValidationError):
        KEYS.validate_python(key)
    assert not is_taken_by_the_rule(key)
