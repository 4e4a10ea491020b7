from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.shape import Shape
from millrace_research.arena.known_job import KnownJob
from millrace_research.arena.policies.oracle import FixedPolicy
from millrace_research.arena.policies.prompt import PromptPolicy
from millrace_research.arena.scenarios import KEYS
from millrace_research.arena.simulation.job import JobProfile

from .states import BOUNDS, INTERVAL, batches, plan

JOB = KnownJob(JobProfile(), BOUNDS)


def test_prompt_begins_with_a_task_for_each_core():
    assert PromptPolicy(BOUNDS, 3, INTERVAL).step(None, Situation(0.0, plan(3), 0, 3)) == Shape(3, 6, 6)


def test_prompt_adds_a_map_task_for_more_records_and_an_executor_to_run_it():
    policy = PromptPolicy(BOUNDS, 3, INTERVAL)
    for count in range(1, 9):
        found = policy.step(batches(2.0 * count, count, 1.9, 1000.0 + count), Situation(0.0, plan(3), 0, 3))
    assert found == Shape(4, 6, 7)


def test_prompt_sees_each_of_the_batches_between_two_answers():
    policy = PromptPolicy(BOUNDS, 3, INTERVAL)
    policy.step(batches(0.0, 0, 1.9), Situation(0.0, plan(3), 0, 3))
    policy.step(batches(2.0, 1, 1.9), Situation(0.0, plan(3), 0, 3))
    assert policy.step(batches(14.0, 7, 1.9, 1100.0), Situation(0.0, plan(3), 0, 3)) == Shape(4, 6, 7)


def test_prompt_keeps_its_tasks_without_metrics():
    policy = PromptPolicy(BOUNDS, 3, INTERVAL)
    assert {policy.step(None, Situation(2.0 * step, plan(3), 0, 3)) for step in range(20)} == {Shape(3, 6, 6)}


def test_fixed_never_changes():
    policy = FixedPolicy("fixed-mean", plan(4))
    assert policy.step(None, Situation(0.0, plan(9), 0, 9)) == plan(4)
    assert policy.step(batches(60.0, 1, 60.0), Situation(60.0, plan(4), 0, 4)) == plan(4)


def test_capacity_grows_with_executors_and_the_cheapest_plan_has_just_enough():
    capacities = [JOB.capacity(JOB.shape(size, KEYS), KEYS) for size in range(1, 11)]
    assert capacities == sorted(capacities)
    for size, capacity in enumerate(capacities, start=1):
        assert JOB.cheapest(capacity, KEYS).executors == size
        assert JOB.cheapest(capacity * 1.001, KEYS).executors == min(size + 1, 10)


def test_the_shape_is_no_worse_than_any_other_that_is_tried():
    best = JOB.capacity(JOB.shape(4, KEYS), KEYS)
    assert all(JOB.capacity(Shape(4, n, m), KEYS) <= best for n in (4, 8, 16, 24) for m in (4, 8, 16, 24))
