"""What a query asks for and may not, by an administrator's policy and by the place where the operator itself runs.

The policy is about what StreamQueries ask for. It keeps nothing from the code of a query, which runs with the rights of
its driver: see docs/tenants.md for what has to.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from millrace_api.errors import MillraceError, Problem, quote
from millrace_api.model.confinement import Confinement
from millrace_api.model.deployment import PlacementSetting
from millrace_api.model.externals import ExternalKind, given
from millrace_api.model.streamquery import StreamQuery
from millrace_api.model.values import ByteSize, Cores
from millrace_api.sql.outside import outside_functions
from millrace_api.validation.places import is_object, paths, table_uris

from .checkpoint_volume import checkpoint_volume, in_object_store
from .confinement import folders, path_problems
from .footprints import UNLIMITED, PodFootprint, pods_of, total
from .patterns import (
    catalog_address,
    checkpoint_address,
    code_address,
    data_place,
    image_repository,
    matches_any,
    server_address,
    url_address,
)
from .pod_labels import missing_labels
from .scheduling import KUEUE_PRIORITY, priority_classes, queued_by_template, workload_priorities
from .spec_values import (
    AWS,
    FieldValues,
    SecretsOf,
    images,
    lineage_namespaces,
    readers,
    s3_endpoints,
    secrets,
    tables_without_places,
)
from .tenancy_policy import IdentityEndpoint, QueryLimits, SettingsRule, TenancyPolicy, TenancyRule

_CODE_FROM_ELSEWHERE = re.compile(
    r"spark[.](archives|files|jars([.].*)?|repl[.]class[.]uri|sql[.]hive[.]metastore[.]jars([.].*)?)"
)
"""Settings by which Spark fetches code, also from a URI, that is not in the image."""

_PLAIN_VALUE = re.compile(
    r"\s*(true|false|[+-]?[0-9]+([.][0-9]+)?\s*(us|ms|s|m|min|h|d|b|[kmgtp]b?|[kmgtp]ib)?)\s*", re.IGNORECASE | re.ASCII
)
"""Values that name nothing: flags, numbers, sizes and durations."""

_HARMLESS_TEXTS = frozenset(
    {
        "spark.log.level",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.parquet.compression.codec",
        "spark.sql.parquet.outputTimestampType",
        "spark.sql.timestampType",
    }
)
"""Settings with texts of which Spark knows all."""


_CANONICAL: Mapping[ExternalKind, Callable[[str], str | None]] = {
    ExternalKind.BROKERS: server_address,
    ExternalKind.CATALOGS: catalog_address,
    ExternalKind.CODE: code_address,
    ExternalKind.CODE_CONFIG_MAPS: str,
    ExternalKind.CONNECTIONS: str,
    ExternalKind.DATABASES: server_address,
    ExternalKind.LINEAGE: url_address,
    ExternalKind.QUEUES: str,
    ExternalKind.ROLE_ARNS: str,
    ExternalKind.SCHEMA_REGISTRIES: url_address,
    ExternalKind.OIDC_ENDPOINTS: url_address,
}
"""The one form that patterns match of what a field of a rule restricts, which has the name of the kind."""


_QUEUE_HINT = "leave it out, and write spec.scheduling: the policy restricts queues"
_PRIORITY_HINT = "leave it out, and write spec.scheduling.priorityClass: the policy restricts PriorityClasses"

MOST_PROBLEMS = 20
"""Problems of a query that are kept: a status has room for a few of them, and a query may have thousands."""


class Account(NamedTuple):
    """A ServiceAccount."""

    namespace: str
    name: str


class NotAllowedError(MillraceError):
    """A query that is valid asks for something that it may not have here."""


class Permissions:
    """What queries may ask for.

    Args:
        policy: the administrator's policy.
        operator: the operator's own account; None outside a pod.
    """

    def __init__(self, policy: TenancyPolicy | None = None, operator: Account | None = None) -> None:
        self._policy = policy or TenancyPolicy()
        self._operator = operator

    def allow(self, query: StreamQuery, namespace: str, secrets_of: SecretsOf | None = None) -> bool:
        """Return whether a query that has no other problems asks only for what it may have.

        ``secrets_of`` is for a query that was not resolved from its Connections just now.
        """
        try:
            self.require(query, namespace, secrets_of)
        except NotAllowedError:
            return False
        return True

    def require(self, query: StreamQuery, namespace: str, secrets_of: SecretsOf | None = None) -> None:
        """Check a query that has no other problems; ``secrets_of`` is as in ``allow``.

        Raises:
            NotAllowedError: with what it asks for and may not have, each with its field and what is allowed; of more
                than ``MOST_PROBLEMS``, with the first.
        """
        found = dict.fromkeys(islice(self._problems(query, namespace, secrets_of), MOST_PROBLEMS))
        if found:
            raise NotAllowedError(*found)

    def confinement(self, query: StreamQuery, namespace: str) -> Confinement | None:
        """Return what the driver of a query enforces; None without a rule for its namespace.

        A query that a stricter policy does not allow any longer goes on as it was, so it is not confined.
        """
        rules = self._policy.rules_for(namespace)
        if not rules or not self.allow(query, namespace):
            return None
        allowed = set.intersection(*(set(rule.functions) for rule in rules))
        data, logins = folders(query)
        return Confinement(folders=data, logins=logins, functions=tuple(sorted(allowed)))

    def identity_endpoints(self, namespace: str) -> tuple[IdentityEndpoint, ...]:
        """Return where the pods of a namespace may get their identity: what all its rules allow, else nowhere."""
        rules = self._policy.rules_for(namespace)
        allowed = [set(rule.identity_endpoints) for rule in rules]
        return tuple(sorted(set.intersection(*allowed))) if allowed else ()

    def _problems(self, query: StreamQuery, namespace: str, secrets_of: SecretsOf | None) -> Iterator[Problem]:
        name = query.spec.service_account_name
        if name is not None and self._operator == (namespace, name):
            message = f"{quote(name)} is the operator's own account, whose rights are not those of a query"
            yield Problem(message, "leave it out, or write another account", field="spec.serviceAccountName")
        rules = self._policy.rules_for(namespace)
        for rule in rules:
            yield from _rule_problems(rule, query, namespace, secrets_of)
        if rules:
            yield from path_problems(query, f"not allowed in namespace {namespace}")


def _rule_problems(
    rule: TenancyRule, query: StreamQuery, namespace: str, secrets_of: SecretsOf | None
) -> Iterator[Problem]:
    spec, where = query.spec, f"not allowed in namespace {namespace}"

    def unmatched(field: str, value: str, canonical: str | None, patterns: Iterable[str] | None) -> Iterator[Problem]:
        if patterns is not None and not matches_any(patterns, canonical):
            yield Problem(f"{quote(value, 200)} is {where}", _allowed(patterns), field=field)

    def among(
        values: FieldValues, patterns: Iterable[str] | None, canonical: Callable[[str], str | None]
    ) -> Iterator[Problem]:
        for field, value in values:
            yield from unmatched(field, value, canonical(value), patterns)

    yield from among(images(spec), rule.images, image_repository)
    yield from among(_named("spec.serviceAccountName", spec.service_account_name), rule.service_accounts, str)
    for each in given(spec, "spec", *_CANONICAL):
        yield from unmatched(each.field, each.value, _CANONICAL[each.kind](each.address), getattr(rule, each.kind))
    yield from among(secrets(spec, of_connections=rule.connections is None, secrets_of=secrets_of), rule.secrets, str)
    yield from among(table_uris(spec), rule.tables, data_place)
    for field in tables_without_places(spec) if rule.tables is not None else ():
        yield Problem(f"a table wherever its catalog puts it is {where}", _allowed(rule.tables), field=field)
    for field, name in lineage_namespaces(spec) if rule.lineage is not None else ():
        if name != namespace:
            yield Problem(f"{quote(name)} is {where}", "leave it out: a job is in its query's namespace", field=field)
    from_s3 = any(is_object(each.value) for each in given(spec, "spec", ExternalKind.CODE))
    trusted = (AWS,) if from_s3 and rule.s3_endpoints is None else rule.s3_endpoints  # whose bucket has the code
    yield from among(s3_endpoints(spec), trusted, url_address)
    others = ((field, name) for field, name in readers(spec) if name != namespace)
    yield from among(others, rule.lookup_namespaces, str)
    yield from among(paths(spec), rule.files, data_place)
    if spec.checkpoint is not None:
        uri = _named("spec.checkpoint.uri", spec.checkpoint.uri)
        yield from among(uri, rule.checkpoint_uris, checkpoint_address)
        # it may hold what another query has seen, so a rule has to name it
        snapshot = _named("spec.checkpoint.fromSnapshot", spec.checkpoint.from_snapshot)
        yield from among(snapshot, rule.checkpoint_uris or (), checkpoint_address)
    if rule.s3_endpoints is not None and rule.checkpoint_uris is None:
        yield from _other_store_problems(query, where)
    if rule.checkpoint_claims is not None and not (in_object_store(query) and rule.checkpoint_uris is not None):
        yield from _claim_problems(rule.checkpoint_claims, query, where)
    for at, label in queued_by_template(spec) if rule.queues is not None else ():
        yield Problem(f'"{label}" is {where}', _QUEUE_HINT, field=at)
    yield from among(priority_classes(spec), rule.priority_classes, str)
    for at in workload_priorities(spec) if rule.priority_classes is not None else ():
        yield Problem(f'"{KUEUE_PRIORITY}" is {where}', _PRIORITY_HINT, field=at)
    yield from missing_labels(rule.labels, spec, where)
    for name, value in spec.spark_conf.items():
        hint = _setting_hint(rule, name, value)
        if hint is not None:
            yield Problem(f'"{name}" is {where}', hint, field=f"spec.sparkConf[{name}]")
    yield from _function_problems(rule, query, where)
    yield from _limit_problems(rule.limits, query, namespace)


def _named(field: str, value: str | None) -> FieldValues:
    if value is not None:
        yield field, value


def _allowed(patterns: Iterable[str] | None) -> str:
    listed = ", ".join(patterns or ())
    return f"write a value that matches one of {listed}" if listed else "leave it out: the policy allows none"


def _claim_problems(patterns: Iterable[str], query: StreamQuery, where: str) -> Iterator[Problem]:
    """Yield the problem of a checkpoint on another volume than the allowed claims, however the query names it."""
    if in_object_store(query):
        message = f"a checkpoint in an object store is {where}, where claims are named and no checkpointUris"
        yield Problem(
            message, "write checkpoint: {claimName: NAME} with one of these claims", field="spec.checkpoint.uri"
        )
        return
    volume, checkpoint = checkpoint_volume(query) or {}, query.spec.checkpoint
    claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
    if checkpoint is not None and not matches_any(patterns, claim):
        field = "spec.checkpoint.claimName" if checkpoint.claim_name is not None else "spec.checkpoint.uri"
        on = f"on the claim {quote(claim)}" if claim is not None else "on a volume that is no claim"
        yield Problem(f"a checkpoint {on} is {where}", _allowed(patterns), field=field)


def _other_store_problems(query: StreamQuery, where: str) -> Iterator[Problem]:
    """Yield the problem of a checkpoint in another store than S3, where a policy says which S3 may be used."""
    uri = (query.spec.checkpoint and query.spec.checkpoint.uri) or ""
    if in_object_store(query) and not is_object(uri):
        message = f"{quote(uri)} is {where}, where s3Endpoints are named and no checkpointUris"
        yield Problem(message, "write a checkpoint in one of these stores", field="spec.checkpoint.uri")


def _function_problems(rule: TenancyRule, query: StreamQuery, where: str) -> Iterator[Problem]:
    """Yield what of the SQL reaches outside it, as far as its text shows; the driver looks at Spark's plan."""
    for found, problem in outside_functions(query.spec.query.sql or ""):
        if found not in rule.functions:
            yield replace(problem, message=f"{problem.message}, {where}", line=None, field="spec.query.sql")


