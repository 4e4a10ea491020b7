"""Everything that the operator exports, besides metrics of its Python process and its garbage collector."""

from __future__ import annotations

from millrace_api.model.deployment import Algorithm, Placement, ScalingMode
from millrace_api.model.status import ConditionStatus, ConditionType, FailureClass, Phase
from millrace_api.model.streamquery import DRIVER, EXECUTOR, PARTITIONER
from millrace_support.metric import QUERY, Label, Metric

from ..scaling.decision.decision import Reason
from ..scaling.decision.settings import Guard

SPEC_CHANGED, DRIVER_FAILED = "SpecChanged", "DriverFailed"
"""Reasons of a rescale that scaling did not decide: another spec, or replicas that go back Inline after a failure."""

EXECUTOR_FAILED = "ExecutorFailed"
"""Class of an executor's failure that is of no other class."""

ROLES = (DRIVER, EXECUTOR, PARTITIONER)
"""Roles of a query's pods."""

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAITING = (0.001, 0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_RATIOS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2, 5)

_DECISIONS = tuple(map(str, (*Reason, *Guard)))
_RESULT = Label("result", ("success", "error"))
_PHASE = Label("phase", tuple(Phase))
_VERB = Label("verb", ("GET", "POST", "PUT", "PATCH", "DELETE"))
_REQUESTED = Label("resource", pattern="[a-z]+(/[a-z]+)?", bound="the kinds of objects that the operator asks for")
_WATCHED = Label("resource", pattern="[a-z]+", bound="the kinds of objects that the operator watches")
_OF_QUERY = (
    Label("query_namespace", pattern="[a-z0-9][a-z0-9-]*", bound="the namespaces of the operator's queries"),
    QUERY,
)

_OF_OPERATOR = (
    Metric(
        "millrace_operator_reconciles_total",
        "counter",
        "number",
        "Steps taken for queries. result is success, or error: it is tried again.",
        (_RESULT,),
    ),
    Metric("millrace_operator_reconcile_seconds", "histogram", "seconds", "Time that a step took.", buckets=_SECONDS),
    Metric("millrace_operator_retries_total", "counter", "number", "Queries put back into the queue after an error."),
    Metric("millrace_operator_queue_depth", "gauge", "number", "Queries that wait to be worked on."),
    Metric(
        "millrace_operator_queue_seconds",
        "histogram",
        "seconds",
        "Time that a query waited for a worker while this operator led.",
        buckets=_WAITING,
    ),
    Metric(
        "millrace_operator_queries",
        "gauge",
        "number",
        "Queries of this operator, by the phase in their status.",
        (_PHASE,),
    ),
    Metric(
        "millrace_operator_api_requests_total",
        "counter",
        "number",
        "Requests to the API server, other than kopf's few at the start; a watch counts once, when it opens. "
        "verb is the HTTP method; resource is the plural, with a subresource after a slash; code is the HTTP status, "
        "or none without an answer.",
        (_VERB, _REQUESTED, Label("code", pattern="[1-5][0-9]{2}|none", bound="the HTTP statuses")),
    ),
    Metric(
        "millrace_operator_api_request_seconds",
        "histogram",
        "seconds",
        "Time until such a request was answered.",
        (_VERB, _REQUESTED),
        _SECONDS,
    ),
    Metric(
        "millrace_operator_memory_limit_bytes",
        "gauge",
        "bytes",
        "Memory that the operator's container may use, of all its processes; absent without a limit.",
    ),
    Metric(
        "millrace_operator_kept_bytes",
        "gauge",
        "bytes",
        "JSON that this operator keeps of the queries and objects of a namespace, for the ten namespaces with most.",
        (Label("of", pattern="[a-z0-9][a-z0-9-]*", bound="ten namespaces at a time"),),
    ),
    Metric("millrace_operator_leader", "gauge", "number", "1 where this operator leads, 0 where it stands by."),
    Metric(
        "millrace_operator_informer_age_seconds",
        "gauge",
        "seconds",
        "Time since the watch of a kind last heard from the API server: an object, or the bookmark of each minute. "
        "The oldest one where namespaces are watched individually.",
        (_WATCHED,),
    ),
    Metric(
        "millrace_operator_informer_errors_total",
        "counter",
        "number",
        "Lists and watches of a kind that ended with an error and were started again.",
        (_WATCHED,),
    ),
    Metric(
        "millrace_operator_informer_objects", "gauge", "number", "Objects of a kind that the watch knows.", (_WATCHED,)
    ),
    Metric(
        "millrace_operator_refused_namespace",
        "gauge",
        "number",
        "Always 1: a namespace that this operator is to watch by its name, and that is gone or forbidden.",
        (Label("watched", pattern="[a-z0-9][a-z0-9-]*", bound="the namespaces that the operator is to watch"),),
    ),
    Metric(
        "millrace_operator_canary_age_seconds",
        "gauge",
        "seconds",
        "Time since the watch last showed a touch of the canary; absent before the first.",
    ),
    Metric(
        "millrace_operator_canary_path_seconds",
        "gauge",
        "seconds",
        "Time from the last touch of the canary until the watch showed the status that a worker wrote in answer to it, "
        "or the time that a touch has waited for that so far; absent before the first, and where this operator does "
        "not lead.",
    ),
    Metric(
        "millrace_operator_scaling_decisions_total",
        "counter",
        "number",
        "Decisions of the autoscaler, by their reason.",
        (Label("reason", _DECISIONS),),
    ),
    Metric(
        "millrace_operator_prediction_error_ratio",
        "histogram",
        "ratio",
        "Difference of the predicted and the observed processing time after a change, as a fraction of the latter.",
        buckets=_RATIOS,
    ),
)

