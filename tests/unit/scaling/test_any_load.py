"""Whatever a job does and whatever its metrics say, a decision comes of it, within bounds and with a sentence."""

import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_operator.scaling.decision.decision import Situation
from millrace_operator.scaling.decision.scaler import Scaler
from millrace_operator.scaling.observation import Answer
from unit.scaling.deciding import BOUNDS, SETTINGS, HandMade

RATES = st.sampled_from([0.0, 1.0, 300.0, 40_000.0, 90_000.0, 1e6, 1e9])
SERIES = [name for name in Answer.__dataclass_fields__ if name != "time"]
VALUES = st.none() | st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, 1.0, -1.0, math.nan])


def sound(decision):
    assert decision.plan in BOUNDS
    assert decision.sentence.endswith(".")


@settings(max_examples=40, deadline=None)
@given(
    rates=st.lists(st.tuples(RATES, st.integers(1, 12)), min_size=1, max_size=5), fixed=st.sampled_from([0.0, 0.2, 3.0])
)
def test_any_load_is_decided_about(rates, fixed):
    job, scaler = HandMade(fixed=fixed), Scaler(SETTINGS, BOUNDS, 8)
    for rate, steps in rates:
        job.rate = rate
        for decision in job.steps(scaler, steps):
            sound(decision)
    restored = Scaler(SETTINGS, BOUNDS, 8)
    restored.restore(json.loads(json.dumps(scaler.save(), allow_nan=False)))
    sound(job.step(restored))


@settings(max_examples=60, deadline=None)
@given(wrong=st.lists(st.dictionaries(st.sampled_from(SERIES), VALUES, max_size=4), min_size=1, max_size=12))
def test_any_answer_is_decided_about(wrong):
    job, scaler = HandMade(), Scaler(SETTINGS, BOUNDS, 8)
    job.steps(scaler, 4)
    for changes in wrong:
        job.now += 10.0
        job._work(5)
        said = {**vars(job.answer(job.plan.executors)), **changes}
        sound(scaler.step(Answer(**said), Situation(job.now, job.plan, job.epoch, job.plan.executors)))
