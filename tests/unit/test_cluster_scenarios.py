"""Scenarios of the demo on a cluster."""

import pytest
import yaml

from bench.cluster.scenarios import SCENARIOS
from lab.parts.millrace_images import EXAMPLE
from millrace_api.model.deployment import Placement
from millrace_api.model.streamquery import StreamQuery


@pytest.mark.parametrize("placement", Placement)
def test_a_scenario_is_a_valid_query_with_its_placement(placement):
    query = StreamQuery.model_validate(SCENARIOS[placement].document())
    assert query.spec.partitioner.placement.at_start is placement


def test_without_a_placement_the_demo_runs_the_example():
    example = yaml.safe_load((EXAMPLE / "query.yaml").read_text(encoding="utf-8"))
    assert SCENARIOS[Placement.INLINE].document() == example
