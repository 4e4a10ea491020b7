"""Texts of a tenant that try to become something else: settings, PromQL, records of a log, another tenant's topics."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import yaml

from millrace_api.errors import MillraceError
from millrace_api.validation.loading import read_query
from millrace_jobs.dedicated.topics import Topics
from millrace_operator.metrics_source.job_metrics import equal, like
from millrace_operator.resources.restrictions import problems
from millrace_operator.telemetry.logs import TextFormatter
from unit.chart.tools import documents, rendered
from unit.resources.cases import SMALLEST, objects_of

EVIL = "1\nspark.plugins=evil.Plugin\r\nspark.master local\\"


def with_spec(**spec: Any) -> str:
    document = yaml.safe_load(SMALLEST)
    document["spec"] |= spec
    return yaml.safe_dump(document)


def settings_of(text: str) -> list[str]:
    """Names of the settings in the file that Spark reads."""
    made = objects_of(text)
    (files,) = [each["data"] for each in made if each["metadata"]["name"].startswith("trips-by-cell-query-")]
    return [line.partition(" ")[0] for line in files["spark-defaults.conf"].splitlines()]


def test_lines_in_an_image_name_become_no_settings() -> None:
    assert settings_of(with_spec(image=EVIL)) == settings_of(SMALLEST)


def test_lines_in_a_cpu_limit_become_no_settings() -> None:
    container = {"name": "executor", "resources": {"limits": {"cpu": EVIL}, "requests": {"cpu": EVIL}}}
    template = {"podTemplate": {"spec": {"containers": [container]}}}
    assert set(settings_of(with_spec(executors=template))) - set(settings_of(SMALLEST)) == {
        "spark.kubernetes.executor.limit.cores"
    }


def test_a_setting_with_another_in_its_name_is_refused() -> None:
    query = read_query(yaml.safe_load(with_spec(sparkConf={"spark.a x\nspark.master": "local"})))
    assert "is not the name of a setting" in str(problems(query)[0])


def test_quotes_in_a_name_do_not_end_a_string_of_promql() -> None:
    assert equal("query", 'x"} or vector(1) #') == r'query="x\"} or vector(1) #"'
    assert like("pod", 'a\\\n"') == r'pod=~"a\\\n\""'


def test_pods_choose_no_label_of_their_own_series() -> None:
    monitors = [each for each in documents(rendered("everything")) if each["kind"] == "PodMonitor"]
    endpoints = [endpoint for each in monitors for endpoint in each["spec"]["podMetricsEndpoints"]]
    assert endpoints
    assert all(each["honorLabels"] is False for each in endpoints)


def test_a_driver_that_reports_a_line_of_a_log_writes_no_record_of_it() -> None:
    forged = "failed\n2026-01-01T00:00:00Z ERROR   [bank/payments] stolen\x1b[2J"
    record = logging.LogRecord("operator", logging.WARNING, "", 0, "%s", (forged,), None)
    first, *others = TextFormatter().format(record).splitlines()
    assert first.endswith("failed")
    assert all(line.startswith("    ") for line in others)
    assert "\x1b" not in "".join(others)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [(("a", "b-c"), ("a-b", "c")), (("a", "b"), ("a-b", "b")), (("shop", "trips-0"), ("shop-trips", "0"))],
)
def test_no_two_namespaces_share_a_topic_a_group_or_a_transactional_id(
    mine: tuple[str, str], theirs: tuple[str, str]
) -> None:
    def names(query: tuple[str, str]) -> set[str]:
        topics = Topics(*query)
        return {topics.routed, topics.manifests, topics.control, topics.driver, topics.group("g"), topics.replica(0)}

    assert names(mine).isdisjoint(names(theirs))


@pytest.mark.parametrize("name", ["a.b", "a/b", "../b", "a_b", "b" * 64])
def test_a_name_that_could_be_part_of_anothers_is_refused(name: str) -> None:
    document = yaml.safe_load(SMALLEST)
    document["metadata"]["name"] = name
    with pytest.raises(MillraceError, match="is not a name for a StreamQuery"):
        read_query(document)


def test_the_kubelet_is_not_sent_to_another_host() -> None:
    http = {"httpGet": {"host": "169.254.169.254", "path": "/latest/meta-data", "port": 80}}
    tcp = {"tcpSocket": {"host": "10.0.0.1", "port": 22}}
    container = {"name": "driver", "livenessProbe": http, "lifecycle": {"preStop": http, "postStart": tcp}}
    query = read_query(yaml.safe_load(with_spec(driver={"podTemplate": {"spec": {"containers": [container]}}})))
    fields = [each.field.removeprefix("spec.driver.podTemplate.spec.containers[0].") for each in problems(query)]
    places = ("livenessProbe.httpGet", "lifecycle.preStop.httpGet", "lifecycle.postStart.tcpSocket")
    assert set(fields) == {f"{place}.host" for place in places}
