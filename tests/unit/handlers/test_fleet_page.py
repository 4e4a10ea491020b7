"""What the page says of its operator: whether its figures can be trusted."""

from contextlib import closing

import pytest

from millrace_operator.handlers.fleet_page import ServedFleet
from millrace_operator.kube.client import Client
from millrace_operator.lifecycle.observation_cache import ObservationCache
from millrace_operator.telemetry.metrics import OperatorMetrics
from millrace_operator.telemetry.watches import STALE_SECONDS, Watches, WatchHealth
from millrace_support.pages.verdict import Severity


@pytest.mark.parametrize(
    ("age", "titles"),
    [(None, ["Starting"]), (20.0, []), (150.0, ["No sign of a leader"]), (300.0, ["No operator leads"])],
    ids=["new", "led", "in doubt", "left"],
)
def test_the_page_says_whether_an_operator_leads(age, titles):
    assert [each.title for each in findings(Watches(), age)] == titles


def test_the_page_says_that_figures_are_old_and_names_no_namespace(monkeypatch):
    watches = Watches()
    watches.of("streamqueries", "secret-team")
    monkeypatch.setattr(WatchHealth, "age", STALE_SECONDS + 60)
    (found,) = findings(watches, 20.0)
    assert found.title == "Figures are old"
    assert found.reason == "this operator has heard nothing from the API server for 300 s"


def test_the_page_says_that_namespaces_are_not_watched_and_names_none():
    watches = Watches()
    watches.of("streamqueries", "secret-team").refuse()
    (found,) = findings(watches, 20.0)
    assert (found.title, found.severity) == ("Not all is shown", Severity.WARNING)
    assert "watch 1 of the namespaces" in found.reason
    assert "secret-team" not in found.reason


def findings(watches, age):
    client = Client(OperatorMetrics())
    with closing(ServedFleet(client, ObservationCache(), watches, lambda: age, 1 << 20, "127.0.0.1", 0)) as served:
        return served._health()
