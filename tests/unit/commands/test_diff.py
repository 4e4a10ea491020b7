"""How ``millrace diff`` estimates a pause, and what it prints."""

from __future__ import annotations

import yaml

from millrace_api.model.changes import Effect
from millrace_api.model.status import Status
from millrace_api.model.upgrade import UpgradeSpec
from millrace_api.validation.loading import read_query
from millrace_operator.commands.diff_screen import screen
from millrace_operator.commands.query_diff import QueryDiff, comparison, is_replaced, pause
from millrace_operator.resources.spec_changes import FieldChange, revision
from unit.api.documents import ON_CLUSTER

from .queries import assert_golden, condition, drawn

DRIVER = {"pod": "d-0", "startTime": "2026-01-31T11:59:00Z", "restarts": 0}
READY = condition("Ready", "True", "Running") | {"lastTransitionTime": "2026-01-31T11:59:31Z"}


def estimate(**status):
    return pause(Status.model_validate(status, by_name=False))


def test_a_pause_is_estimated_by_what_was_observed_of_this_query():
    assert estimate(load={"processingSeconds": 1.26}, driver=DRIVER, conditions=[READY]) == (
        "up to 1.3 s for the running batch, as long as the last one observed took; about 31 s for the start of a "
        "driver and its first batch, as long as the one that runs took"
    )


def test_what_was_not_observed_is_not_estimated():
    unknown = "the start of a driver and its first batch (how long that takes was not observed)"
    assert "how long batches take was not observed" in estimate()
    assert unknown in estimate()
    assert unknown in estimate(driver=DRIVER | {"restarts": 1}, conditions=[READY])  # ready since its restart
    assert unknown in estimate(driver=DRIVER, conditions=[READY | {"status": "False"}])
    earlier = READY | {"lastTransitionTime": "2026-01-31T11:00:00Z"}
    assert unknown in estimate(driver=DRIVER, conditions=[earlier])  # of the driver before it


def test_a_driver_is_replaced_if_it_runs_another_spec():
    healthy, bad = (read_query(yaml.safe_load(ON_CLUSTER + more)).spec for more in ("", "  image: example.org/no\n"))

    def replaced(old, new, **status):
        return is_replaced(old, new, Status.model_validate(status, by_name=False))

    assert replaced(healthy, bad)
    assert not replaced(healthy, healthy)
    rejected = {"revision": revision(bad), "generation": 2, "time": "2026-01-31T11:00:00Z"}
    rolled_back = {"driver": DRIVER | {"revision": revision(healthy)}, "rejected": rejected}
    assert not replaced(bad, healthy, **rolled_back)  # it runs that one already
    assert not replaced(bad, bad, **rolled_back)  # it is not tried again
    assert replaced(bad, healthy.model_copy(update={"restart_nonce": 1}), **rolled_back)


def test_what_a_comparison_costs_at_most_is_said_before_it():
    said = comparison(UpgradeSpec(records=50_000, duration="5m", slower_than=2), ["spec.query", "spec.image"])
    assert said == (
        "both versions run on the same records first, for spec.query, spec.image: at most 50,000 records, or as many "
        "as the old one reads in 5m, in 3 runs and 65 minutes at most, in a pod with the memory of a driver and an "
        "executor; the new version takes over if the results are equal and come as fast"
    )
    assert comparison(UpgradeSpec(expect_changes=True), ["spec.query"]).endswith("takes over whatever differs")


def test_a_diff_is_printed_with_its_changes_and_notes():
    changes = (
        FieldChange("spec.batchInterval", "2s", "5s", Effect.REPLACED, "replaces the driver"),
        FieldChange("spec.executors.max", 8, 12, Effect.IN_PLACE, "in place: a bound of the next plan"),
        FieldChange("spec.image", None, "example.org/\x1b[31mjobs:2", Effect.REPLACED, "replaces the driver"),
    )
    notes = (
        ("driver", "ends after its running batch, and another one continues from the checkpoint"),
        ("pause", estimate(load={"processingSeconds": 1.26}, driver=DRIVER, conditions=[READY])),
        ("scaling", "starts over: what it has learned about this query is forgotten"),
    )
    refused = ("by the operator: ConfigMap trips-by-cell-plan exists and is not this query's",)
    diffs = [
        QueryDiff("trips-by-cell", "streams", False, changes, notes, ()),
        QueryDiff("trips-by-cell", "streams", True, (), (), refused),
        QueryDiff("other", "streams", False, (), (), ()),
    ]
    assert_golden("diff", "\n".join(drawn(screen(each)) for each in diffs))
