"""A policy file: each mistake in it is one sentence with file, line and field, and its rules add up."""

import pytest

from millrace_api.errors import MillraceError
from millrace_operator.resources.tenancy_policy import TenancyPolicy


@pytest.fixture
def policy_file(tmp_path):
    """Writes a policy file, and returns its path."""

    def write(text):
        path = tmp_path / "policy.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: is empty; write at least one document"),
        ("polic: []", ':1: polic: there is no field "polic" here; did you mean "policy"?'),
        ("policy: {}", ":1: policy: a mapping is not a list; write a list such as [a, b]"),
        ("policy:\n  - images: []", ":2: policy[0].namespaces: is required; write namespaces: ['team-*']"),
        ("policy:\n  - namespaces: []", ":2: policy[0].namespaces: there are 0 entries; write at least 1"),
        (
            "policy:\n  - namespaces: [a]\n    image: []",
            ':3: policy[0].image: there is no field "image" here; did you mean "images"?',
        ),
        (
            "policy:\n  - namespaces: [a]\n    images:\n      - jobs",
            ':4: policy[0].images[0]: "jobs" is not a pattern of images; write registry and repository without tag, such '
            "as registry.example.com/streams/**, or docker.io/library/millrace-jobs for an image that names no registry",
        ),
        (
            "policy:\n  - namespaces: [a]\n    limits: {coresPerPod: 4, cores: 2}",
            ":3: policy[0].limits.cores: coresPerPod <= cores does not hold (got coresPerPod: 4, cores: 2); "
            "write values in that order",
        ),
        (
            "policy:\n  - namespaces: [a]\n    limits: {memoryPerPod: 2g, memory: 1024m}",
            ":3: policy[0].limits.memory: memoryPerPod <= memory does not hold (got memoryPerPod: 2g, memory: 1024m); "
            "write values in that order",
        ),
        (
            "policy:\n  - namespaces: [a]\n    limits: {executors: 0}",
            ":3: policy[0].limits.executors: 0 is less than 1; write a number of at least 1",
        ),
        ("policy:\n  - namespaces: [a]\n    files:", ":3: policy[0].files: is empty; write a value"),
        ("policy: []\n---\npolicy: []", ":3: a policy file has one document; remove the others"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(policy_file, text, said):
    path = policy_file(text)
    with pytest.raises(MillraceError) as refused:
        TenancyPolicy.load(path)
    (problem,) = refused.value.problems
    assert str(problem).startswith(f"{path}{said}")


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(MillraceError, match=r"policy\.yaml"):
        TenancyPolicy.load(tmp_path / "policy.yaml")


def test_all_rules_that_match_a_namespace_are_for_it(policy_file):
    path = policy_file("""\
policy:
  - {namespaces: ["*"], exceptNamespaces: [platform], limits: {executors: 16}}
  - {namespaces: ["team-*", platform], limits: {executors: 4}}
""")
    policy = TenancyPolicy.load(path)
    limits = {
        name: [rule.limits.executors for rule in policy.rules_for(name)] for name in ("other", "team-a", "platform")
    }
    assert limits == {"other": [16], "team-a": [16, 4], "platform": [4]}
