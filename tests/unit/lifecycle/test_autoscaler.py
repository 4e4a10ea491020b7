"""Scaling as the operator does it: it carries out just what the scaler decides, and says so."""

import json
import math
from dataclasses import replace

import pytest
from kubernetes.client import ApiException

from millrace_operator.lifecycle.autoscaling.scaling_inputs import situation_of
from millrace_operator.lifecycle.autoscaling.scaling_status import last_scaling_of
from millrace_operator.lifecycle.observed_query import ObservedQuery
from millrace_operator.scaling.decision.changes import Change, ChangeOutcome
from millrace_operator.scaling.decision.decision import Decision, Inputs, Reason, Situation
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.comparison import MillracePolicy
from millrace_research.arena.simulation.run import simulate
from millrace_research.arena.simulation.traces import steps

from .cluster import KEY, NOW
from .operated import SCENARIO, Operated, document, shifted

SCALING = ("ConfigMap", "trips-by-cell-scaling")


def test_a_check_does_not_read_the_healthy_spec_without_a_rollback(monkeypatch):
    """Reading it took most of the processor time of an operator at rest."""
    policy = Operated()
    monkeypatch.setattr(ObservedQuery, "healthy", property(lambda _: pytest.fail("it was read")))
    policy.autoscaler.check(KEY)
    assert policy.cluster.memory.scaling is not None


def test_what_runs_is_scaled_after_an_invalid_change_too():
    """The change is not followed, and the last healthy spec goes on with its own bounds."""

    class Edited(Operated):
        def step(self, answer, situation):
            shape = super().step(answer, situation)
            if situation.now >= 300 and self.cluster.condition("Ready").reason == "Running":
                self.cluster.put(document().replace("SELECT", "SELECTED"))
            return shape

    policy = Edited()
    result = simulate(SCENARIO, policy, 1)
    assert policy.cluster.condition("Ready").reason == "InvalidQuery"
    assert max(each.after.executors for each in result.rescales) > SCENARIO.initial.executors
    assert policy.cluster.status.last_scaling is not None
    assert not policy.cluster.status.rejected


