"""The effect of applying a file of queries to a cluster: changed fields, what they restart, and refusals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from millrace_api.errors import MillraceError, Problem
from millrace_api.model.changes import ChangeVerdict
from millrace_api.model.connections import ConnectionSpec
from millrace_api.model.deployment import Placement
from millrace_api.model.plan import Plan
from millrace_api.model.status import ConditionStatus, ConditionType, Phase, Status
from millrace_api.model.streamquery import Annotation, Spec, StreamQuery
from millrace_api.model.upgrade import UpgradeSpec
from millrace_api.validation.connections import Connections, resolve
from millrace_api.validation.evolution import compare
from millrace_api.validation.loading import connections_beside, load_queries, locate, query_documents, read_query

from ..kube.client import QUERIES
from ..kube.object_api import OWNED
from ..lifecycle.autoscaling.scaling_inputs import scaling_inputs
from ..lifecycle.query_view import PAUSES, QueryView
from ..lifecycle.refusals import NameTakenError
from ..lifecycle.shadow import is_asked_for
from ..lifecycle.takeover import can_be_followed
from ..resources.manifests import healthy_spec, objects
from ..resources.names import Manifest, Owner
from ..resources.partitioner import Partitioners
from ..resources.pod_defaults import PodDefaults
from ..resources.restrictions import problems
from ..resources.shadow import COMPARED, RUNS, longest_seconds
from ..resources.spec_changes import FieldChange, replaced_fields, revision, spec_changes
from .cluster import TIMEOUT, Cluster, ForbiddenError, MissingError, user_errors
from .dry_run import dry_run
from .user_queries import RESOURCE, UserQueries

IN_THE_DRIVER = (
    "goes on with the new version after its running batch, if nothing else of its pods differs, such as the Secrets "
    "that they mount, and its image can; otherwise another one continues from the checkpoint"
)
"""What a driver does when a compared version takes over."""

PAUSE_IN_THE_DRIVER = (
    "the running batch, the end of the old version, and the first batch of the new one (how long that takes was not "
    "observed)"
)
"""For how long results pause then."""


@dataclass(frozen=True)
class QueryDiff:
    """The effect of applying one query. ``notes`` are facts about it, by their subject."""

    name: str
    namespace: str
    is_new: bool
    changes: tuple[FieldChange, ...]
    notes: tuple[tuple[str, str], ...]
    refused: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether applying it would change anything."""
        return self.is_new or bool(self.changes)


def diff_file(cluster: Cluster, file: Path, namespace: str | None) -> list[QueryDiff]:
    """Return the effect of each query of a file; ``namespace`` is the one that the user has asked for.

    Raises:
        MillraceError: the file is invalid, or the cluster cannot be asked.
    """
    documents = [each.value for each in query_documents(file)]
    beside = connections_beside(file)
    known: dict[str, ConnectionSpec | MillraceError] = {}
    for of_cluster in _clusters(cluster, documents, namespace):
        known |= UserQueries(of_cluster).connections(*documents)
    queries = load_queries(file, known | dict(beside))
    return [
        _Diff(_in_namespace(cluster, query, namespace), file, query, document, beside).result()
        for query, document in zip(queries, documents, strict=True)
    ]


def _clusters(cluster: Cluster, documents: Iterable[Any], wanted: str | None) -> list[Cluster]:
    """Return the cluster with each namespace that a document is for; the documents are not checked yet."""
    names: dict[str, None] = {}
    for document in documents:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        given = metadata.get("namespace") if isinstance(metadata, dict) else None
        names[wanted or (given if isinstance(given, str) else cluster.namespace)] = None
    return [replace(cluster, namespace=name) for name in names]


def _in_namespace(cluster: Cluster, query: StreamQuery, wanted: str | None) -> Cluster:
    given = query.metadata.namespace
    if given is not None and wanted not in (None, given):
        message = f"{query.name} is in namespace {given}, not in {wanted}"
        raise MillraceError(Problem(message, "leave -n or metadata.namespace out", field="metadata.namespace"))
    return replace(cluster, namespace=given or cluster.namespace)


