"""Any model, written as YAML and read again, is the same model."""

import subprocess
import sys
import tempfile
from pathlib import Path

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Plan
from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import load_plan, load_queries

from .random_documents import counts, documents, scalars, texts


@settings(max_examples=200, deadline=None)
@given(documents)
def test_a_query_survives_yaml(document):
    query = StreamQuery.model_validate(document, by_name=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "query.yaml"
        path.write_text(yaml.safe_dump(query.to_document(), allow_unicode=True), encoding="utf-8")
        assert load_queries(path, resolved=True) == [query]


@settings(max_examples=200, deadline=None)
@given(
    st.builds(
        Plan,
        epoch=st.integers(0, 2**53),
        algorithm=st.sampled_from([algorithm for algorithm in Algorithm if algorithm is not Algorithm.AUTO]),
        parameters=st.dictionaries(texts, scalars, max_size=3),
        replicas=counts,
        parallelism=counts,
        executors=counts,
    )
)
def test_a_plan_survives_json_and_yaml(plan):
    assert Plan.from_json(plan.to_json()) == plan
    assert Plan.from_json(plan.to_json()).to_json() == plan.to_json()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.yaml"
        path.write_text(yaml.safe_dump(plan.to_document()), encoding="utf-8")
        assert load_plan(path) == plan


def test_importing_the_api_leaves_sqlglot_alone():
    program = "import sys, millrace_api.validation.loading, millrace_api.crd; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
