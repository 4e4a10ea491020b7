"""A partitioner of a user's own: what its class gets, what is refused, and what is said of its errors."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import millrace
from millrace_api.errors import MillraceError
from millrace_jobs.partitioners import registry
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import job_parameters
from millrace_jobs.plan.policies import LearnedStates, state_text
from millrace_jobs.run.failures import class_of_text

KEYS = np.arange(20, dtype=np.uint64)
MODULE = """
import numpy as np

class Ordered:
    cooperative = True

    def __init__(self, workers, *, first=0):
        if first < 0:
            raise ValueError("first is negative")
        self.workers, self.first, self.met = workers, first, []

    def route(self, keys):
        return ((keys + np.uint64(self.first)) % np.uint64(self.workers)).astype(np.int64)

    def save(self):
        return bytes(self.met)

    def restore(self, state):
        self.met = list(state)

    def resize(self, workers):
        self.workers = workers

    def merge(self, others):
        self.met += [byte for other in others for byte in other.met]

class Full(Ordered):
    def __init__(self, workers, seed, replica, replicas):
        super().__init__(workers)
        self.met = [seed, replica, replicas]

class TooFar(Ordered):
    def route(self, keys):
        return np.full(len(keys), self.workers)

class Short(Ordered):
    def route(self, keys):
        return np.zeros(len(keys) - 1, np.int32)

class Fractions(Ordered):
    def route(self, keys):
        return np.zeros(len(keys))

class Texts(Ordered):
    def save(self):
        return "state"

class Random(Ordered):
    def route(self, keys):
        return np.random.default_rng().integers(0, self.workers, len(keys))

class ByBlock(Ordered):
    def route(self, keys):
        return np.arange(len(keys)) % self.workers

class Forgetful(Ordered):
    def route(self, keys):
        ids = (np.arange(len(keys)) + sum(self.met)) % self.workers
        self.met = [(sum(self.met) + len(keys)) % 168]  # a multiple of all numbers of workers that are tried
        return ids

    def restore(self, state):
        pass

class Stateless(Ordered):
    def route(self, keys):
        ids = (np.arange(len(keys)) + sum(self.met)) % self.workers
        self.met = [(sum(self.met) + len(keys)) % 168]
        return ids

    def save(self):
        return b""

class Stuck(Ordered):
    def resize(self, workers):
        pass

class FailsToRestore(Ordered):
    def restore(self, state):
        raise KeyError("weights")

class FailsToMerge(Ordered):
    def merge(self, others):
        raise TypeError("no list")

class FailsToResize(Ordered):
    def resize(self, workers):
        raise IndexError("no such worker")

class Slides(Ordered):
    def __init__(self, workers, slides):
        super().__init__(workers)

class Bare:
    def route(self, keys):
        return keys
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "placing_in_tests.py"
    file.write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "placing_in_tests", raising=False)
    return file


def make(name: str, **parameters: Any) -> Any:
    given = {"class": f"placing_in_tests:{name}", **parameters}
    return registry.make("python", workers=4, replica=1, replicas=3, seed=7, parameters=given)


def refusal(name: str, **parameters: Any) -> str:
    with pytest.raises(ValueError) as caught:
        make(name, **parameters).route(KEYS)
    return str(caught.value)


def test_a_class_gets_its_position_as_far_as_it_names_it_and_its_own_parameters() -> None:
    assert make("Full")._own.met == [7, 1, 3]
    assert make("Ordered", first=3).route(KEYS[:3]).tolist() == [3, 0, 1]
    assert make("Ordered").route(KEYS).dtype == np.int32


