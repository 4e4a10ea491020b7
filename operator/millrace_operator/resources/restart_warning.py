"""The warning of ``kubectl apply`` about changes that replace the driver: an admission policy, from ``EFFECTS``.

    python -m millrace_operator.resources.restart_warning

writes the policy's spec for the chart.
"""

from __future__ import annotations

from typing import Any

import yaml

from millrace_api.crd import GROUP, PLURAL, VERSION
from millrace_api.model.changes import Effect
from millrace_api.model.upgrade import UpgradeMode

from .shadow import COMPARED
from .spec_changes import EFFECTS

_NO_SETTINGS = "sparkConf"
"""Mapping whose default, no entries, the API server does not fill in."""


def policy() -> dict[str, Any]:
    """Return the spec of a ValidatingAdmissionPolicy; its binding must warn, and not deny.

    It is about drivers that run before and after the change, and about the spec alone: a change by ``/scale`` or of the
    status does not reach it. Where it cannot be evaluated, the change passes without a warning.
    """
    rule = {"apiGroups": [GROUP], "apiVersions": [VERSION], "operations": ["UPDATE"], "resources": [PLURAL]}
    changed = " + ".join(
        f"({_differs(field)} ? ['spec.{field}'] : [])" for field, effect in EFFECTS.items() if effect is Effect.REPLACED
    )
    runs = " && ".join(f"!{each}.spec.?suspend.orValue(false)" for each in ("object", "oldObject"))
    compares = (
        f"object.spec.?upgrade.?mode.orValue('') == '{UpgradeMode.SHADOW}' && "
        f"variables.changed.exists(field, field in {sorted(COMPARED)})"
    )
    goes_on = (
        "a version that has been ready for a minute goes on until both are compared on the same records, and "
        "status.upgrade says what that has come to; a younger one is replaced at once"
    )
    ends = (
        "the driver ends after its running batch, and another one continues from the checkpoint; results pause "
        "meanwhile (millrace diff FILE says for how long)"
    )
    message = f"variables.changed.join(', ') + ' changed: ' + ({compares} ? '{goes_on}' : '{ends}')"
    return {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "a-driver-runs", "expression": runs}],
        "variables": [{"name": "changed", "expression": changed}],
        "validations": [{"expression": "variables.changed.size() == 0", "messageExpression": message}],
    }


def policy_yaml() -> str:
    """Return the policy's spec as the chart ships it."""
    text = yaml.safe_dump(policy(), sort_keys=False, width=110)
    return f"# Generated from millrace_api/model by `make generate`; do not edit.\n{text}"


def _differs(field: str) -> str:
    one, other = (f"{each}.spec.?{field.replace('.', '.?')}" for each in ("object", "oldObject"))
    if field == _NO_SETTINGS:
        one, other = f"{one}.orValue({{}})", f"{other}.orValue({{}})"
    if field.endswith(".memory"):  # 2Gi and 2g are one size
        one, other = (f"{each}.orValue('').lowerAscii().replace('i', '')" for each in (one, other))
    if field.endswith(".cores"):  # 2 and "2" are one number
        one, other = (f"quantity(string({each}.orValue(0)))" for each in (one, other))
        return f"{one}.compareTo({other}) != 0"
    return f"{one} != {other}"


if __name__ == "__main__":
    print(policy_yaml(), end="")
