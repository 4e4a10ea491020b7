"""Sizes of whole pods, as the scheduler counts them."""

import pytest
import yaml

from millrace_api.model.streamquery import StreamQuery
from millrace_operator.resources.footprints import UNLIMITED, pods_of, total

from .cases import SMALLEST

GIB = 2**30
DRIVER = 2.0
"""GiB of a driver with the default heap of 1 GiB, of which it has one core."""


def driver(**spec):
    """Cores and GiB of a driver's pod with this in its template."""
    document = yaml.safe_load(SMALLEST)
    document["spec"]["driver"] = {"podTemplate": {"spec": spec}}
    size = pods_of(StreamQuery.model_validate(document, by_name=False))[0].size
    return float(size.cores), float(size.memory / GIB if size.memory < UNLIMITED else size.memory)


def container(name, cpu, memory, **parts):
    return {"name": name, "resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}}, **parts}


@pytest.mark.parametrize(
    ("spec", "cores", "gib"),
    [
        ({}, 1, DRIVER),
        ({"containers": [container("driver", "3", "4Gi")]}, 3, 4),
        ({"containers": [container("side", "500m", "1Gi")]}, 1.5, DRIVER + 1),
        ({"initContainers": [container("small", "500m", "1Gi")]}, 1, DRIVER),
        ({"initContainers": [container("large", "4", "8Gi")]}, 4, 8),
        ({"initContainers": [container("side", "1", "1Gi", restartPolicy="Always")]}, 2, DRIVER + 1),
        (
            {
                "initContainers": [
                    container("side", "1", "1Gi", restartPolicy="Always"),
                    container("large", "4", "8Gi"),
                ]
            },
            5,
            9,
        ),
        ({"resources": {"requests": {"cpu": "6"}, "limits": {"memory": "2Gi"}}}, 6, 2),
        ({"containers": [{"name": "side"}]}, 1, float("inf")),
        ({"containers": [{"name": "side"}], "resources": {"limits": {"memory": "3Gi"}}}, 1, 3),
        ({"initContainers": [{"name": "first"}]}, 1, float("inf")),
        ({"containers": [{"name": "driver", "resources": {"limits": {"memory": None}}}]}, 1, float("inf")),
    ],
)
def test_a_pod_is_as_large_as_its_containers_and_what_it_has_as_a_whole(spec, cores, gib):
    assert driver(**spec) == (cores, gib)


def test_an_executor_has_the_memory_that_spark_gives_it_whatever_its_template_says():
    document = yaml.safe_load(SMALLEST)
    template = {"spec": {"containers": [container("executor", "250m", "64Gi")]}}
    document["spec"]["executors"] = {"cores": 2, "memory": "2g", "podTemplate": template}
    executor = pods_of(StreamQuery.model_validate(document, by_name=False))[1]
    assert (float(executor.size.cores), int(executor.size.memory)) == (0.25, (2048 + 256 + 512 + 204) << 20)


def test_all_pods_are_counted_at_their_largest_number():
    document = yaml.safe_load(SMALLEST)
    document["spec"] |= {
        "executors": {"max": 3, "cores": 4},
        "partitioner": {"placement": "Auto", "replicas": {"max": 5}, "pod": {"cores": 2}},
    }
    pods = pods_of(StreamQuery.model_validate(document, by_name=False))
    assert [(each.field, each.most) for each in pods] == [
        ("spec.driver", 1),
        ("spec.executors", 3),
        ("spec.partitioner.pod", 5),
    ]
    assert total(pods).cores == 1 + 3 * 4 + 5 * 2
