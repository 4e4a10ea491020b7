"""A new query begins with the costs of the best known similar one in its namespace."""

import copy

import pytest

from millrace_operator.lifecycle.autoscaling.cost_traits import cost_traits
from millrace_operator.lifecycle.autoscaling.scaling_inputs import new_scaler, saved_state
from millrace_operator.lifecycle.observed_query import QueryKey
from millrace_operator.lifecycle.query_memory import ScalerState
from millrace_operator.scaling.decision.decision import Decision, Reason, Situation
from millrace_operator.scaling.shape import Shape
from unit.scaling.true_job import TrueJob

from .cluster import KEY
from .operated import Operated, document

PLANS = [Shape(1, 8, 1), Shape(2, 8, 2), Shape(4, 8, 4), Shape(6, 12, 6)]


def taught(scaler, plans):
    """Add batches under so many plans to what a scaler has learned."""
    job = TrueJob(noise=0.03, fixed=1.0)
    for shape in PLANS[:plans]:
        for rows in (50_000, 100_000, 150_000, 200_000):
            scaler.calibration.add(job.observe(shape, rows))
    scaler.calibration.model()
    return scaler


class Namespace:
    """The query of the scenario, which is new to scaling, and others that have run for long."""

    def __init__(self):
        self.operated = Operated()
        self.observations = self.operated.cluster.reconciler.observations

    def other(self, name, plans, namespace=KEY.namespace, text=None):
        """Add a query that has run under so many plans."""
        body = copy.deepcopy(self.operated.cluster.query)
        body["metadata"] |= {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
        if text is not None:
            body["spec"]["query"]["sql"] = text
        key = QueryKey(namespace, name)
        self.observations.query_seen(body)
        observed = self.observations.of(key)
        spec = self.operated.cluster.reconciler.query_of(key, observed).spec
        scaler = taught(new_scaler(spec, self.operated.cluster.status.plan, 8), plans)
        memory = self.observations.memory_of(key, body["metadata"]["uid"])
        memory.scaler = ScalerState("fingerprint", cost_traits(namespace, spec), scaler, answered=0.0)
        return scaler.calibration.known

    @property
    def scaler(self):
        """The query's scaler, after a check of it."""
        self.operated.step(None, Situation(5.0, self.operated.plan, 0, 0))
        return self.operated.cluster.memory.scaler.scaler

    @property
    def prior(self):
        return self.scaler.calibration.save().get("prior")


@pytest.fixture
def namespace():
    return Namespace()


def test_the_costs_of_the_best_known_similar_query_are_expected(namespace):
    namespace.other("some", 3)
    best = namespace.other("best", 4)
    assert namespace.prior == best.for_another().save()


def test_a_query_of_another_namespace_is_never_learned_from(namespace):
    namespace.other("same-query", 4, namespace="other-tenant")
    assert namespace.prior is None


def test_a_query_that_is_not_similar_or_little_known_is_not_learned_from(namespace):
    namespace.other("other", 4, text="SELECT cell, max(fare) AS most FROM trips GROUP BY cell")
    namespace.other("new", 2)
    assert namespace.prior is None


def test_a_query_that_is_gone_is_not_learned_from(namespace):
    namespace.other("gone", 4)
    namespace.observations.query_gone(namespace.observations.of(QueryKey(KEY.namespace, "gone")).body)
    assert namespace.prior is None


def test_other_queries_are_looked_at_only_when_a_scaler_is_made(namespace, monkeypatch):
    assert namespace.prior is None
    monkeypatch.setattr(type(namespace.observations), "memories", lambda *_: pytest.fail("they were looked at"))
    assert namespace.prior is None


def test_other_bounds_leave_a_query_with_its_own_costs_as_expected(namespace):
    """They took all that it had learned before."""
    known = taught(namespace.scaler, 4).calibration.known
    namespace.operated.cluster.put(document().replace('"max": 6', '"max": 5'))
    namespace.operated.cluster.settle()
    assert namespace.prior == known.for_another().save()


def test_what_was_saved_counts_more_than_other_queries(namespace):
    """A query that has been scaled before has batches of its own; its prior is the one that it began with."""
    first = namespace.other("first", 3)
    scaler, cluster = namespace.scaler, namespace.operated.cluster
    plan = namespace.operated.plan
    observed = namespace.observations.of(KEY)
    saved = saved_state(observed.owner, Decision(0.0, plan, plan, Reason.STABLE), scaler)
    saved["metadata"] |= {"uid": "scaling", "resourceVersion": "1"}
    cluster.memory.scaler = None
    namespace.observations.object_seen(saved)
    namespace.other("better", 4)
    assert namespace.prior == first.for_another().save()


def test_saved_state_that_cannot_be_read_is_like_none(namespace):
    best = namespace.other("best", 4)
    observed = namespace.observations.of(KEY)
    saved = observed.owner.manifest("v1", "ConfigMap", observed.owner.scaling, {"data": {"learned.json": "{"}})
    saved["metadata"] |= {"uid": "scaling", "resourceVersion": "1"}
    namespace.observations.object_seen(saved)
    assert namespace.prior == best.for_another().save()
