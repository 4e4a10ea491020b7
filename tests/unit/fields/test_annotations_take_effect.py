"""Every annotation of a StreamQuery changes what the operator does."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from millrace_api.model.streamquery import Annotation
from millrace_api.validation.loading import read_query
from millrace_operator.lifecycle.autoscaling.scaling_inputs import bounds_of, situation_of
from millrace_operator.scaling.decision.changes import ChangeMemory
from millrace_operator.scaling.decision.limits import limits
from millrace_operator.scaling.decision.settings import Settings
from unit.lifecycle.cluster import KEY

from .documents import ON_CLUSTER
from .of_deployment import deployed
from .probe import written


def changed(annotations):
    """The number of executors after the spec has asked for another one."""
    cluster = deployed(read_query(ON_CLUSTER))
    asked = read_query(written(ON_CLUSTER, "spec.executors.initial", 3))
    return deployed(asked, annotations, cluster).status.plan.executors


def limited(annotations):
    """The limits of the next plan."""
    query = read_query(ON_CLUSTER)
    cluster = deployed(query, annotations)
    observed = cluster.reconciler.observations.of(KEY)
    situation = situation_of(observed, query.spec, observed.plan, cluster.time)
    memory = ChangeMemory()
    memory.observe(
        SimpleNamespace(plan=situation.plan, idle=False, batches=1, seconds=1.0, interval=2.0),
        situation.now,
        grace=0,
        judged=1,
    )
    found = limits(Settings(), bounds_of(query.spec), memory, situation, 1_000.0)
    return found.most, found.least


def deleted(annotations):
    """Whether a query whose driver still runs is gone."""
    cluster = deployed(read_query(ON_CLUSTER), annotations)
    cluster.pod_is_ready()
    cluster.delete()
    cluster.show()
    cluster.reconciler.reconcile(KEY)
    return cluster.query is None


EFFECTS = {
    Annotation.PAUSED: changed,
    Annotation.PAUSED_SCALE_IN: limited,
    Annotation.PAUSED_SCALE_OUT: limited,
    Annotation.SKIP_DRAIN: deleted,
}


@pytest.mark.parametrize("annotation", list(Annotation))
def test_an_annotation_takes_effect(annotation):
    effect = EFFECTS[annotation]
    unset, is_false, is_true = effect({}), effect({annotation: "false"}), effect({annotation: "true"})
    assert unset == is_false
    assert unset != is_true