def _setting_hint(rule: TenancyRule, name: str, value: str) -> str | None:
    """Return what to write instead of a Spark setting; None if it is allowed.

    A text may be the name of a class, a program, a file or an address, and so lead out of the query. There are too many
    such settings to list them.
    """
    settings: SettingsRule = rule.spark_conf
    if rule.images is not None and _CODE_FROM_ELSEWHERE.fullmatch(name):
        return "leave it out, and put the code into the image: the policy restricts images"
    if matches_any(settings.deny, name):
        return f"leave it out: the policy denies {', '.join(settings.deny)}"
    if settings.allow is not None and not matches_any(settings.allow, name):
        return _allowed(settings.allow)
    if name not in (*_HARMLESS_TEXTS, *(settings.allow or ())) and not _PLAIN_VALUE.fullmatch(value):
        return "write a number, a size, a duration, true or false, or let an administrator name it in sparkConf.allow"
    return None


def _limit_problems(limits: QueryLimits, query: StreamQuery, namespace: str) -> Iterator[Problem]:
    """Yield what of the numbers and sizes of pods is more than a query may have."""

    def more(field: str, given: str, limit: object, of: str) -> Problem:
        message = f"{given} are more than the {limit} that {of} may have in namespace {namespace}"
        return Problem(message, "write less", field=field)

    def too_large(
        size: PodFootprint, cores: Cores | None, memory: ByteSize | None, of: str, fields: list[str]
    ) -> Iterator[Problem]:
        if cores is not None and size.cores > cores:
            yield more(fields[0], f"{size.cores.normalize():f} cores", cores, of)
        if memory is not None and size.memory == UNLIMITED:
            message = f"a container without a limit of memory may take more than {memory}"
            yield Problem(message, "write resources.limits.memory in the pod template", field=fields[1])
        elif memory is not None and size.memory > memory.bytes:
            yield more(
                fields[1], f"{math.ceil(size.memory / 2**20)} MiB of memory, with all beside the heap,", memory, of
            )

    executors, partitioner = query.spec.executors.max, query.spec.partitioner
    if limits.executors is not None and executors > limits.executors:
        yield more("spec.executors.max", f"{executors} executors", limits.executors, "a query")
    replicas = 0 if partitioner.placement is PlacementSetting.INLINE else partitioner.replicas.max
    if limits.partitioners is not None and replicas > limits.partitioners:
        given = f"{replicas} partitioners in pods of their own"
        yield more("spec.partitioner.replicas.max", given, limits.partitioners, "a query")
    if not (limits.cores_per_pod or limits.memory_per_pod or limits.cores or limits.memory):
        return
    try:
        pods = pods_of(query)
    except MillraceError as error:
        yield from error.problems
        return
    bounded = {"spec.driver": query.spec.driver.max_memory, "spec.executors": query.spec.executors.max_memory}
    for each in pods:
        fields = [f"{each.field}.cores", f"{each.field}.{'maxMemory' if bounded.get(each.field) else 'memory'}"]
        yield from too_large(each.size, limits.cores_per_pod, limits.memory_per_pod, "a pod", fields)
    yield from too_large(total(pods), limits.cores, limits.memory, "all pods of a query", ["spec.executors.max"] * 2)
