"""Commands for a cluster where there is none: what they say, and how ``explain`` tells files from names."""

from __future__ import annotations

import inspect
import socket
from pathlib import Path

import pytest
import yaml

import millrace_jobs.cli
from millrace_support.query_targets import is_file
from unit.api.documents import ON_CLUSTER

COMMANDS = [
    ["status"],
    ["status", "q"],
    ["explain", "q"],
    ["pause", "q"],
    ["resume", "q"],
    ["suspend", "q"],
    ["restart", "q"],
    ["scale", "q", "--executors", "2"],
    ["logs", "q"],
    ["get", "q", "a"],
    ["report", "q"],
    ["top"],
]
SECRET = "a-token-nobody-may-see"


def kubeconfig(server: str, **changes: object) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "clusters": [{"name": "lab", "cluster": {"server": server}}],
        "users": [{"name": "me", "user": {"token": SECRET}}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}],
    } | changes
    Path("kubeconfig").write_text(yaml.safe_dump(document), encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_missing_kubeconfig_is_one_sentence(millrace, command):
    millrace(*command).assert_failed("there is no kubeconfig kubeconfig", "--kubeconfig FILE, or set KUBECONFIG")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_server_that_is_away_is_one_sentence(millrace, command):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{unused.getsockname()[1]}"
        kubeconfig(server)
        millrace(*command).assert_failed(server, "of context lab cannot be reached", "check that the cluster is up")


def test_diff_fails_with_the_status_of_kubectl_diff(millrace):
    file = Path("query.yaml")
    file.write_text(ON_CLUSTER, encoding="utf-8")
    result = millrace("diff", str(file))
    assert result.status == 2
    assert "there is no kubeconfig kubeconfig" in result.err
    kubeconfig("http://127.0.0.1:1")
    file.write_text(ON_CLUSTER.replace("SELECT", "SELEKT"), encoding="utf-8")
    result = millrace("diff", str(file))
    assert result.status == 2
    assert "query.yaml:10: spec.query.sql" in result.err


def test_bad_options_of_the_operator_are_named(millrace):
    millrace("operator", "--namespace", "team-*").assert_failed(
        '--namespace: "team-*" is not a valid namespace name', "patterns are not supported"
    )
    millrace("operator", "--lease-namespace", "A").assert_failed('--lease-namespace: "A" is not a valid namespace name')
    for name in ("A_b", "1st"):
        millrace("operator", "--lease-name", name).assert_failed(
            f'--lease-name: "{name}" is not a valid Lease name', "a letter first"
        )
    millrace("operator", "--prometheus-url", "prometheus:9090").assert_failed(
        '--prometheus-url: "prometheus:9090" is not the URL of an HTTP server', "http://HOST:PORT"
    )
    millrace(
        "operator", "--prometheus-url", "http://prometheus", "--prometheus-password-file", "password"
    ).assert_failed("--prometheus-user: a user name and a password file belong together")


def test_an_unknown_context_is_refused_with_the_nearest_name(millrace):
    kubeconfig("http://127.0.0.1:1")
    millrace("status", "--context", "lap").assert_failed('has no context "lap"', 'did you mean "lab"?')


@pytest.mark.parametrize(
    "changes",
    [
        {"contexts": [{"name": "lab", "context": {"cluster": "gone", "user": "me"}}]},
        {"users": [{"user": {"token": SECRET}}]},
        {"clusters": 3},
        {
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "me"}}] * 2,
            "clusters": [{"token": SECRET}],
        },
    ],
)
def test_a_broken_kubeconfig_is_named_and_not_quoted(millrace, changes):
    kubeconfig("http://127.0.0.1:1", **changes)
    result = millrace("status")
    result.assert_failed("kubeconfig is not a usable kubeconfig")
    assert SECRET not in result.err


def test_a_context_of_a_kubeconfig_without_contexts_is_refused(millrace):
    kubeconfig("http://127.0.0.1:1", contexts=[])
    millrace("status", "--context", "lab").assert_failed('has no context "lab"; add it with kubectl config set-context')


def test_a_kubeconfig_without_a_current_context_is_refused(millrace):
    kubeconfig("http://127.0.0.1:1", **{"current-context": ""})
    millrace("status").assert_failed("has no current context", "write --context lab")


def test_since_is_a_duration(millrace):
    millrace("logs", "q", "--since", "soon").assert_failed('--since: "soon" is not a duration')


@pytest.mark.parametrize(
    ("target", "expected"),
    [("query.yaml", True), ("gone.yml", True), ("q.json", True), ("./trips", True), ("here", True), ("trips", False)],
)
def test_a_file_and_a_name_are_told_apart(tmp_path, monkeypatch, target, expected):
    monkeypatch.chdir(tmp_path)
    Path("here").touch()
    Path("trips").mkdir()
    assert is_file(target) is expected


@pytest.mark.parametrize(("target", "what"), [("trips", "trips is a folder"), ("tripz", "there is no file tripz")])
def test_without_a_cluster_a_name_may_be_meant_for_a_file(millrace, target, what):
    Path("trips").mkdir()
    millrace("explain", target).assert_failed(what, "write the path of a YAML file")


def test_explain_still_takes_files(millrace):
    millrace("explain", "gone.yaml", "--plan", "plan.yaml").assert_failed("gone.yaml: there is no such file")


def test_explain_has_every_option_that_files_have(millrace):
    said = millrace("explain", "--help").out
    options = list(inspect.signature(millrace_jobs.cli.explain).parameters)[1:]
    assert options
    assert all(f"--{option.replace('_', '-')}" in said for option in options)


def test_options_of_the_other_form_are_refused(millrace):
    millrace("explain", "gone.yaml", "-n", "default").assert_failed("--namespace does not apply")
    millrace("explain", "trips", "--plan", "plan.yaml").assert_failed("--plan does not apply", "./trips")
