from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from builders import PIN, a_batch, a_native_batch, a_query
from millrace_api.model.deployment import Algorithm, Placement
from millrace_api.model.plan import Plan
from millrace_jobs.aggregates.reducing import ColumnarReduction
from millrace_jobs.kernels.mixing import seeded_hashes
from millrace_jobs.partitioners.registry import ALGORITHMS
from millrace_jobs.pipeline.projection import Projection
from millrace_jobs.plan.plan_source import FixedPlan
from millrace_jobs.queries.execution import CompiledQuery
from millrace_jobs.queries.routed.aggregation import Aggregation
from millrace_jobs.queries.routed.routed import Routed
from millrace_jobs.run.plans import AlgorithmAdvice, AutoPlans, advice_on, first_algorithm, first_plan, measured
from millrace_jobs.selection.costs import CombineTask, Resources
from millrace_jobs.selection.selector import CANDIDATES
from millrace_jobs.sketches.key_profile import add_counts, profile
from millrace_jobs.windows import Window

PLAN = Plan(epoch=7, algorithm=Algorithm.HASH, parameters={}, replicas=2, parallelism=4)
HOPPING = Window("at", 60_000_000, 1_000_000)


def routed(*, keys=1, window=None, sql=False):
    schema = pa.schema([("k0", pa.string())])
    projection = Projection("", (("k0", "k"),), schema, keys)
    reduction = ColumnarReduction((), window, ())
    aggregation = Aggregation("s", "", (), window, (), (), "") if sql else None
    return Routed("s", window, projection, reduction, aggregation)


def skewed_batch(number, algorithm):
    """One worker of four has nearly all records, which are expensive; their keys are few."""
    counts = np.array([97_000, 1000, 1000, 1000])
    keys = add_counts([(seeded_hashes(np.arange(4, dtype=np.uint64), 3), counts)])
    tasks = tuple(CombineTask(int(rows), 1, 0.01 + rows * 50e-6) for rows in counts)
    return a_batch(
        batch=number,
        pin=replace(PIN, algorithm=algorithm),
        rows=100_000,
        seconds=0.5 + tasks[0].seconds,
        route=(0.02, 0.02),
        combined=tasks,
        profile=profile(keys),
    )


@pytest.mark.parametrize(
    ("query", "first"),
    [
        (routed(sql=True), "native"),
        (routed(sql=True, window=HOPPING, keys=0), "shuffle"),
        (routed(keys=0), "shuffle"),
    ],
)
def test_the_first_algorithm_depends_on_the_query(query, first):
    assert first_algorithm(query) == first


@pytest.mark.parametrize("query", [routed(), routed(sql=True, window=HOPPING)])
def test_keys_are_collocated_at_first(query):
    assert first_algorithm(query) in ("cam", "pkg")


@pytest.mark.parametrize(("cores", "algorithm"), [(1, "native"), (2, "native"), (3, "cam")])
def test_an_aggregator_in_python_starts_unrouted_with_a_slice_for_each_core(cores, algorithm):
    spec = a_query("spec", "partitioner", value={"algorithm": "auto", "replicas": {"initial": 2}}).spec
    assert first_plan(spec, CompiledQuery(routed(), StructType(), True), cores).algorithm == algorithm


def test_dedicated_replicas_place_records_whatever_the_cores():
    assert first_algorithm(routed(), placement=Placement.DEDICATED, slices_fill_cores=True) != "native"


def test_a_later_run_goes_on_with_the_algorithm_of_the_last_batch():
    assert first_algorithm(routed(), replace(PIN, algorithm="dalton")) == "dalton"
    assert first_algorithm(routed(keys=0), replace(PIN, algorithm="of another version")) == "shuffle"


@pytest.mark.parametrize("last", ALGORITHMS)
def test_a_run_goes_on_only_with_an_algorithm_that_it_can_judge(last):
    assert first_algorithm(routed(), replace(PIN, algorithm=last)) in CANDIDATES


def test_the_prior_depends_on_the_query():
    assert routed().choice.prior.slice_record is None
    assert routed(sql=True).choice.prior.windows == 1
    assert routed(sql=True, window=HOPPING).choice.prior.windows == 60


def test_a_switch_is_a_new_plan_with_the_other_fields_as_they_were():
    reported = []
    plans = AutoPlans(FixedPlan(PLAN), Algorithm.HASH, routed().choice, lambda: Resources(4, 4), reported.append)
    assert plans.current() == PLAN
    assert plans.current() is None
    for number in range(6):
        plans.observe(skewed_batch(number, "hash"))
        if reported:
            break
    plan = plans.current()
    assert plan is not None
    assert plan.algorithm == plans.selector.algorithm != Algorithm.HASH
    assert plan == PLAN.model_copy(update={"algorithm": plan.algorithm})
    assert reported[0].startswith(f"auto: from hash to {plan.algorithm.value}, for ")
    assert plans.current() is None


def test_nothing_is_switched_while_the_algorithm_is_to_stay():
    free, given = [True], (FixedPlan(PLAN), Algorithm.HASH, routed().choice, lambda: Resources(4, 4), print)
    plans = AutoPlans(*given, chooses=lambda: free[0])
    free[0] = False
    assert [plans.observe(skewed_batch(number, "hash")) for number in range(6)] == [None] * 6
    assert plans.current() == PLAN
    free[0] = True
    assert any(plans.observe(skewed_batch(number, "hash")) for number in range(6, 12))


def test_a_batch_without_a_plan_is_left_out():
    plans = AutoPlans(FixedPlan(PLAN), Algorithm.HASH, routed().choice, lambda: Resources(4, 4), print)
    for number in range(6):
        plans.observe(replace(skewed_batch(number, "hash"), pin=None))
    assert plans.selector.candidates == {}


def test_the_selector_gets_the_measurements_of_a_batch():
    report = skewed_batch(3, "hash")
    batch = measured(replace(report, state_updates=9))
    assert (batch.number, batch.algorithm, batch.workers, batch.replicas) == (3, "hash", 4, 2)
    assert (batch.rows, batch.seconds, batch.groups) == (100_000, report.seconds, 4)
    assert (batch.route_seconds, batch.merge_seconds, batch.state_updates) == (0.04, 0.4, 9)
    assert batch.profile is report.profile
    assert measured(a_native_batch()).tasks == ()


def test_a_fixed_algorithm_keeps_running_and_the_others_are_predicted_beside_it():
    selector = routed().choice.selector(Resources(4, 4), "hash", Placement.INLINE)
    advice = AlgorithmAdvice(Algorithm.HASH, selector, lambda: Resources(4, 4))
    for number in range(20):
        candidates = advice.observe(skewed_batch(number, "hash"))
    assert set(candidates) == set(CANDIDATES)
    assert candidates["hash"].time.total > 2 * min(each.time.total for each in candidates.values())
    later = [advice.observe(skewed_batch(number, "hash")) for number in range(20, 60)]
    assert later[-1] is not candidates  # it goes on after the switch that auto would have made


@pytest.mark.parametrize(("algorithm", "has_advice"), [("hash", True), ("auto", False), ("native", True), ("am", True)])
def test_advice_is_on_an_algorithm_that_auto_could_have_chosen(algorithm, has_advice):
    spec = a_query("spec", "partitioner", value={"algorithm": algorithm}).spec
    compiled = SimpleNamespace(execution=routed())
    assert (advice_on(spec, compiled, lambda: Resources(4, 4)) is not None) == has_advice