class _Diff:
    """One query of the file beside the one on the cluster."""

    def __init__(
        self, cluster: Cluster, file: Path, query: StreamQuery, document: Manifest, beside: Connections
    ) -> None:
        self._cluster, self._file, self._name = cluster, file, query.name
        self._view = self._get()
        body = None if self._view is None else self._view.body
        self._connections = UserQueries(cluster).connections(document, body or {})
        self._beside = beside
        answer = dry_run(cluster, document, body)
        self._refused = [f"by the API server: {answer.refusal}"] if answer.refusal else []
        self._after = self._read(answer.result) or query

    def result(self) -> QueryDiff:
        """Compare the two."""
        forbidden = problems(self._after)
        self._refused += [str(each) for each in locate(forbidden, self._file, self._name)]
        before = None if self._view is None else self._before(self._view)
        changes = () if before is None else tuple(spec_changes(before.spec, self._after.spec))
        notes = list(self._notes(before, changes))
        if not forbidden:
            notes += self._check_names(before)
        refused = tuple(dict.fromkeys(self._refused))
        return QueryDiff(self._name, self._cluster.namespace, self._view is None, changes, tuple(notes), refused)

    def _get(self) -> QueryView | None:
        path = QUERIES.path(self._cluster.namespace, self._name)
        try:
            with user_errors(self._cluster, "get", RESOURCE, self._cluster.namespace, self._name):
                return QueryView(self._cluster.client.request("GET", path, {}, timeout=TIMEOUT))
        except MissingError:
            return None

    def _read(self, document: Mapping[str, Any]) -> StreamQuery | None:
        try:
            return read_query(document, {**self._connections, **self._beside})
        except MillraceError as error:
            self._refused += [str(each) for each in locate(error.problems, self._file, self._name)]
            return None

    def _before(self, view: QueryView) -> StreamQuery:
        """Return the query on the cluster, also one that the operator finds invalid.

        Raises:
            MillraceError: another version of Millrace wrote it.
        """
        document = {name: part for name, part in view.body.items() if name != "status"}
        try:
            return StreamQuery.model_validate(resolve(document, self._connections).document, by_name=False)
        except ValidationError:
            hint = "use the version of millrace that the operator has"
            raise MillraceError(Problem(f"the query {view.name} on the cluster cannot be read", hint)) from None

    def _notes(self, before: StreamQuery | None, changes: tuple[FieldChange, ...]) -> Iterator[tuple[str, str]]:
        if before is None or self._view is None:
            yield "driver", "the query is created, and a driver starts"
            return
        if changes:
            yield from self._effects(before, self._view)
        if PAUSES[Annotation.PAUSED] in self._view.pauses:
            yield "paused", f"the operator changes nothing before millrace resume {self._name}"

    def _effects(self, before: StreamQuery, view: QueryView) -> Iterator[tuple[str, str]]:
        old, new, status = before.spec, self._after.spec, view.status
        forbidden, remarks = compare(before, self._after)
        self._refused += [
            f"by the driver: {each.field}: the checkpoint was made {each}; {each.verdict}: {each.verdict.advice}"
            for each in forbidden
        ]
        for remark in remarks:
            yield "state", f"{ChangeVerdict.POSSIBLE}: {remark}"
        replaced = is_replaced(old, new, status)
        running = not old.suspend and status.phase is not Phase.SUSPENDED
        if status.rejected is not None and status.rejects(revision(old)):
            done = "was rolled back" if status.rejected.verdict is None else "is not followed"
            message = f"the spec on the cluster {done}, and the last healthy one runs"
            yield "rejected", f"{message}: {status.rejected.message}"
        compared = [field for field in replaced_fields(old, new) if field in COMPARED]
        is_compared = replaced and running and not new.suspend and is_asked_for(new) and bool(compared)
        if is_compared:
            yield "upgrade", comparison(new.upgrade or UpgradeSpec(), compared)
        if new.suspend and running:
            yield "driver", "ends after its running batch; results stop until the query is resumed"
        elif is_compared and can_be_followed(old, new):
            yield "driver", IN_THE_DRIVER
            yield "pause", f"{PAUSE_IN_THE_DRIVER}; with another driver, {pause(status)}"
        elif replaced and running:
            yield "driver", "ends after its running batch, and another one continues from the checkpoint"
            yield "pause", pause(status)
        elif replaced:
            yield "driver", "none runs now; the next one starts with these changes"
        elif running:
            yield "driver", "keeps running"
        inputs = [scaling_inputs(spec, Plan.initial(spec)) for spec in (old, new)]
        if replaced or inputs[0] != inputs[1]:
            yield "scaling", "starts over: what it has learned about this query is forgotten"

    def _check_names(self, before: StreamQuery | None) -> Iterator[tuple[str, str]]:
        """Add refusals for names of new objects that other objects have; yield a note for kinds that cannot be read."""
        uid = "" if self._view is None else str(self._view.body["metadata"]["uid"])
        owner = Owner(self._cluster.namespace, self._name, uid)
        known = set() if before is None or problems(before) else _names(before, owner)
        kinds, unread = {kind.name: kind for kind in OWNED}, []
        for kind, name in sorted(_names(self._after, owner) - known):
            if kind in unread:
                continue
            path = kinds[kind].path(self._cluster.namespace, name)
            try:
                with user_errors(self._cluster, "get", kinds[kind].plural, self._cluster.namespace, name):
                    found = self._cluster.client.request("GET", path, {}, timeout=TIMEOUT)
            except MissingError:
                continue
            except ForbiddenError:
                unread.append(kind)
                continue
            if not owner.owns(found):
                self._refused.append(f"by the operator: {NameTakenError(kind, name)}")
        if unread:
            yield "unchecked", f"whether names are taken: you may not get {', '.join(unread)}"


