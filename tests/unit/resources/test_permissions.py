"""What a policy does not allow is refused with field, value and what is allowed; each of its fields takes effect."""

import pytest
import yaml

from millrace_api.errors import MillraceError
from millrace_api.model.externals import ExternalKind
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import read_query
from millrace_operator.resources.permissions import _CANONICAL, MOST_PROBLEMS, Account, Permissions
from millrace_operator.resources.tenancy_policy import TenancyPolicy, TenancyRule
from unit.fields.walk import fields

from .cases import CASES
from .refused import NAMESPACE, REFUSED, container, policy, query, said


@pytest.mark.parametrize(("rule", "allowed", "asked", "expected"), [each[1:] for each in REFUSED])
def test_what_a_rule_does_not_allow_is_refused(rule, allowed, asked, expected):
    assert said(policy(**rule), query(**allowed)) == []
    found = said(policy(**rule), query(**asked))
    assert expected in found[0]
    assert said(policy(**rule), query(**asked), "elsewhere") == []
    assert said(Permissions(), query(**asked)) == [], "without a policy, all that is valid is allowed"


def test_every_field_of_a_rule_has_a_case_that_it_refuses():
    """If this fails for a new field: add what it allows and what it refuses to ``REFUSED``."""
    paths = {field.path.removeprefix("policy.policy[].") for field in fields(TenancyPolicy, "policy")}
    elsewhere = {"policy.policy", "namespaces", "exceptNamespaces"}  # in test_policy.py
    elsewhere |= {"identityEndpoints"}  # in test_network.py: it opens something, and refuses nothing
    assert {each[0] for each in REFUSED} == paths - elsewhere


@pytest.mark.parametrize("case", CASES)
def test_without_a_policy_all_cases_are_allowed(case):
    assert said(Permissions(), read_query(yaml.safe_load(CASES[case]))) == []


def test_a_query_has_to_keep_to_all_rules_and_hears_of_each():
    rules = [{"namespaces": ["*"], "limits": {"executors": 4}}, {"namespaces": ["ca*"], "limits": {"executors": 2}}]
    both = Permissions(TenancyPolicy.model_validate({"policy": rules}, by_name=False))
    assert said(both, query(executors__max=2)) == []
    assert [each.partition("than the ")[2][0] for each in said(both, query(executors__max=5))] == ["4", "2"]


def test_of_very_many_things_that_are_not_allowed_only_the_first_are_looked_for(monkeypatch):
    kafka = {"bootstrapServers": ",".join(f"kafka-{n}:9092" for n in range(1000)), "topic": "trips"}
    asked = query(sources={name: {"kafka": kafka, "schema": "cell STRING"} for name in ("trips", "a", "b")})
    looked = []
    monkeypatch.setattr("millrace_operator.resources.permissions.matches_any", lambda *_: looked.append(1))
    assert len(said(policy(brokers=["ours:*"]), asked)) == MOST_PROBLEMS
    assert len(looked) == MOST_PROBLEMS


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("labels", "kueue.x-k8s.io/queue-name"),
        ("labels", "queue"),
        ("annotations", "yunikorn.apache.org/queue"),
        ("annotations", "scheduling.volcano.sh/queue-name"),
    ],
)
def test_where_queues_are_restricted_a_template_may_not_name_one(part, name):
    asked = query(executors__podTemplate={"metadata": {part: {name: "others"}}})
    assert said(policy(), asked) == []
    (problem,) = said(policy(queues=["*"]), asked)
    assert problem.startswith(f'spec.executors.podTemplate.metadata.{part}: "{name}" is not allowed in namespace cabs')
    if part == "labels":
        (problem,) = said(policy(queues=["*"]), query(labels={name: "others"}))
        assert problem.startswith(f'spec.labels[{name}]: "{name}" is not allowed in namespace cabs')


@pytest.mark.parametrize("name", ["volcano", "yunikorn"])
def test_where_queues_are_restricted_a_template_may_not_name_a_batch_scheduler(name):
    """It would take the pods into its default queue."""
    asked = query(driver__podTemplate={"spec": {"schedulerName": name}})
    assert said(policy(), asked) == []
    (problem,) = said(policy(queues=["*"]), asked)
    assert problem.startswith(f'spec.driver.podTemplate.spec.schedulerName: "{name}" is not allowed in namespace cabs')


def test_where_priorities_are_restricted_no_label_may_name_another_one_to_kueue():
    label = {"kueue.x-k8s.io/priority-class": "high"}
    for asked, field in (
        (query(labels=label), "spec.labels[kueue.x-k8s.io/priority-class]"),
        (query(driver__podTemplate={"metadata": {"labels": label}}), "spec.driver.podTemplate.metadata.labels"),
    ):
        assert said(policy(), asked) == []
        (problem,) = said(policy(priorityClasses=["*"]), asked)
        expected = f'{field}: "kueue.x-k8s.io/priority-class" is not allowed in namespace cabs; leave it out'
        assert problem.startswith(expected)


def test_a_template_may_not_put_another_claim_in_the_place_of_an_allowed_one():
    other = {"spec": {"volumes": [{"name": "checkpoint", "persistentVolumeClaim": {"claimName": "other"}}]}}
    asked = query(driver__podTemplate=other, executors__podTemplate=other)
    (problem,) = said(policy(checkpointClaims=["checkpoints"]), asked)
    assert 'on the claim "other" is not allowed' in problem


def test_the_operators_own_account_is_for_no_query():
    permissions = Permissions(operator=Account("millrace", "millrace-operator"))
    asked = query(serviceAccountName="millrace-operator")
    assert said(permissions, asked, "cabs") == [], "an account of the tenant's own with that name"
    (problem,) = said(permissions, asked, "millrace")
    assert problem == (
        'spec.serviceAccountName: "millrace-operator" is the operator\'s own account, whose rights are not those of a '
        "query; leave it out, or write another account"
    )


@pytest.mark.parametrize("quantity", ["NaN", "Infinity", "-1", "1x"])
def test_an_odd_quantity_is_refused_and_ends_nothing(quantity):
    template = container("driver", resources={"limits": {"memory": quantity}})
    asked = StreamQuery.model_validate(query(driver__podTemplate=template).to_document(), by_name=False)
    found = said(policy(limits={"memory": "1t"}), asked)
    assert found == [] or "is not a quantity" in found[0]


def test_what_is_not_allowed_is_an_error_of_its_own():
    with pytest.raises(MillraceError):
        policy(limits={"executors": 1}).require(query(), NAMESPACE)


def test_a_rule_has_a_field_for_each_kind_of_server_and_role():
    beside = {"client_options", "data", "files", "identities", "logins", "s3_endpoints", "secrets", "tables"}
    assert {each.value for each in _CANONICAL} == {each.value for each in ExternalKind} - beside
    assert {each.value for each in _CANONICAL} <= TenancyRule.model_fields.keys()
