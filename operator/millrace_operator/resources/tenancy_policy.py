"""An administrator's policy: what the queries of a namespace may ask for.

Every rule whose ``namespaces`` match applies, and a query has to keep to each of them. So a further rule never allows
anything that another one forbids, and their order does not matter. A field that is left out restricts nothing, unless
its default says so; an empty list allows nothing. Every rule also confines its queries to their SQL and to their own
volumes: ``confinement.py``.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from millrace_api.model.base import Model, Rule
from millrace_api.model.reporting import LabelKey
from millrace_api.model.values import ByteSize, Cores, Count, WholeNumber, text
from millrace_api.sql.outside import OutsideFunction
from millrace_api.validation.loading import load_document

from .patterns import (
    BrokerPattern,
    CatalogPattern,
    CheckpointPattern,
    CodePattern,
    DatabasePattern,
    ImagePattern,
    LabelPattern,
    NamePattern,
    PathPattern,
    QueuePattern,
    RolePattern,
    SettingPattern,
    TablePattern,
    UrlPattern,
    matches_any,
)

NamespacePattern = Annotated[
    str,
    *text(
        "[a-z0-9*-]+",
        63,
        "a pattern of namespaces",
        "write the name of a namespace, in which * stands for any characters, such as team-*",
    ),
]


class SettingsRule(Model):
    """Spark settings that queries may write, beyond those that no query may write."""

    allow: tuple[SettingPattern, ...] | None = Field(
        default=None,
        description="Settings that a query may write; default: all whose value is a number, a size, a duration, true "
        "or false. One with another value has to be named in full.",
    )
    deny: tuple[SettingPattern, ...] = Field(default=(), description="Settings among these that it may not write.")


class QueryLimits(Model):
    """Upper bounds of one query. Sizes are those of whole pods, with all their containers and what is beside a heap."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "coresPerPod <= cores does not hold",
            "write values in that order",
            ("cores_per_pod", "cores"),
            None,  # no API server reads a policy
            lambda limits: not (limits.cores and limits.cores_per_pod) or limits.cores_per_pod <= limits.cores,
        ),
        Rule(
            "memoryPerPod <= memory does not hold",
            "write values in that order",
            ("memory_per_pod", "memory"),
            None,
            lambda limits: (
                not (limits.memory and limits.memory_per_pod) or limits.memory_per_pod.bytes <= limits.memory.bytes
            ),
        ),
    )

    executors: Count | None = Field(default=None, description="Executors, which executors.max may ask for.")
    partitioners: WholeNumber | None = Field(
        default=None,
        description="Partitioner replicas in pods of their own, which partitioner.replicas.max may ask for.",
    )
    cores_per_pod: Cores | None = Field(default=None, description="CPU cores of each pod.")
    memory_per_pod: ByteSize | None = Field(default=None, description="Memory of each pod.")
    cores: Cores | None = Field(default=None, description="CPU cores of all pods together, at their largest number.")
    memory: ByteSize | None = Field(default=None, description="Memory of all pods together, at their largest number.")


class IdentityEndpoint(StrEnum):
    """An address of its node at which a pod gets the credentials of its own identity in a cloud."""

    EKS = "EKS"
    """The agent of EKS Pod Identity. IAM roles for service accounts need no such address."""


