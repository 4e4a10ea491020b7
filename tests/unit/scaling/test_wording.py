from dataclasses import replace

import pytest

from millrace_operator.scaling.decision.changes import Change, ChangeOutcome
from millrace_operator.scaling.decision.decision import Decision, Inputs, Reason, sentence
from millrace_operator.scaling.decision.search import REPLICAS, Forecast
from millrace_operator.scaling.decision.settings import Guard, Settings
from millrace_operator.scaling.shape import Shape

BEFORE, AFTER = Shape(2, 8, 2), Shape(3, 12, 2)
INPUTS = Inputs(
    interval=2.0,
    utilization=1.31,
    at_arrival=1.31,
    batches_at_arrival=1.31,
    arrival=41_000.0,
    growth=0.35,
    lag=0.0,
    demand=41_000.0,
    keys=None,
)
CHOSEN = Forecast(AFTER, 0.78, 0.72, 0.84, "combine")
OUT = Decision(10.0, BEFORE, AFTER, Reason.SCALE_OUT, inputs=INPUTS, chosen=CHOSEN)
OVER = "W was 1.31 (batches took 2.62 s, the interval is 2 s), and 41,000 records/s arrive"
LOAD = f"{OVER}, 35% more than at the last change"
PREDICTED = "(W 0.78 is predicted, 0.72 to 0.84)"
OUTCOME = ChangeOutcome(Change(0.0, BEFORE, AFTER, 4e4, None), 2.62, 1.6, 2.6)


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (OUT, f"{LOAD}: 2/8/2 -> 3/12/2 is the cheapest plan with W under 0.90 {PREDICTED}; "
         "combine is the bottleneck."),
        (replace(OUT, reason=Reason.SCALE_IN, inputs=replace(INPUTS, utilization=0.4, growth=-0.5),
                 chosen=replace(CHOSEN, bottleneck="fixed")),
         "W was 0.40 (batches took 0.80 s, the interval is 2 s), and 41,000 records/s arrive, 50% less than at the "
         f"last change: 2/8/2 -> 3/12/2 is the cheapest plan with W under 0.85 {PREDICTED}; fixed costs take longer "
         "than any stage."),
        (replace(OUT, plan=BEFORE, reason=Reason.STABLE, inputs=replace(INPUTS, arrival=432.0, growth=20.62, demand=0.0)),
         "W was 1.31 (batches took 2.62 s, the interval is 2 s), and 432 records/s arrive, up from 20 at the last "
         "change: 2/8/2 stays, since it fits the load."),
        (replace(OUT, inputs=replace(INPUTS, growth=None, lag=5000.0, demand=52_000.0)),
         f"{OVER}, while 5,000 wait; the plan is for 52,000: 2/8/2 -> 3/12/2 is the cheapest plan with W under 0.90 "
         f"{PREDICTED}; combine is the bottleneck."),
        (replace(OUT, inputs=replace(INPUTS, utilization=0.5, at_arrival=0.97, batches_at_arrival=0.5, growth=None),
                 chosen=replace(CHOSEN, bottleneck=REPLICAS)),
         "W was 0.50 (batches took 1.00 s, the interval is 2 s), and 41,000 records/s arrive, which take 97% of the "
         f"replicas' time: 2/8/2 -> 3/12/2 is the cheapest plan with W under 0.90 {PREDICTED}; replicas are the "
         "bottleneck."),
        (replace(OUT, reason=Reason.AT_CAPACITY, guard=Guard.QUOTA, detail="the quota allows 3 executors"),
         f"{LOAD}: 2/8/2 -> 3/12/2 is the best there is {PREDICTED}, since the quota allows 3 executors."),
        (replace(OUT, plan=BEFORE, reason=Reason.AT_CAPACITY),
         f"{LOAD}: 2/8/2 is the best there is {PREDICTED}, since more cores would not make batches shorter."),
        (replace(OUT, reason=Reason.TRIAL),
         f"{LOAD}: 2/8/2 -> 3/12/2 is tried in proportion to W, since no plan that ran lately is predicted to be "
         "enough."),
        (replace(OUT, plan=BEFORE, reason=Guard.PAUSED, guard=Guard.PAUSED, detail="ScaleOut"),
         f"{LOAD}: 2/8/2 -> 3/12/2 would be best {PREDICTED}, but everything is paused."),
        (replace(OUT, plan=BEFORE, reason=Guard.ADVISE, guard=Guard.ADVISE, detail="ScaleOut"),
         f"{LOAD}: 2/8/2 -> 3/12/2 would be best {PREDICTED}, but scaling is not active."),
        (replace(OUT, plan=BEFORE, reason=Reason.STABLE), f"{LOAD}: 2/8/2 stays, since it fits the load."),
        (replace(OUT, reason=Reason.UNDONE, before=AFTER, plan=BEFORE, outcome=OUTCOME),
         "3/12/2 -> 2/8/2: 2/8/2 -> 3/12/2 did not help; batches took 2.60 s where 1.60 s were predicted, and 2.62 s "
         "without it."),
        (Decision(10.0, BEFORE, BEFORE, Reason.NO_ANSWER,
                  detail="Stale: the answer is 90 s old, over the limit of 60 s"),
         "Nothing is decided, since the metrics cannot be relied on (Stale: the answer is 90 s old, over the limit of "
         "60 s)."),
        (Decision(10.0, BEFORE, AFTER, Reason.OUT_OF_BOUNDS), "2/8/2 -> 3/12/2, since the bounds have changed."),
        (Decision(10.0, BEFORE, BEFORE, Reason.OFF), "Scaling is switched off."),
    ],
)  # fmt: skip
def test_a_decision_is_one_sentence_with_its_numbers(decision, words):
    assert sentence(decision, Settings()) == words


@pytest.mark.parametrize("guard", Guard)
def test_every_guard_that_keeps_a_plan_says_why(guard):
    decision = replace(OUT, plan=BEFORE, reason=guard, guard=guard, detail="the limit is reached")
    said = sentence(decision, Settings())
    assert said.startswith(LOAD)
    assert said.endswith(".")
    assert len(said) > len(LOAD) + 20