OF_QUERIES = (
    Metric(
        "millrace_query_info",
        "gauge",
        "number",
        "Always 1. algorithm and placement are those of the plan, and empty before the first one; with algorithm auto "
        "it is the one that the job has chosen. mode is that of scaling.",
        (
            *_OF_QUERY,
            _PHASE,
            Label("algorithm", ("", *Algorithm)),
            Label("mode", tuple(ScalingMode)),
            Label("placement", ("", *Placement)),
        ),
    ),
    Metric(
        "millrace_query_condition",
        "gauge",
        "number",
        "Always 1: the current status and reason of each condition of a query.",
        (
            *_OF_QUERY,
            Label("condition", tuple(ConditionType)),
            Label("status", tuple(ConditionStatus)),
            Label("reason", pattern="[A-Z][A-Za-z]*", bound="one for each condition, of those in streamquery.md"),
        ),
    ),
    Metric(
        "millrace_query_executors",
        "gauge",
        "number",
        "Executors: wanted by the plan (0 while no driver is to run); ready, by their pods; pending, whose pods exist "
        "and are not ready.",
        (*_OF_QUERY, Label("state", ("wanted", "ready", "pending"))),
    ),
    Metric(
        "millrace_query_cores",
        "gauge",
        "number",
        "CPU cores that the query's pods request which exist and have not ended, by their role: as many core-hours in "
        "an hour. A role without a pod has no series.",
        (*_OF_QUERY, Label("role", ROLES)),
    ),
    Metric(
        "millrace_query_plan",
        "gauge",
        "number",
        "The plan that was decided: executors, workers n and replicas m; absent before the first.",
        (*_OF_QUERY, Label("dimension", ("executors", "workers", "replicas"))),
    ),
    Metric(
        "millrace_query_driver_restarts_total",
        "counter",
        "number",
        "Runs of the driver that failed since this operator leads, by the class of the failure. A driver is restarted "
        "after each, until it is given up. A class without a failure has no series.",
        (*_OF_QUERY, Label("class", tuple(FailureClass))),
    ),
    Metric(
        "millrace_query_executor_failures_total",
        "counter",
        "number",
        "Executors that failed beside a driver that went on, since this operator leads, by the class of the failure. "
        "Spark replaces each. A class without a failure has no series.",
        (*_OF_QUERY, Label("class", (FailureClass.OUT_OF_MEMORY, FailureClass.LOST_NODE, EXECUTOR_FAILED))),
    ),
    Metric(
        "millrace_query_rescales_total",
        "counter",
        "number",
        "Changes of the plan since this operator leads. reason is that of the decision, or SpecChanged, or "
        "DriverFailed where replicas go back Inline. A reason without a change has no series.",
        (*_OF_QUERY, Label("reason", (*_DECISIONS, SPEC_CHANGED, DRIVER_FAILED))),
    ),
    Metric(
        "millrace_query_memory_raises_total",
        "counter",
        "number",
        "Raises of memory that ran out, or was about to, since this operator leads, by the role of the pods: "
        "status.memory has the size. A role without one has no series.",
        (*_OF_QUERY, Label("role", (DRIVER, EXECUTOR))),
    ),
)
"""The metrics of each query: exported by the leader only, for as long as the query exists."""

CONTRACT = (*_OF_OPERATOR, *OF_QUERIES)
"""All metrics of the operator."""
