"""The jobs' image has all that queries need."""

from __future__ import annotations

import os
import shutil

import duckdb
import pytest

from lab.cluster import JOBS_USER
from lab.installation import CLAIM, Installation
from lab.parts.millrace_images import JOBS_IMAGE, TAG
from lab.pods import Pods
from spark.example_answers import EXAMPLES, FOLDER, TABLES, assert_answer, file_of, make_tables, write_recordings

pytestmark = [pytest.mark.cluster, pytest.mark.slow(minutes=15), pytest.mark.timeout(2400)]

_DATA = "/data"


def test_every_example_that_a_pod_runs_comes_to_what_it_should(installation: Installation, namespace: str) -> None:
    volume = installation.cluster.volume_folder(namespace)
    write_recordings(volume)
    shutil.copytree(FOLDER, volume / "examples")
    for folder, _, _ in os.walk(volume):
        os.chown(folder, JOBS_USER, JOBS_USER)

    pods = Pods(installation.cluster, namespace, f"{JOBS_IMAGE}:{TAG}")
    mounted = {"workingDir": _DATA, "volumeMounts": [{"name": "data", "mountPath": _DATA}]}
    claimed = {"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}
    pods.start("examples", "sleep 3600", container=mounted, volumes=[claimed])
    pods.wait("examples", "condition=Ready")
    with duckdb.connect() as tables:
        make_tables(tables, volume, TABLES)
        for number, example in EXAMPLES.items():
            pods.kubectl("exec", "examples", "--", "millrace", "run", f"examples/{file_of(number).name}", "--once")
            assert_answer(volume, example, tables)