def test_states_are_merged_by_the_class_and_begun_with_by_all_if_it_is_cooperative() -> None:
    parameters = {"class": "placing_in_tests:Ordered"}
    replicas = [make("Ordered") for _ in range(2)]
    for number, each in enumerate(replicas):
        each._own.met = [number]
    states = [each.save() for each in replicas]
    begun = registry.initial_states("python", states, workers=4, replicas=3, seed=7, parameters=parameters)
    met = []
    for state in begun:
        replicas[0].restore(state)
        met.append(replicas[0]._own.met)
    assert met == [[0, 1]] * 3


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("FailsToRestore", "restore of partitioner placing_in_tests:FailsToRestore failed: KeyError: 'weights'"),
        ("FailsToMerge", "merge of partitioner placing_in_tests:FailsToMerge failed: TypeError: no list"),
        ("FailsToResize", "resize of partitioner placing_in_tests:FailsToResize failed: IndexError: no such worker"),
    ],
)
def test_replicas_begin_without_a_state_that_the_class_cannot_take_up(
    name: str, said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    states = LearnedStates(tmp_path / "policies")
    pin = Pin(1, "python", 2, 4, {"class": f"placing_in_tests:{name}"}, seed=7)
    states.store(1, pin, dict.fromkeys(range(2), state_text(make(name).save())))
    assert states.beginnings(replace(pin, policy=1, workers=5)) == []
    assert said in caplog.text


def test_a_class_may_have_parameters_of_any_name() -> None:
    given = {"class": "placing_in_tests:Slides", "slides": 3}
    assert job_parameters("python", given) == given


def test_a_state_of_another_class_is_refused() -> None:
    with pytest.raises(ValueError, match=r"state of another class than placing_in_tests:Ordered; start without it"):
        make("Ordered").restore(make("Full").save())


@pytest.mark.parametrize(
    ("name", "parameters", "said"),
    [
        ("Absent", {}, "module 'placing_in_tests' has no class 'Absent'; write module:Class, such as placing:Sticky"),
        ("Bare", {}, "'placing_in_tests:Bare' is no partitioner: it has no save, restore, resize; define what docs/own-code.md lists"),
        ("Ordered", {"last": 1}, "partitioner placing_in_tests:Ordered cannot be created with these parameters: got an unexpected keyword argument 'last'; write some of: first"),
        ("Ordered", {"first": -1}, "partitioner placing_in_tests:Ordered cannot be created: ValueError: first is negative; correct the class or its parameters"),
        ("TooFar", {}, "partitioner placing_in_tests:TooFar returned workers from 4 to 4; return numbers from 0 to 3"),
        ("Short", {}, "partitioner placing_in_tests:Short returned int32 of shape (19,) for 20 records; return a whole number for each record"),
        ("Fractions", {}, "partitioner placing_in_tests:Fractions returned float64 of shape (20,) for 20 records; return a whole number for each record"),
    ],
)  # fmt: skip
def test_what_cannot_place_records_is_named(name: str, parameters: dict[str, Any], said: str) -> None:
    assert refusal(name, **parameters) == said


def test_a_module_that_is_missing_and_a_class_that_is_not_named_are_told_apart() -> None:
    given: list[dict[str, Any]] = [{"class": "no_such_module:Any"}, {"class": 3}, {}]
    said = []
    for parameters in given:
        with pytest.raises(ValueError) as caught:
            registry.resolve_parameters("python", parameters)
        said.append(str(caught.value))
    assert said[0].startswith(
        "'no_such_module:Any' cannot be imported: No module named 'no_such_module'; put it beside"
    )
    assert said[1] == said[2] == (
        "partitioner python has no parameter 'class' that names its class; write class: module:Class in the parameters"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("TooFar", "TooFar fails with 1 worker: ValueError: partitioner placing_in_tests:TooFar returned workers from 1 to 1"),
        ("Texts", "Texts fails with 1 worker: ValueError: partitioner placing_in_tests:Texts saved a str; return bytes"),
        ("Random", "Random does not keep its promise with [0-9]+ workers: a new replica chose other workers for the same records; correct"),
        ("ByBlock", "ByBlock does not keep its promise with 3 workers: workers depend on where blocks end"),
        ("Forgetful", "Forgetful does not keep its promise with 1 worker: after save and restore, the state is another one"),
        ("Stateless", "Stateless does not keep its promise with 2 workers: after save and restore, the same records get other workers"),
        ("Stuck", "Stuck fails with 1 worker: ValueError: partitioner placing_in_tests:Stuck returned workers from"),
        ("Bare", "'placing_in_tests:Bare' is no partitioner"),
    ],
)  # fmt: skip
def test_the_check_finds_what_does_not_hold(name: str, said: str) -> None:
    with pytest.raises(MillraceError) as caught:
        millrace.check_partitioner(f"placing_in_tests:{name}")
    assert re.match(said, str(caught.value))


@pytest.mark.parametrize(
    "name", [*(name for name in registry.ALGORITHMS if name != "native"), "placing_in_tests:Ordered"]
)
def test_sound_partitioners_pass_the_check(name: str) -> None:
    check = millrace.check_partitioner(name)
    label = name.rpartition(":")[2]
    assert repr(check).startswith(f"<{label} keeps its promises: 20 rounds of up to 363 records with 1, 2, 3, 8, 21 ")


def test_a_class_can_be_compared_and_tried_like_any_algorithm() -> None:
    from placing_in_tests import Ordered

    table = millrace.compare(KEYS, ["hash", Ordered], workers=4)
    assert table["algorithm"] == ["hash", "Ordered"]
    assert table["load_imbalance_ratio"][0] >= 0
    partitioner = millrace.Partitioner(Ordered, workers=4, replicas=2, first=1)
    assert (partitioner.algorithm, partitioner.route(KEYS).tolist()[:2]) == ("Ordered", [*partitioner.route(KEYS)[:2]])
    table = millrace.compare(KEYS, ["hash", (Ordered, {"first": 3}), "placing_in_tests:Ordered:first=1"], workers=4)
    assert table["algorithm"] == ["hash", "Ordered:first=3", "Ordered:first=1"]
    assert millrace.compare(KEYS, (Ordered, {"first": 3}), workers=4)["algorithm"] == ["Ordered:first=3"]
    by_path = millrace.Partitioner("placing_in_tests:Ordered:first=1", workers=4, replicas=2)
    assert by_path.route(KEYS).tolist() == partitioner.route(KEYS).tolist()
    with pytest.raises(MillraceError, match=r"^algorithms: partitioner .* unexpected keyword argument 'last'"):
        millrace.compare(KEYS, (Ordered, {"last": 3}))
    with pytest.raises(MillraceError, match=r"^algorithms: partitioner .*: first is negative"):
        millrace.compare(KEYS, (Ordered, {"first": -1}))
    with pytest.raises(MillraceError, match=r"^an algorithm is an Ordered; pass the name or the class of one"):
        millrace.check_partitioner(Ordered(4))
    with pytest.raises(MillraceError, match="cannot be imported by its name; define the class in a module"):
        millrace.Partitioner(type("Local", (Ordered,), {"__module__": "placing_in_tests"}), workers=4)


def test_an_error_in_a_class_is_one_of_the_users_code(module: Path) -> None:
    text = 'Traceback (most recent call last):\n  File "/x/millrace_jobs/pipeline/route.py", line 8, in f\n  File "{}", line 3, in route\nValueError: no'
    assert class_of_text(text.format(module)) == "UserCodeFailed"
    assert class_of_text(text.format("/x/millrace_jobs/partitioners/own_code.py")) == "UserCodeFailed"
