"""What runs without the extras, and how a missing one is reported. Packages are hidden from a process of its own."""

import json
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from distribution import PROJECT, base_names, extra_names
from millrace_support.extras import EXTRAS, extras_reported

ROOT = Path(__file__).parents[2]
CONNECTING = ("kafka", "lake", "mysql", "postgres", "stores", "operator")
"""The extras whose absence is reported by ``millrace_support.extras``."""

HIDING = """
import contextlib, importlib, io, json, pkgutil, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if is_hidden(name.partition(".")[0]):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())

def run(*arguments):
    sys.argv, errors = ["millrace", *arguments], io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        try:
            main()
        except SystemExit as end:
            return [end.code, errors.getvalue()]

def import_all(*names):
    for name in names:
        for module in pkgutil.walk_packages(importlib.import_module(name).__path__, name + "."):
            importlib.import_module(module.name)
"""

COMMANDS = {
    "operator": "the operator needs the Python package kopf, which is not installed; run: pip install 'millrace[operator]'",
    "status": "commands on a cluster need the Python package kubernetes, which is not installed; run: pip install 'millrace[operator]'",
    "produce --topic t --bootstrap-servers 127.0.0.1:1 --generate rate": "Kafka needs the Python package confluent_kafka, which is not installed; run: pip install 'millrace[kafka]'",
    "validate examples/36-clicks-by-tier.yaml": "Kafka needs the Python package confluent_kafka, which is not installed; run: pip install 'millrace[kafka]'",
    "checkpoint show s3a://bucket/query": "object stores need the Python package obstore, which is not installed; run: pip install 'millrace[stores]'",
}  # fmt: skip


def hiding(what: str, script: str) -> str:
    """Run a script in a process that cannot import packages for which ``what`` is true; return its output."""
    source = f"is_hidden = lambda name: {what}\n{HIDING}\n{script}"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_partitioners_need_numpy_and_numba_only() -> None:
    library = "name not in {'numpy', 'numba', 'llvmlite', 'millrace_jobs', *sys.stdlib_module_names}"
    script = "from millrace_jobs.partitioners import *\nimport_all('millrace_jobs.sketches', 'millrace_jobs.kernels')"
    assert hiding(library, f"{script}\nprint('imported')") == "imported\n"


def test_of_the_package_only_partitioners_work_with_numpy_and_numba_alone_and_the_rest_says_what_to_install() -> None:
    library = "name not in {'numpy', 'numba', 'llvmlite', *sys.stdlib_module_names} and not name.startswith(('millrace', '_sysconfigdata'))"
    calls = (
        "compare([1], ['pkg'])",
        "simulate('steps')",
        "capacity({}, 1)",
        "load('query.yaml')",
        "check_aggregator(object, {'a': [1]})",
    )
    script = f"""
import millrace
print(len(millrace.Partitioner("pkg", workers=4).route([1, 1, 2])))
for call in {calls}:
    try:
        eval(f"millrace.{{call}}")
    except millrace.MillraceError as error:
        print(error)
"""
    placed, *said = hiding(library, script).splitlines()
    assert placed == "3"
    for call, line in zip(calls, said, strict=True):
        assert line.startswith(f"millrace.{call.partition('(')[0]} needs the Python package ")
        assert "which is not installed; run: pip install millrace; " in line


def test_without_its_dependencies_the_program_says_what_to_install() -> None:
    library = "name not in {'numpy', 'numba', 'llvmlite', *sys.stdlib_module_names} and not name.startswith(('millrace', '_sysconfigdata'))"
    script = "from millrace_jobs.program import main\nprint(run('--help')[0])"
    assert hiding(library, script).startswith(
        "error: millrace needs the Python package typer, which is not installed; run: pip install millrace; "
    )


def test_a_missing_extra_is_one_sentence_with_what_to_install() -> None:
    script = f"from millrace_jobs.cli import main\nprint(json.dumps([run(*each.split()) for each in {[*COMMANDS]}]))"
    results = json.loads(hiding(f"name in {set(EXTRAS)}", script))
    assert dict(zip(COMMANDS, results, strict=True)) == {
        command: [1, f"error: {said}\n"] for command, said in COMMANDS.items()
    }


def test_files_of_connectors_whose_extra_is_missing_are_valid() -> None:
    files = [f"examples/{name}.yaml" for name in ("23-kafka-auction-table", "31-postgres-frequent-routes",
             "32-delta-frequent-routes", "34-iceberg-frequent-routes", "40-mysql-rides-by-area")]  # fmt: skip
    script = f"from millrace_jobs.cli import main\nprint(json.dumps(run('validate', '--no-inputs', *{files})))"
    assert json.loads(hiding(f"name in {set(EXTRAS)}", script)) == [0, ""]


def test_what_a_connector_imports_when_it_is_used_is_reported_by_its_extra() -> None:
    modules = {
        "sources.kafka.connector": "kafka",
        "sources.lakehouse.delta_snapshot": "lake",
        "sinks.lakehouse.iceberg_sink": "lake",
        "sources.mysql.table": "mysql",
        "sinks.postgres.dialect": "postgres",
    }
    script = f"""
from millrace_api.errors import MillraceError
from millrace_support.extras import extras_reported
for module in {[*modules]}:
    try:
        with extras_reported():
            importlib.import_module(f"millrace_jobs.{{module}}")
    except MillraceError as error:
        print(error)
"""
    said = hiding(f"name in {set(EXTRAS)}", script).splitlines()
    assert [line.partition("millrace[")[2] for line in said] == [f"{extra}]'" for extra in modules.values()]


def test_other_missing_modules_are_not_taken_for_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"), extras_reported():
        import nowhere  # noqa: F401


@pytest.mark.parametrize("extra", CONNECTING)
def test_each_package_of_an_extra_is_known_by_what_needs_it(extra: str) -> None:
    by_module = packages_distributions()
    named = {canonicalize_name(each) for module in EXTRAS for each in by_module.get(module, ())}
    assert extra_names(extra) <= named
    assert all(of in PROJECT["optional-dependencies"] for _, of in EXTRAS.values())


def test_the_operators_image_has_what_its_code_imports_and_no_spark() -> None:
    absent = (
        "name in {'pyspark', 'py4j', 'pyarrow', 'pandas', 'numba', 'llvmlite', 'google.protobuf', 'confluent_kafka'}"
    )
    script = "import_all('millrace_operator')\nfrom millrace_jobs.cli import main\nprint(run('--help')[0])"
    assert hiding(absent, script) == "0\n"
    listed = set((ROOT / "images/operator/requirements.in").read_text().split())
    assert extra_names("operator") <= listed <= base_names() | extra_names("operator")
