"""A policy on schema registries holds for every format that names one, and files of logins for every login to one."""

import pytest

from millrace_api.model.externals import ExternalKind, given

from .refused import AVRO, policy, query, said

PROTOBUF = AVRO | {"format": "protobuf"}
OUT = {"bootstrapServers": "kafka:9092", "topic": "out", "format": "avro"}
ALLOWED, OTHER = "https://schemas.example.com/v1", "https://other.example.com"


def reading(registry, **login):
    return {"sources__trips": PROTOBUF | {"protobuf": {"registry": registry, **login}}}


def writing(registry, **login):
    return {"sink": {"kafka": OUT | {"schemas": {"registry": registry, **login}}}}


@pytest.mark.parametrize(
    ("asked", "field"),
    [(reading, "spec.sources.trips.protobuf.registry"), (writing, "spec.sink.kafka.schemas.registry")],
)
def test_a_registry_that_no_rule_allows_is_refused(asked, field):
    permissions = policy(schemaRegistries=["https://schemas.example.com/**"])
    assert said(permissions, query(**asked(ALLOWED))) == []
    (problem,) = said(permissions, query(**asked(OTHER)))
    assert problem.startswith(f'{field}: "{OTHER}" is not allowed in namespace cabs')
    assert [each.field for each in given(query(**asked(OTHER)).spec, "spec", ExternalKind.SCHEMA_REGISTRIES)] == [field]


@pytest.mark.parametrize(
    ("asked", "field"), [(reading, "spec.sources.trips.protobuf"), (writing, "spec.sink.kafka.schemas")]
)
def test_files_of_logins_are_known(asked, field):
    login = {"token": {"file": "/secrets/token"}, "tls": {"ca": {"file": "/secrets/ca.pem"}}}
    found = given(query(**asked(ALLOWED, login=login)).spec, "spec", ExternalKind.LOGINS)
    assert {each.field: each.value for each in found} == {
        f"{field}.login.token.file": "/secrets/token",
        f"{field}.login.tls.ca.file": "/secrets/ca.pem",
    }