def _names(query: StreamQuery, owner: Owner) -> set[tuple[str, str]]:
    """Return kind and name of the objects of a query."""
    plan = Plan.initial(query.spec)
    replicas = Partitioners(plan.replicas, "") if plan.placement is Placement.DEDICATED else None
    made = objects(query, owner, plan, PodDefaults(""), running=True, auth="", partitioners=replicas)
    return {(each["kind"], each["metadata"]["name"]) for each in (*made, healthy_spec(query, owner))}


def is_replaced(old: Spec, new: Spec, status: Status) -> bool:
    """Return whether the driver that runs is replaced when ``new`` follows ``old``, which it may not run itself."""
    wanted = revision(new)
    if status.rejects(wanted):
        return False  # a spec that was rolled back is not tried again at once
    runs = None if status.driver is None else status.driver.revision
    return wanted != (runs or revision(old))


def comparison(upgrade: UpgradeSpec, fields: Sequence[str]) -> str:
    """Return what is compared before these fields replace the driver, and what that costs at most."""
    then = "whatever differs" if upgrade.expect_changes else "if the results are equal and come as fast"
    return (
        f"both versions run on the same records first, for {', '.join(fields)}: at most {upgrade.records:,} records, "
        f"or as many as the old one reads in {upgrade.duration}, in {RUNS} runs and {longest_seconds(upgrade) // 60} "
        f"minutes at most, in a pod with the memory of a driver and an executor; the new version takes over {then}"
    )


def pause(status: Status) -> str:
    """Return for how long results pause when the driver is replaced, from what was observed of this query.

    It is the rest of the running batch, at most a whole one, and the time from a pod's start until it is ready, after
    its first batch. The latter is known of a driver that has not restarted.
    """
    batch = None if status.load is None else status.load.processing_seconds
    start = _seconds_to_start(status)
    drain = "the rest of the running batch (how long batches take was not observed)"
    if batch is not None:
        drain = f"up to {batch:.1f} s for the running batch, as long as the last one observed took"
    begin = "the start of a driver and its first batch (how long that takes was not observed)"
    if start is not None:
        begin = f"about {start:.0f} s for the start of a driver and its first batch, as long as the one that runs took"
    return f"{drain}; {begin}"


def _seconds_to_start(status: Status) -> float | None:
    driver = status.driver
    ready = next((each for each in status.conditions if each.type is ConditionType.READY), None)
    if driver is None or driver.start_time is None or driver.restarts or ready is None:
        return None
    if ready.status is not ConditionStatus.TRUE:
        return None
    times = (datetime.fromisoformat(each) for each in (driver.start_time, ready.last_transition_time))
    started, became_ready = times
    seconds = (became_ready - started).total_seconds()
    return seconds if seconds >= 0 else None
