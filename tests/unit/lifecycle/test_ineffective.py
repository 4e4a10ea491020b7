"""What more executors cannot help is a condition with figures and a remedy, and an event when it begins."""

from dataclasses import replace

import pytest

from millrace_api.model.deployment import Algorithm
from millrace_api.model.streamquery import OutputSpec
from millrace_operator.lifecycle.autoscaling.ineffective import ineffective_text
from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.serial_time import SerialCause, SerialTime
from millrace_research.arena.simulation.job import StageCost
from millrace_research.arena.simulation.keys import Keys, always
from millrace_research.arena.simulation.run import simulate
from millrace_research.arena.simulation.traces import constant

from .cluster import KEY
from .operated import SCENARIO, Operated, document

TYPE = "ScalingIneffective"


class WithCountedKeys(Operated):
    """A query whose workers count the records of its hottest key; the share is ``share``."""

    share = 0.6

    def step(self, answer, situation):
        known = answer is not None and answer.imbalance is not None
        shape = super().step(replace(answer, hottest_key=self.share) if known else answer, situation)
        self.seen = [*getattr(self, "seen", []), self.cluster.condition(TYPE)]
        return shape


def hot_run(policy, hot):
    """A run in which combining takes 6 s of one core for an interval of 2 s."""
    costs = replace(SCENARIO.job, combine=StageCost(task=0.015, row=3e-5, block=3e-4, partial=2e-6))
    scene = replace(SCENARIO, job=costs, trace=constant(100e3, 900.0), keys=always(Keys(2000, hot=hot)))
    return simulate(scene, policy, 1)


@pytest.fixture(scope="module")
def hot():
    policy = WithCountedKeys()
    return hot_run(policy, 0.6), policy


def test_one_hot_key_is_a_condition_with_its_share_and_what_helps(hot):
    _, policy = hot
    found = policy.cluster.condition(TYPE)
    assert (found.status, found.reason) == ("True", "HotKey")
    assert "one key has 60% of the records" in found.message
    assert "write spec.partitioner.algorithm: wchoices" in found.message


def test_it_begins_once_with_an_event_and_was_unknown_before(hot):
    _, policy = hot
    states = [each.status for each in policy.seen]
    changes = [now for before, now in zip(["", *states], states, strict=False) if now != before]
    assert changes in (["Unknown", "True"], ["Unknown", "False", "True"])
    assert policy.cluster.events.count((True, "HotKey")) == 1


def test_nothing_is_scaled_out_against_it(hot):
    run, policy = hot
    limited = policy.cluster.condition("ScalingLimited")
    assert (limited.status, limited.reason) == ("True", "AtCapacity")
    first = 5.0 * [each.status for each in policy.seen].index("True")
    assert not [each for each in run.rescales if each.time > first and each.after.executors > each.before.executors]


def test_even_keys_are_no_condition():
    policy = WithCountedKeys()
    policy.share = 0.001
    hot_run(policy, 0.0)
    assert {each.status for each in policy.seen} == {"Unknown", "False"}


def test_without_metrics_it_is_not_known():
    policy = WithCountedKeys()
    hot_run(policy, 0.6)
    policy.trouble = "no answer"
    for seconds in (910.0, 990.0):
        policy.step(None, Situation(seconds, policy.plan, 0, 1))
    found = policy.cluster.condition(TYPE)
    assert (found.status, found.reason) == ("Unknown", "NoMetrics")


def test_a_restarted_operator_reports_it_once_only():
    policy = WithCountedKeys()
    plain = policy.step

    def step(answer, situation):
        if situation.now == 800.0:
            policy.start()
        return plain(answer, situation)

    policy.step = step
    hot_run(policy, 0.6)
    assert policy.cluster.condition(TYPE).status == "True"
    assert policy.cluster.events.count((True, "HotKey")) <= 2


def spec():
    policy = Operated(document())
    return policy.cluster.reconciler.query_of(KEY, policy.cluster.reconciler.observations.of(KEY)).spec


FIELDS = {
    SerialCause.HOT_KEY: "spec.partitioner.algorithm: wchoices",
    SerialCause.UNDIVIDED_SOURCE: "smaller files",
    SerialCause.FEW_WORKERS: "spec.parallelism.max above",
    SerialCause.FEW_REPLICAS: "spec.partitioner.replicas.max above",
    SerialCause.FEW_STATE_PARTITIONS: "millrace state repartition",
    SerialCause.SLOW_SINK: "spec.sink.console",
    SerialCause.SLOW_SOURCE: "spec.sources.trips",
    SerialCause.SLOW_CHECKPOINT: "spec.checkpoint",
    SerialCause.SHORT_INTERVAL: "a spec.batchInterval of 4 s or more",
}


@pytest.mark.parametrize("cause", SerialCause)
def test_every_cause_has_its_figures_and_the_field_to_write(cause):
    text = ineffective_text(spec(), SerialTime(2.0, 1.2, True, True, cause, 1.9, 0.4, 0.0))
    assert FIELDS[cause] in text
    assert "2.40 s of a batch" in text
    assert "1.90 s of it; " in text
    assert text.count("; ") == 1


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_remedy_for_a_hot_key_is_none_that_the_query_has_already(algorithm):
    there = spec()
    there = there.model_copy(update={"partitioner": there.partitioner.model_copy(update={"algorithm": algorithm})})
    text = ineffective_text(there, SerialTime(2.0, 1.2, True, True, SerialCause.HOT_KEY, 1.9, 0.4, 0.0))
    is_split = algorithm in ("wchoices", "shuffle", "python")
    assert ("write spec.partitioner.algorithm: wchoices" in text) is not is_split
    assert "batchInterval" not in text  # an interval twice as long has twice the records of the key


FINAL = OutputSpec.model_validate({"emit": "OnWindowClose", "sink": {"files": {"path": "s3a://results/final"}}})


def test_a_longer_interval_helps_a_sink_only_if_its_time_is_not_that_of_its_records():
    text = ineffective_text(spec(), SerialTime(2.0, 1.2, True, True, SerialCause.SLOW_SINK, 1.9, None, 0.0))
    assert "spec.sink.console writes for 1.90 s of it" in text
    assert "if its time does not grow with the records, write a longer spec.batchInterval" in text


def test_of_several_outputs_the_slow_one_is_not_known_and_all_are_named():
    both = spec().model_copy(update={"additional_outputs": {"final": FINAL}})
    text = ineffective_text(both, SerialTime(2.0, 1.2, True, True, SerialCause.SLOW_SINK, 1.9, None, 0.0))
    assert "the outputs spec.sink.console and spec.additionalOutputs.final.sink.files write for 1.90 s of it" in text
    assert "one of the outputs" in text
