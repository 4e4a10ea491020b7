"""The room that quotas leave for pods: never more than Kubernetes admits, and all that it admits."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.lifecycle.autoscaling.quota_room import quantity, room_for
from millrace_operator.resources.quota_usage import quota_usage

EXECUTOR = {"requests": {"cpu": "2", "memory": "3Gi"}, "limits": {"memory": "3Gi"}}
MEBI = 1 << 20


def pod(*containers, init=(), **spec):
    """A pod of containers with such resources; ``init`` are pairs of resources and of a restart policy."""
    named = [{"name": f"c{number}", "resources": each} for number, each in enumerate(containers)]
    first = [
        {"name": f"i{number}", "resources": each} | ({"restartPolicy": policy} if policy else {})
        for number, (each, policy) in enumerate(init)
    ]
    return {"metadata": {}, "spec": {"containers": named, "initContainers": first, **spec}}


def quota(hard, used=None, name="compute", **spec):
    used = dict.fromkeys(hard, "0") | (used or {})
    return {
        "kind": "ResourceQuota",
        "metadata": {"name": name},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used},
    }


def limit_range(*items, name="sizes"):
    return {"kind": "LimitRange", "metadata": {"name": name}, "spec": {"limits": list(items)}}


@pytest.mark.parametrize(
    ("hard", "used", "pods"),
    [
        ({"pods": "10"}, {"pods": "7"}, 3),
        ({"count/pods": "10"}, {"count/pods": "10"}, 0),
        ({"requests.cpu": "7"}, {"requests.cpu": "500m"}, 3),
        ({"cpu": "4"}, {}, 2),
        ({"memory": "8Gi"}, {}, 2),
        ({"limits.memory": "10G"}, {}, 3),
        ({"requests.memory": "9Gi"}, {"requests.memory": "1Mi"}, 2),
        ({"pods": "9", "limits.memory": "3Gi"}, {}, 1),
        ({"pods": "2"}, {"pods": "5"}, 0),
    ],
)
def test_as_many_pods_fit_as_a_quota_leaves(hard, used, pods):
    assert room_for(pod(EXECUTOR), [quota(hard, used)]).pods == pods


def test_the_tightest_quota_is_named_with_what_is_used_and_what_a_pod_takes():
    loose, tight = quota({"pods": "9"}, name="loose"), quota({"limits.memory": "10Gi"}, {"limits.memory": "5Gi"})
    room = room_for(pod(EXECUTOR), [loose, tight])
    assert room.pods == 1
    assert room.why.startswith(
        "5Gi of 10Gi limits.memory in ResourceQuota compute are used, and a pod takes 3Gi (raise the quota"
    )


@pytest.mark.parametrize(
    "unlimited",
    [
        {"services": "0", "count/configmaps": "0", "requests.storage": "0", "persistentvolumeclaims": "0"},
        {"requests.nvidia.com/gpu": "0", "requests.ephemeral-storage": "0"},
    ],
)
def test_what_a_pod_does_not_count_does_not_limit_it(unlimited):
    assert room_for(pod(EXECUTOR), [quota(unlimited)]) is None


def test_a_quota_that_is_not_counted_yet_does_not_limit():
    assert room_for(pod(EXECUTOR), [quota({"pods": "0"}) | {"status": {}}]) is None
    assert room_for(pod(EXECUTOR), []) is None


def test_what_a_quota_counts_has_to_be_named_by_each_container():
    """Kubernetes refuses such a pod, whatever is left."""
    room = room_for(pod(EXECUTOR), [quota({"limits.cpu": "100"})])
    assert room.pods == 0
    assert room.why.startswith("container c0 has no limits.cpu, which ResourceQuota compute counts")
    default = limit_range({"type": "Container", "default": {"cpu": "4"}, "defaultRequest": {"cpu": "4"}})
    assert room_for(pod(EXECUTOR), [quota({"limits.cpu": "100"}), default]).pods == 25


def test_extended_resources_count_as_requests():
    gpu = {"limits": {"nvidia.com/gpu": "2"}}
    assert room_for(pod(gpu), [quota({"requests.nvidia.com/gpu": "7"})]).pods == 3


@pytest.mark.parametrize(
    ("template", "cpu"),
    [
        (pod({"requests": {"cpu": "1"}}, {"limits": {"cpu": "500m"}}), "1.5"),
        (pod({"requests": {"cpu": "1"}}, init=[({"requests": {"cpu": "3"}}, None)]), "3"),
        (pod({"requests": {"cpu": "1"}}, init=[({"requests": {"cpu": "3"}}, "Always")]), "4"),
        (
            pod(
                {"requests": {"cpu": "1"}},
                init=[({"requests": {"cpu": "2"}}, "Always"), ({"requests": {"cpu": "3"}}, None)],
            ),
            "5",
        ),
        (pod({"requests": {"cpu": "1"}}, overhead={"cpu": "250m"}), "1.25"),
        (pod({"requests": {"cpu": "1"}}, resources={"requests": {"cpu": "5"}}), "5"),
    ],
)
def test_a_pod_takes_what_its_containers_take_together_or_one_after_the_other(template, cpu):
    assert quota_usage(template).counts("requests.cpu") == Decimal(cpu)


def test_a_limit_range_gives_containers_what_they_do_not_name():
    ranges = [limit_range({"type": "Container", "default": {"cpu": "3"}, "defaultRequest": {"cpu": "1"}})]
    size = quota_usage(pod(EXECUTOR, {}), ranges)
    assert (size.counts("requests.cpu"), size.counts("limits.cpu")) == (3, 6)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        (
            {"type": "Container", "max": {"memory": "2Gi"}, "default": {"memory": "2Gi"}},
            "container c0 takes 3Gi of memory, and LimitRange sizes allows 2Gi at most",
        ),
        ({"type": "Pod", "max": {"memory": "2Gi"}}, "a pod takes 3Gi of memory, and LimitRange sizes allows 2Gi"),
        ({"type": "Pod", "max": {"cpu": "9"}}, "a pod has no cpu limit, and LimitRange sizes demands one"),
        ({"type": "Container", "min": {"cpu": "3"}}, "container c0 requests 2 of cpu, and LimitRange sizes demands 3"),
        ({"type": "Pod", "min": {"ephemeral-storage": "1Gi"}}, "a pod requests no ephemeral-storage"),
    ],
)
def test_a_pod_that_a_limit_range_refuses_does_not_fit(item, why):
    room = room_for(pod(EXECUTOR), [limit_range(item)])
    assert room.pods == 0
    assert room.why.startswith(why)


def test_a_pod_within_its_range_fits_and_claims_have_ranges_of_their_own():
    within = limit_range({"type": "Container", "max": {"memory": "3Gi"}, "min": {"cpu": "2"}})
    claims = limit_range({"type": "PersistentVolumeClaim", "max": {"storage": "0"}})
    assert room_for(pod(EXECUTOR), [within, claims]) is None


def _selector(name, operator="Exists", values=()):
    return {"scopeSelector": {"matchExpressions": [{"scopeName": name, "operator": operator, "values": list(values)}]}}


HIGH = {"priorityClassName": "high"}
ELSEWHERE = {"podAffinityTerm": {"namespaceSelector": {}}}


@pytest.mark.parametrize(
    ("scope", "template", "counts"),
    [
        ({"scopes": ["NotTerminating"]}, pod(EXECUTOR), True),
        ({"scopes": ["Terminating"]}, pod(EXECUTOR), False),
        ({"scopes": ["Terminating"]}, pod(EXECUTOR, activeDeadlineSeconds=9), True),
        ({"scopes": ["BestEffort"]}, pod(EXECUTOR), False),
        ({"scopes": ["BestEffort"]}, pod({}), True),
        ({"scopes": ["NotBestEffort", "Terminating"]}, pod(EXECUTOR), False),
        ({"scopes": ["NotBestEffort"]}, pod(EXECUTOR), True),
        ({"scopes": ["OfTheFuture"]}, pod(EXECUTOR), False),
        (_selector("PriorityClass", "In", ["high"]), pod(EXECUTOR), False),
        (_selector("PriorityClass", "In", ["high"]), pod(EXECUTOR, **HIGH), True),
        (_selector("PriorityClass", "NotIn", ["high"]), pod(EXECUTOR), True),
        (_selector("PriorityClass", "NotIn", ["high"]), pod(EXECUTOR, **HIGH), False),
        (_selector("PriorityClass"), pod(EXECUTOR), False),
        (_selector("PriorityClass"), pod(EXECUTOR, **HIGH), True),
        (_selector("PriorityClass", "DoesNotExist"), pod(EXECUTOR), True),
        (_selector("PriorityClass", "DoesNotExist"), pod(EXECUTOR, **HIGH), False),
        (_selector("CrossNamespacePodAffinity"), pod(EXECUTOR), False),
        (
            _selector("CrossNamespacePodAffinity"),
            pod(
                EXECUTOR,
                affinity={"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [ELSEWHERE]}},
            ),
            True,
        ),
    ],
)
def test_a_quota_counts_pods_in_its_scopes(scope, template, counts):
    room = room_for(template, [quota({"pods": "0"}, **scope)])
    assert (room is not None and room.pods == 0) is counts


millis, mebis = st.integers(1, 8_000), st.integers(1, 8_000)
resources = st.fixed_dictionaries({"cpu": millis, "memory": mebis, "most_cpu": millis, "most_memory": mebis})
hard = st.fixed_dictionaries(
    {},
    optional={
        "pods": st.integers(0, 12),
        "requests.cpu": st.integers(0, 60_000),
        "limits.cpu": st.integers(0, 60_000),
        "requests.memory": st.integers(0, 60_000),
        "limits.memory": st.integers(0, 60_000),
    },
)


def spelled(resource, amount):
    """A quantity in one of its spellings."""
    if resource.endswith("cpu"):
        return f"{amount}m"
    if resource.endswith("memory"):
        return f"{amount}Mi" if amount % 2 else str(amount * MEBI)
    return str(amount)


@given(st.lists(resources, min_size=1, max_size=3), st.lists(hard, max_size=3), st.randoms())
def test_exactly_as_many_pods_fit_as_are_admitted_one_after_the_other(containers, quotas, chance):
    """The other side is a count as the admission of the API server makes it: a pod at a time, in whole units."""
    template = pod(
        *(
            {
                "requests": {"cpu": f"{each['cpu']}m", "memory": f"{each['memory']}Mi"},
                "limits": {"cpu": f"{each['cpu'] + each['most_cpu']}m", "memory": f"{each['memory']}Mi"},
            }
            for each in containers
        )
    )
    takes = {
        "pods": 1,
        "requests.cpu": sum(each["cpu"] for each in containers),
        "limits.cpu": sum(each["cpu"] + each["most_cpu"] for each in containers),
        "requests.memory": sum(each["memory"] for each in containers),
        "limits.memory": sum(each["memory"] for each in containers),
    }
    used = [{name: chance.randint(0, most + 1) for name, most in each.items()} for each in quotas]
    documents = [
        quota(*({name: spelled(name, value) for name, value in each.items()} for each in (most, has)))
        for most, has in zip(quotas, used, strict=True)
    ]

    admitted = 0
    while admitted < 100_000 and all(
        has[name] + takes[name] <= most[name] for most, has in zip(quotas, used, strict=True) for name in most
    ):
        for has in used:
            for name in has:
                has[name] += takes[name]
        admitted += 1
        if not any(quotas):
            break
    room = room_for(template, documents)
    assert (room is None) is not any(quotas)
    if room is not None:
        assert room.pods == admitted


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("limits.memory", 3 << 30, "3Gi"),
        ("memory", 1536 << 20, "1536Mi"),
        ("memory", 1000, "1000"),
        ("requests.cpu", Decimal("0.50"), "0.5"),
        ("pods", 1, "1"),
        ("cpu", 100, "100"),
    ],
)
def test_amounts_read_as_users_write_them(resource, amount, text):
    assert quantity(resource, Decimal(amount)) == text
