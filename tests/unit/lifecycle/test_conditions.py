"""Conditions in every state: each is about the current spec, and none reports what no longer holds."""

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from millrace_api.model.status import ConditionType
from millrace_operator.lifecycle.conditions import DegradedReason, parse_time
from millrace_operator.lifecycle.pods.executor_failures import TOLERATED, WINDOW
from millrace_operator.lifecycle.query_row import query_rows
from millrace_operator.lifecycle.refusals import QuotaExceededError
from millrace_operator.telemetry.contract import OF_QUERIES
from millrace_operator.telemetry.query_metrics import query_families
from unit.api.documents import MINIMAL, changed

from .cluster import KEY, POD, Cluster

SPECS = {
    "first": MINIMAL,
    "another": changed(MINIMAL, 10, "    sql: SELECT cell, count(*) AS trips FROM trips GROUP BY cell"),
    "larger": MINIMAL + "  driver: {memory: 64g}\n",
    "in place": MINIMAL + "  executors: {initial: 3, max: 8}\n",
    "off": MINIMAL + "  scaling: {mode: 'Off'}\n",
    "suspended": changed(MINIMAL, 12, "  suspend: true"),
    "invalid": changed(MINIMAL, 10, "    sql: SELECT cel FROM trips"),
    "refused": changed(MINIMAL, 12, "  driver: {podTemplate: {spec: {nodeSelector: {'not a label': ssd}}}}"),
}
ANNOTATIONS = {
    "none": {},
    "paused": {"millrace.io/paused": "true"},
    "scale-in": {"millrace.io/paused-scale-in": "true"},
}
FAILURES = ("UserCodeFailed", "SourceFailed", "InvalidConfiguration", "SourceMissing")


class Lives(RuleBasedStateMachine):
    """A query, what its users do to it, and what befalls it."""

    def __init__(self):
        super().__init__()
        self.cluster, self.executors = Cluster(), itertools.count()
        self.cluster.put(MINIMAL)
        self.cluster.settle()

    @rule(spec=st.sampled_from(sorted(SPECS)), annotations=st.sampled_from(sorted(ANNOTATIONS)))
    def edit(self, spec, annotations):
        self.cluster.put(SPECS[spec], ANNOTATIONS[annotations])
        self.cluster.settle()

    @precondition(lambda self: POD in self.cluster.objects)
    @rule()
    def become_ready(self):
        self.cluster.pod_is_ready()

    @precondition(lambda self: POD in self.cluster.objects)
    @rule()
    def start_without_being_ready(self):
        self.cluster.driver_starts()

    @precondition(lambda self: POD in self.cluster.objects)
    @rule()
    def wait_for_an_executor(self):
        self.cluster.executor(next(self.executors), runs=False)
        self.cluster.settle()

    @precondition(lambda self: POD in self.cluster.objects)
    @rule(failure=st.sampled_from(FAILURES))
    def fail(self, failure):
        self.cluster.pod_fails(f'{{"failure": "{failure}", "message": "no"}}', restarts=2)

    @precondition(lambda self: POD in self.cluster.objects)
    @rule(number=st.sampled_from([1, 3]))
    def lose_executors(self, number):
        for _ in range(number):
            self.cluster.executor_ends(self.cluster.executor(next(self.executors)))

    @rule(seconds=st.sampled_from([1, 30, 70, 700, 4000]))
    def wait(self, seconds):
        self.cluster.pass_time(seconds=seconds)

    @rule(role=st.sampled_from(["driver", "executor", "nothing"]))
    def refuse_pods(self, role):
        self.cluster.refused_pods = {role: QuotaExceededError("exceeded quota: few")}
        self.cluster.settle()

    @rule()
    def start_operator(self):
        self.cluster.start_operator()
        self.cluster.settle()

    @rule(phase=st.sampled_from(["Running", "Failed"]))
    def see_upstream(self, phase):
        self.cluster.put_other("cleaned", phase, "trips")

    @invariant()
    def every_condition_is_about_the_spec_as_it_is(self):
        status, generation = self.cluster.status, self.cluster.query["metadata"]["generation"]
        found = {each.type: each for each in status.conditions}
        assert set(found) == set(ConditionType)
        stale = {type.value: each.reason for type, each in found.items() if each.observed_generation != generation}
        assert not stale, stale

    @invariant()
    def conditions_agree_with_the_phase(self):
        status = self.cluster.status
        found = {each.type: each for each in status.conditions}
        ready, active = found[ConditionType.READY], found[ConditionType.SCALING_ACTIVE]
        metrics = found[ConditionType.METRICS_AVAILABLE]
        if status.phase != "Running":
            assert (active.status, active.reason) == ("False", "NotRunning")
            assert metrics.status == "Unknown"
            assert ready.status == "False"
            assert status.load is None
        if ready.status == "True":
            assert status.phase == "Running"
            assert ready.reason == "Running"

    @invariant()
    def executors_are_failing_only_where_they_failed_of_late(self):
        late = [each.attempt.time for each in self.cluster.reconciler.observations.of(KEY).failed_executors]
        found = self.cluster.condition(ConditionType.DEGRADED)
        if found.reason == DegradedReason.EXECUTORS_FAILING:
            assert sum(parse_time(each) + WINDOW > self.cluster.time for each in late) > TOLERATED

    @invariant()
    def executors_are_pending_only_where_fewer_run_than_are_wanted(self):
        status, found = self.cluster.status, self.cluster.condition(ConditionType.DEGRADED)
        if found.reason == DegradedReason.EXECUTORS_PENDING:
            assert f"of {status.plan.executors} executors run" in found.message

    @invariant()
    def its_metrics_are_those_of_the_contract(self):
        rows, declared = query_rows(self.cluster.reconciler.observations), {each.name: each for each in OF_QUERIES}
        for sample in [sample for family in query_families(rows) for sample in family.samples]:
            assert declared[sample.name].violations(sample.labels) == []

    @invariant()
    def the_operator_is_at_rest(self):
        writes = self.cluster.writes
        self.cluster.settle()
        assert self.cluster.writes == writes


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
