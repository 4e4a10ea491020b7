import os
from types import SimpleNamespace

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import PartitionerSpec, Placement
from millrace_api.model.plan import Plan
from millrace_jobs.plan.control import Pin
from millrace_jobs.plan.plan_source import FixedPlan, PlanFile, partitioner_problem, pin_of

PLAN = {"algorithm": "hash", "replicas": 2, "parallelism": 4}


def a_plan(**changes):
    return Plan.model_validate(PLAN | changes)


class File:
    """A plan file whose every change has another time, however fast the test."""

    def __init__(self, folder):
        self.path = folder / "plan.yaml"
        self._time = 10**18

    def write(self, text="", **fields):
        lines = "".join(f"{name}: {value}\n" for name, value in (PLAN | fields).items())
        self.path.write_text(text or lines, encoding="utf-8")
        self._time += 1
        os.utime(self.path, ns=(self._time, self._time))


@pytest.fixture
def file(tmp_path):
    return File(tmp_path)


def test_a_fixed_plan_comes_once():
    plans = FixedPlan(a_plan(epoch=1))
    assert [plans.current(), plans.current(), plans.current()] == [a_plan(epoch=1), None, None]


def test_a_plan_comes_when_the_file_has_changed(file):
    file.write()
    plans = PlanFile(file.path)
    assert plans.current() == a_plan(epoch=1)
    assert plans.current() is None
    file.write(parallelism=8)
    assert plans.current() == a_plan(epoch=2, parallelism=8)
    assert plans.current() is None


def test_epochs_grow_whatever_the_file_says(file):
    plans, epochs = PlanFile(file.path), []
    for epoch in (0, 5, 5, 3, 0, 9):
        file.write(epoch=epoch)
        epochs.append(plans.current().epoch)
    assert epochs == [1, 5, 6, 7, 8, 9]


def test_a_bad_file_is_told_once_and_a_later_good_one_is_taken(file):
    file.write()
    plans = PlanFile(file.path)
    plans.current()
    file.write(parallelism="many")
    with pytest.raises(MillraceError) as raised:
        plans.current()
    (problem,) = raised.value.problems
    assert (problem.file, problem.line, problem.field) == (str(file.path), 3, "parallelism")
    assert plans.current() is None
    file.write(parallelism=2)
    assert plans.current() == a_plan(epoch=2, parallelism=2)


@pytest.mark.parametrize("text", ["[", "algorithm: hash\n---\nalgorithm: hash\n", "algorithm: auto\n", "- 1\n"])
def test_what_is_no_plan_is_told(file, text):
    file.write(text)
    with pytest.raises(MillraceError):
        PlanFile(file.path).current()


def test_a_file_that_is_moved_into_place_is_seen_though_its_time_is_the_same(file, tmp_path):
    file.write()
    plans = PlanFile(file.path)
    plans.current()
    status = file.path.stat()
    other = tmp_path / "new.yaml"
    other.write_text(file.path.read_text(encoding="utf-8").replace("hash", "pkg"), encoding="utf-8")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(file.path)
    assert plans.current() == a_plan(epoch=2, algorithm="pkg")


def test_a_file_that_is_being_replaced_is_waited_for(file):
    file.write()
    plans = PlanFile(file.path)
    plans.current()
    file.path.unlink()
    assert plans.current() is None
    file.write(replicas=1)
    assert plans.current() == a_plan(epoch=2, replicas=1)


def test_a_file_that_never_was_is_a_problem(file):
    with pytest.raises(MillraceError, match=r"there is no plan file .*plan.yaml; write one, or leave --plan out"):
        PlanFile(file.path).current()


def test_a_pin_has_the_plan_with_all_its_parameters():
    assert pin_of(a_plan(epoch=3)) == Pin(3, "hash", 2, 4)
    assert pin_of(a_plan(algorithm="pkg")).parameters == {"choices": 2, "slides": 1, "probing": 0}
    assert pin_of(a_plan(algorithm="pkg", parameters={"choices": 3})).parameters == {
        "choices": 3,
        "slides": 1,
        "probing": 0,
    }
    assert pin_of(a_plan(algorithm="native", parallelism=16, replicas=4)) == Pin(0, "native", 4, 16)


@pytest.mark.parametrize(
    ("changes", "field", "message"),
    [
        ({"parameters": {"choices": 2}}, "parameters", "hash has no parameter 'choices'; it takes none"),
        ({"algorithm": "pkg", "parameters": {"choices": 0}}, "parameters", "'choices'"),
    ],
)
def test_a_plan_that_cannot_be_followed_is_told(changes, field, message):
    with pytest.raises(MillraceError) as raised:
        pin_of(a_plan(**changes))
    (problem,) = raised.value.problems
    assert problem.field == field
    assert message in str(problem)


WINDOWED = [
    *((name, {"slides": 5}) for name in ("pkg", "cm", "am", "cam", "lm", "dagreedy", "dalton")),
    ("pkg", {"slides": 0}),
    ("pkg", {"slides": 0, "probing": 3}),
]


@pytest.mark.parametrize(("algorithm", "parameters"), WINDOWED)
def test_windows_of_several_slides_and_probing_are_for_dedicated_replicas(algorithm, parameters):
    plan = a_plan(algorithm=algorithm, parameters=parameters, placement=Placement.DEDICATED)
    assert parameters.items() <= pin_of(plan).parameters.items()
    with pytest.raises(MillraceError, match=r"with placement Inline .*leave it out, or write placement: Dedicated"):
        pin_of(a_plan(algorithm=algorithm, parameters=parameters))


def test_probing_inline_is_refused():
    with pytest.raises(MillraceError, match="'probing' of partitioner pkg is 2, but with placement Inline replicas"):
        pin_of(a_plan(algorithm="pkg", parameters={"probing": 2}))


def test_only_loads_of_the_whole_stream_are_probed():
    plan = a_plan(algorithm="pkg", parameters={"probing": 2}, placement=Placement.DEDICATED)
    with pytest.raises(MillraceError, match=r"its window is 1 slides, .*; write slides: 0 as well"):
        pin_of(plan)


@pytest.mark.parametrize(("placement", "refused"), [("Inline", True), ("Dedicated", False)])
def test_the_spec_is_judged_by_its_placement(placement, refused):
    given = {"algorithm": "am", "parameters": {"slides": 5}, "placement": placement}
    problem = partitioner_problem(SimpleNamespace(partitioner=PartitionerSpec.model_validate(given)))
    assert (problem is not None) == refused
    if refused:
        assert problem.hint == "leave it out, or write placement: Dedicated"
