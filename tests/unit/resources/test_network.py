"""What a query and a policy open of the network."""

import pytest

from millrace_api.model.lookups import LookupsSpec
from millrace_operator.resources.names import Owner
from millrace_operator.resources.network import job_network_policy
from millrace_operator.resources.permissions import Permissions
from millrace_operator.resources.tenancy_policy import TenancyPolicy

NAMESPACE = "cabs"


def test_what_all_rules_allow_of_identity_endpoints_is_open_and_nothing_else():
    def opened(*rules, namespace=NAMESPACE):
        asked = [{"namespaces": [NAMESPACE], **rule} for rule in rules]
        permissions = Permissions(TenancyPolicy.model_validate({"policy": asked}, by_name=False))
        made = job_network_policy(Owner(namespace, "trips", "1"), permissions.identity_endpoints(namespace))
        return made["spec"]["egress"]

    closed, eks = opened(), {"identityEndpoints": ["EKS"]}
    assert opened({}) == opened(eks, {}) == opened(eks, namespace="elsewhere") == closed
    (*others, rule) = opened(eks, eks)
    assert others == closed
    assert rule == {
        "to": [{"ipBlock": {"cidr": "169.254.170.23/32"}}, {"ipBlock": {"cidr": "fd00:ec2::23/128"}}],
        "ports": [{"port": 80, "protocol": "TCP"}],
    }


@pytest.mark.parametrize(
    ("namespaces", "peers"),
    [
        ([], {"from": [{"podSelector": {}}]}),
        (
            ["web", "desk"],
            {
                "from": [
                    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "web"}}},
                    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "desk"}}},
                ]
            },
        ),
        (["web", "*"], {}),
    ],
)
def test_the_port_for_look_ups_is_open_where_it_is_asked_for_and_nowhere_else(namespaces, peers):
    owner = Owner(NAMESPACE, "trips", "1")
    secret = {"secretKeyRef": {"name": "readers", "key": "tokens"}}
    document = {"tokens": secret, "tls": {"certificate": secret, "key": secret}, "namespaces": namespaces}
    asked = LookupsSpec.model_validate(document, by_name=False)
    closed = job_network_policy(owner)["spec"]["ingress"]
    (*others, rule) = job_network_policy(owner, (), asked)["spec"]["ingress"]
    assert others == closed
    assert rule == {"ports": [{"port": 8082, "protocol": "TCP"}]} | peers
    assert "8082" not in str(closed)