class UnderQuota(Operated):
    """In a namespace whose quota has cores for ``cores`` of executors, and is larger from second ``raised`` on."""

    cores, raised = 6, math.inf

    def step(self, answer, situation):
        cores = self.cores if situation.now < self.raised else 100
        hard, used = {"requests.cpu": str(cores)}, {"requests.cpu": str(2 * situation.executors_ready)}
        quota = {"kind": "ResourceQuota", "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}
        metadata = {"name": "few-cores", "namespace": KEY.namespace, "uid": "q"}
        self.cluster.limits = [quota | {"metadata": metadata}]
        self.seen = [*getattr(self, "seen", []), self.cluster.condition("ScalingLimited")]
        return super().step(answer, situation)


def test_scaling_stays_within_the_quota_and_names_it():
    policy = UnderQuota()
    run = simulate(SCENARIO, policy, seed=3)
    assert max(each.after.executors for each in run.rescales) == 3
    assert max(each.after.executors for each in simulate(SCENARIO, pure(), seed=3).rescales) > 3
    capacity = next(each for each in policy.seen if each.reason == "AtQuota")
    assert capacity.status == "True"
    assert "the quota allows 3 executors: " in capacity.message
    assert "requests.cpu in ResourceQuota few-cores are used, and a pod takes 2 (raise the quota" in capacity.message


def test_a_larger_quota_is_used_at_once():
    policy = UnderQuota()
    policy.raised = 900.0
    run = simulate(SCENARIO, policy, seed=3)
    more = [each for each in run.rescales if each.after.executors > 3]
    assert more
    assert 900.0 <= more[0].time < 960.0


def test_an_executor_that_does_not_exist_is_counted_by_what_it_would_be():
    """Also if the last one is gone: then the spec says what an executor takes."""
    policy = UnderQuota()
    policy.step(None, Situation(5.0, policy.plan, 0, 0))
    observed = policy.cluster.reconciler.observations.of(KEY)
    spec = policy.cluster.reconciler.query_of(KEY, observed).spec
    situation = situation_of(observed, spec, observed.plan, policy.cluster.time)
    assert (situation.executors_ready, situation.executors_quota) == (0, 3)


class Pure(MillracePolicy):
    """The scaler alone, with what Kubernetes makes of times."""

    def step(self, answer, situation):
        since = situation.executors_pending_since
        seen = replace(
            situation,
            now=NOW.timestamp() + situation.now,
            epoch=situation.epoch + 1,
            executors_pending_since=None if since is None else NOW.timestamp() + math.floor(since),
        )
        return super().step(None if answer is None else shifted(answer), seen)


def pure():
    return Pure(SCENARIO.bounds, SCENARIO.bounds.parallelism.high)


@pytest.fixture(scope="module")
def operated():
    """A run of the scenario with the operator, and its operator."""
    policy = Operated()
    return simulate(SCENARIO, policy, seed=3), policy


def rescales(run):
    return [(each.time, each.after) for each in run.rescales]


def test_the_operator_carries_out_what_the_scaler_decides_and_when(operated):
    run, _ = operated
    assert len(run.rescales) >= 1
    assert rescales(run) == rescales(simulate(SCENARIO, pure(), seed=3))


def test_a_query_whose_load_stops_goes_to_its_minimum_and_comes_back():
    rate = SCENARIO.trace.peak / 2
    quiet = replace(SCENARIO, trace=steps([rate, 0.0, rate], [0.0, 300.0, 900.0], 1200.0))
    policy = Operated()
    run = simulate(quiet, policy, seed=3)
    released = next(each for each in run.rescales if each.time > 300)
    assert released.after.executors == SCENARIO.bounds.executors.low < released.before.executors
    assert any(each.time > 900 and each.after.executors > each.before.executors for each in run.rescales)
    assert policy.cluster.condition("MetricsAvailable").status == "True"


def test_the_status_tells_of_load_and_decisions(operated):
    _, policy = operated
    status = policy.cluster.status
    assert 0.3 < status.load.utilization < 1.0
    assert status.load.executors_ready == status.plan.executors
    assert status.load.input_rate > 0
    last = status.last_scaling
    assert last.to.executors == status.plan.executors
    assert last.message
    assert (last.predicted, last.observed) == (pytest.approx(last.predicted), pytest.approx(last.predicted, rel=0.5))
    assert status.plan.applied_epoch == status.plan.epoch
    assert (False, last.reason) in policy.cluster.events
    conditions = {each.type: (each.status, each.reason) for each in status.conditions}
    assert conditions["MetricsAvailable"] == ("True", "Available")
    assert conditions["ScalingActive"] == ("True", "Active")


def test_at_rest_it_writes_seldom(operated):
    run, policy = operated
    minutes = SCENARIO.trace.duration / 60
    assert policy.cluster.writes < minutes + 8 * len(run.rescales)


def test_the_last_decision_is_kept_in_full(operated):
    _, policy = operated
    data = policy.cluster.objects[SCALING]["data"]
    decision = json.loads(data["decision.json"])
    assert {"inputs", "chosen", "ruled_out", "zone", "sentence"} <= set(decision)
    assert len(data["learned.json"]) < 200_000


def test_a_restarted_operator_goes_on_with_what_was_learned():
    restarted = Operated()
    plain = restarted.step

    def step(answer, situation):
        if situation.now % 605 == 0 and situation.now:
            restarted.start()
        return plain(answer, situation)

    restarted.step = step
    run = simulate(SCENARIO, restarted, seed=3)
    assert restarted.plan.executors == simulate(SCENARIO, pure(), 3).rescales[-1].after.executors
    assert len(run.rescales) <= 4


def test_advice_is_told_and_not_carried_out():
    policy = Operated(document("Advise"))
    run = simulate(SCENARIO, policy, seed=3)
    assert run.rescales == ()
    last = policy.cluster.status.last_scaling
    assert last.reason == "AdviseOnly"
    assert last.to.executors > last.from_.executors
    assert policy.cluster.condition("ScalingActive").reason == "AdviseOnly"


def test_switched_off_it_only_tells_the_load():
    policy = Operated(document("Off"))
    simulate(SCENARIO, policy, seed=3)
    status = policy.cluster.status
    assert status.last_scaling is None
    assert status.load.utilization > 0
    assert policy.cluster.condition("ScalingActive").reason == "Off"


def test_a_paused_query_is_not_scaled():
    policy = Operated()
    policy.cluster.put(document(), annotations={"millrace.io/paused-scale-out": "true"})
    policy.cluster.settle()
    run = simulate(SCENARIO, policy, seed=3)
    assert all(each.after.executors <= each.before.executors for each in run.rescales)


def test_a_query_that_is_paused_altogether_says_so_and_shows_its_load():
    policy = Operated()
    assert policy.cluster.status.load is None
    policy.cluster.put(document(), annotations={"millrace.io/paused": "true"})
    policy.cluster.settle()
    short = replace(SCENARIO, trace=SCENARIO.trace.between(0, 60))
    assert simulate(short, policy, seed=3).rescales == ()
    active = policy.cluster.condition("ScalingActive")
    assert (active.status, active.reason) == ("False", "Paused")
    assert "paused" in active.message
    assert policy.cluster.condition("Progressing").reason == "Paused"
    assert policy.cluster.status.load.input_rate > 0


def test_a_prediction_is_judged_once_and_only_for_the_change_that_it_was_about():
    policy = Operated()
    spec = policy.cluster.reconciler.query_of(KEY, policy.cluster.reconciler.observations.of(KEY)).spec
    first, second, third = Shape(2, 8, 1), Shape(3, 12, 1), Shape(4, 16, 1)
    last = last_scaling_of(Decision(0.0, second, third, Reason.SCALE_OUT), None)

    def judged(before, after):
        """The observed W of ``last`` when the outcome of a change is known, and how many errors were recorded."""
        outcome = ChangeOutcome(Change(0.0, before, after, 1.0, None), without=2.0, predicted=1.0, observed=1.2)
        inputs = Inputs(2.0, 0.6, 0.6, 0.6, 100.0, None, 0.0, 100.0, None)
        entry = policy.autoscaler._last_scaling(
            last, Decision(60.0, third, third, Reason.STABLE, inputs=inputs, outcome=outcome), spec
        )
        value = policy.autoscaler._metrics.registry.get_sample_value
        return entry, value("millrace_operator_prediction_error_ratio_count")

    assert judged(first, second) == (last, 0)
    last, count = judged(second, third)
    assert (last.observed, count) == (0.6, 1)
    assert judged(second, third) == (last, 1)


def test_a_failed_check_is_logged_on_one_line(caplog):
    policy = Operated()

    def refuse(key):
        raise ApiException(status=403, reason="Forbidden")

    policy.autoscaler.check = refuse
    policy.autoscaler._work_on(KEY)
    (line,) = [record.getMessage() for record in caplog.records if "check failed" in record.getMessage()]
    assert "\n" not in line
    assert "403" in line


def test_without_prometheus_it_says_so():
    policy = Operated()
    policy.autoscaler._ask = None
    policy.step(None, Situation(5.0, policy.plan, 0, 1))
    metrics = policy.cluster.condition("MetricsAvailable")
    assert (metrics.status, metrics.reason) == ("False", "NoPrometheus")
    assert "--prometheus-url" in metrics.message


def test_a_prometheus_that_is_away_is_told_after_a_minute_and_scales_nothing():
    policy = Operated()
    policy.trouble = "no answer from http://prometheus within 10 s"
    for seconds in (5.0, 30.0):
        policy.step(None, Situation(seconds, policy.plan, 0, 1))
        assert policy.cluster.condition("MetricsAvailable").status == "True"
    policy.step(None, Situation(70.0, policy.plan, 0, 1))
    metrics = policy.cluster.condition("MetricsAvailable")
    assert (metrics.status, metrics.reason, metrics.message) == ("False", "PrometheusUnreachable", policy.trouble)
    assert policy.cluster.condition("ScalingActive").reason == "NoMetrics"
    assert policy.cluster.status.load is None