class TenancyRule(Model):
    """What the queries of some namespaces may ask for."""

    namespaces: tuple[NamespacePattern, ...] = Field(
        min_length=1, description="Namespaces that the rule is for.", examples=[["team-*"]]
    )
    except_namespaces: tuple[NamespacePattern, ...] = Field(
        default=(), description="Namespaces among these that it is not for."
    )
    images: tuple[ImagePattern, ...] | None = Field(
        default=None,
        description="Registries and repositories of images, in spec.image and in pod templates. The operator's default "
        "image is always allowed. Code that Spark would load from elsewhere is not.",
    )
    code: tuple[CodePattern, ...] = Field(
        default=(),
        description="URIs that spec.code may name, whose code then runs in the pods of a query; default: none.",
    )
    code_config_maps: tuple[NamePattern, ...] = Field(
        default=(),
        description="ConfigMaps of the query's own namespace that spec.code may name, whose code then runs in the pods "
        "of a query; default: none.",
    )
    service_accounts: tuple[NamePattern, ...] | None = Field(
        default=None, description="Accounts that spec.serviceAccountName may name."
    )
    role_arns: tuple[RolePattern, ...] | None = Field(
        default=None, description="ARNs of IAM roles that sasl.awsMskIam.roleArn of sources and sinks may name."
    )
    checkpoint_claims: tuple[NamePattern, ...] | None = Field(
        default=None, description="PersistentVolumeClaims that checkpoints may be on, by a claim or by a URI."
    )
    checkpoint_uris: tuple[CheckpointPattern, ...] | None = Field(
        default=None,
        description="Folders, and prefixes in object stores, that spec.checkpoint.uri and fromSnapshot may name; "
        "without it, no fromSnapshot is allowed.",
    )
    brokers: tuple[BrokerPattern, ...] | None = Field(
        default=None, description="Kafka brokers, host:port, that sources and sinks may name."
    )
    connections: tuple[NamePattern, ...] | None = Field(
        default=None,
        description="Connections that sources and sinks may name. What they lead to has to match other fields, too.",
    )
    secrets: tuple[NamePattern, ...] | None = Field(
        default=None,
        description="Secrets that logins and pod templates may name. Those of Connections that the same rule names in "
        "connections are always allowed.",
    )
    token_endpoints: tuple[UrlPattern, ...] | None = Field(
        default=None,
        description="URLs that tokens for logins to Kafka may come from, in sasl.oidc.tokenEndpoint.",
    )
    databases: tuple[DatabasePattern, ...] | None = Field(
        default=None,
        description="Servers of PostgreSQL and MySQL, host:port, that sources, sinks and catalogs may name.",
    )
    s3_endpoints: tuple[UrlPattern, ...] | None = Field(
        default=None,
        description="URLs that spec.s3.endpoint may name; a query that names none uses https://s3.amazonaws.com.",
    )
    tables: tuple[TablePattern, ...] | None = Field(
        default=None,
        description="Places of tables in object stores, s3a://bucket/prefix, that queries may read and write.",
    )
    catalogs: tuple[CatalogPattern, ...] | None = Field(
        default=None,
        description="URLs of catalogs of Iceberg tables that queries may name, and of what logs in to them; of Hive "
        "metastores, thrift://host:port.",
    )
    schema_registries: tuple[UrlPattern, ...] | None = Field(
        default=None, description="URLs of schema registries that sources may name."
    )
    lookup_namespaces: tuple[NamespacePattern, ...] = Field(
        default=(),
        description="Namespaces that spec.lookups may open a table to, besides the query's own; default: none.",
    )
    files: tuple[PathPattern, ...] | None = Field(
        default=None,
        description="Absolute paths of files, tables and catalogs in folders, event logs and lineage, on volumes that "
        "the query mounts.",
    )
    lineage: tuple[UrlPattern, ...] | None = Field(
        default=None,
        description="URLs of receivers of lineage that spec.lineage.http.url may name; with it, spec.lineage.namespace "
        "is the query's own.",
    )
    labels: dict[LabelKey, tuple[LabelPattern, ...]] = Field(
        default={},
        description="Labels that all pods of a query must have, such as those by which costs are assigned, each with "
        "the values that it may have.",
        examples=[{"team": ["payments"]}],
    )
    queues: tuple[QueuePattern, ...] | None = Field(
        default=None,
        description="Queues of batch schedulers that spec.scheduling may name. With it, no label or annotation of a "
        "pod template may name one.",
    )
    priority_classes: tuple[NamePattern, ...] | None = Field(
        default=None,
        description="PriorityClasses that spec.scheduling and pod templates may name. With it, no label may name a "
        "WorkloadPriorityClass of Kueue.",
    )
    identity_endpoints: tuple[IdentityEndpoint, ...] = Field(
        default=(),
        description="Where pods may get credentials of their own identity: EKS, the agent of EKS Pod Identity. Every "
        "other link-local address stays closed; default: this one, too.",
    )
    functions: tuple[OutsideFunction, ...] = Field(
        default=(), description="What queries may use of SQL that reaches outside it; default: nothing."
    )
    spark_conf: SettingsRule = Field(default=SettingsRule(), description="Spark settings.")
    limits: QueryLimits = Field(default=QueryLimits(), description="Upper bounds of one query.")

    def applies_to(self, namespace: str) -> bool:
        """Return whether the rule is for the queries of a namespace."""
        return matches_any(self.namespaces, namespace) and not matches_any(self.except_namespaces, namespace)


class TenancyPolicy(Model):
    """All rules. A namespace that no rule is for has no restrictions but those of all queries."""

    policy: tuple[TenancyRule, ...] = Field(default=(), description="The rules.")

    @classmethod
    def load(cls, path: Path) -> TenancyPolicy:
        """Return the policy in a YAML file.

        Raises:
            MillraceError: the file cannot be read or is no policy, with file, line and field of each problem.
        """
        return load_document(cls, path, "a policy")

    def rules_for(self, namespace: str) -> list[TenancyRule]:
        """Return the rules for the queries of a namespace."""
        return [rule for rule in self.policy if rule.applies_to(namespace)]
