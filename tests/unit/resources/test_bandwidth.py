import math

import pytest

from builders import a_query
from millrace_operator.lifecycle.autoscaling.scaling_inputs import bounds_of
from millrace_operator.resources.bandwidth import EGRESS, INGRESS, executor_network
from millrace_operator.resources.restrictions import problems
from millrace_operator.scaling.shape import Network


def with_annotations(annotations):
    return a_query("spec", "executors", "podTemplate", value={"metadata": {"annotations": annotations}})


@pytest.mark.parametrize(
    ("annotations", "network"),
    [
        ({INGRESS: "1G", EGRESS: "500M"}, Network(125e6, 62.5e6)),
        ({INGRESS: "8Ki"}, Network(1024, math.inf)),
        ({EGRESS: "1000"}, Network(math.inf, 125)),
        ({"team": "a"}, None),
    ],
)
def test_a_pod_templates_bandwidths_are_the_network_of_an_executor(annotations, network):
    query = with_annotations(annotations)
    assert executor_network(query.spec.executors) == network
    assert bounds_of(query.spec).network == network
    assert not [each for each in problems(query) if "bandwidth" in each.message]


def test_without_a_template_nothing_is_known():
    assert bounds_of(a_query().spec).network is None


@pytest.mark.parametrize("wrong", ["fast", "1e", "0", "999", "2P", "-1M", 5, None])
def test_a_bandwidth_that_the_plugin_would_reject_is_a_problem(wrong):
    query = with_annotations({INGRESS: wrong})
    (found,) = (each for each in problems(query) if "bandwidth" in each.message)
    assert found.field == f"spec.executors.podTemplate.metadata.annotations[{INGRESS}]"
    assert executor_network(query.spec.executors) is None


@pytest.mark.parametrize("metadata", [None, [], {"annotations": []}, {"annotations": None}])
def test_metadata_of_another_type_states_no_network(metadata):
    query = a_query("spec", "executors", "podTemplate", value={"metadata": metadata})
    assert executor_network(query.spec.executors) is None
