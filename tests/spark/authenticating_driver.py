"""A driver that asks executors for its secret, and the errors with which executors of several settings end.

Run as ``authenticating_driver.py FOLDER``.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from millrace_jobs.session import authenticated

HOME = Path(pyspark.__file__).parent
FILE = "spark.authenticate.secret.file"
BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
PACKAGES = ("java.nio", "sun.nio.ch", "java.lang", "java.util")


ANSWERS = ("Cannot find endpoint", "Authentication failed", "Unknown challenge")
"""What a driver says. It closes the connection with a refusal, so that an executor does not always hear which one."""

MOST_TRIES = 20


def answer_to_executor(driver: str, settings: dict[str, str]) -> str:
    """Start executors until one has heard an answer, and return the causes of its end; of the last one otherwise."""
    for _ in range(MOST_TRIES):
        end = end_of_executor(driver, settings)
        if any(each in end for each in ANSWERS):
            break
    return end


def end_of_executor(driver: str, settings: dict[str, str]) -> str:
    """Start an executor as the image does, and return the causes of its end on one line."""
    options = [f"-D{name}={value}" for name, value in {"spark.master": "k8s://https://x", **settings}.items()]
    options += [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in PACKAGES]
    about = {"driver-url": driver, "executor-id": "9", "hostname": "127.0.0.1", "cores": "1", "app-id": "wires"}
    arguments = [part for name, value in about.items() for part in (f"--{name}", value)]
    command = ["java", "-Xmx128m", *options, "-cp", f"{HOME}/jars/*", BACKEND, *arguments, "--resourceProfileId", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    said = (done.stdout + done.stderr).splitlines()
    return " | ".join(line for line in said if line.startswith("Caused by: ")) or "no error"


folder = Path(sys.argv[1])
right, wrong = folder / "right", folder / "wrong"
settings = authenticated(right)
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
for name, value in settings.items():
    if name != FILE:  # a local driver makes its own
        builder = builder.config(name, value)
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
jvm: Any = spark.sparkContext._jvm
user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
secret = bytes(user.getCredentials().getSecretKey(jvm.org.apache.hadoop.io.Text("sparkCookie"))).decode()
right.write_bytes(base64.b64decode(secret))  # Spark encodes what it reads from a file
wrong.write_bytes(b"0" * 64)
weaker = {name: value for name, value in settings.items() if not name.startswith("spark.network.crypto.")}
url = f"spark://CoarseGrainedScheduler@127.0.0.1:{spark.conf.get('spark.driver.port')}"
for who, chosen in {"right": settings, "wrong": authenticated(wrong), "none": {}, "weaker": weaker}.items():
    print(f"{who}: {answer_to_executor(url, chosen)}", flush=True)
sys.stdout.flush()
os._exit(0)
