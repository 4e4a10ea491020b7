"""Nothing in the API is accepted and ignored: every field has a probe that shows where it takes effect."""

from __future__ import annotations

from enum import Enum

import pytest

from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import Spec

from .of_code import of_code
from .of_deployment import of_deployment
from .of_kafka import of_kafka
from .of_lookups import of_lookups
from .of_other_stores import of_other_stores
from .of_query import of_query
from .of_reporting import of_reporting
from .of_s3 import of_s3
from .of_sinks import of_sinks
from .of_sources import of_sources
from .of_table_streams import of_table_streams
from .of_tables import of_tables
from .of_the_plan import of_the_plan
from .of_upgrades import of_upgrades
from .probe import ABSENT
from .walk import fields

PROBES = [
    *of_sources(),
    *of_tables(),
    *of_table_streams(),
    *of_kafka(),
    *of_query(),
    *of_sinks(),
    *of_s3(),
    *of_other_stores(),
    *of_code(),
    *of_lookups(),
    *of_deployment(),
    *of_upgrades(),
    *of_reporting(),
    *of_the_plan(),
]
FIELDS = {field.path: field for model, path in ((Spec, "spec"), (Plan, "plan")) for field in fields(model, path)}

REFUSED = {"plan.algorithm": {"auto"}}
"""Values that a field refuses: the type of a plan's algorithm is that of the spec's, which may be auto."""


def probes_of(field):
    return [probe for probe in PROBES if probe.field == field]


def test_every_field_has_a_probe_and_every_probe_a_field():
    """If this fails for a new field: add a probe to the module of its area, ``of_*.py``, which shows its effect."""
    probed = {probe.field for probe in PROBES}
    assert sorted(FIELDS.keys() - probed) == []
    assert sorted(probed - FIELDS.keys()) == []


@pytest.mark.parametrize("field", sorted({probe.field for probe in PROBES}))
def test_a_field_takes_effect(field):
    failures = [failure for probe in probes_of(field) for failure in probe.failures()]
    assert not failures, "\n".join(failures)
    assert any(probe.shows for probe in probes_of(field)), "too few values are accepted: a refusal is no effect"


@pytest.mark.parametrize("field", sorted(path for path, field in FIELDS.items() if field.values))
def test_each_of_the_few_values_of_a_field_takes_effect(field):
    """A field that is left out has its default value; a value that is refused has no effect."""
    default = FIELDS[field].default
    probed = [default if value is ABSENT else value for probe in probes_of(field) for value in probe.accepted]
    assert set(FIELDS[field].values) - REFUSED.get(field, set()) <= {
        value.value if isinstance(value, Enum) else value for value in probed
    }
