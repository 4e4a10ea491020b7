"""A Spark cluster of this machine whose workers are at addresses of their own, so that Spark takes them for two machines.

Spark starts a speculative attempt of a task only on another machine than the first one, and ``local-cluster`` has one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from .ports import free_port
from .processes import Process
from .waiting import wait_until

HOSTS = ("127.0.0.2", "127.0.0.3")
"""Addresses of the workers, which the loopback interface has without being set up."""


@contextmanager
def standalone_spark(folder: Path, cores: int = 1) -> Iterator[str]:
    """Run a master and two workers, each for one executor; yield the URL for ``spark.master``."""
    home, port = Path(pyspark.__file__).parent, free_port()
    environment = {"SPARK_HOME": str(home), "SPARK_SCALA_VERSION": "2.13", "SPARK_DAEMON_MEMORY": "192m"}
    url = f"spark://127.0.0.1:{port}"

    def start(name: str, *arguments: str) -> Process:
        command = [str(home / "bin" / "spark-class"), *arguments]
        return Process(command, folder / f"{name}.log", folder=folder, environment=environment)

    master = "org.apache.spark.deploy.master.Master"
    worker = "org.apache.spark.deploy.worker.Worker"
    running = [start("master", master, "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")]
    try:
        for host in HOSTS:
            sizes = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / host)]
            running.append(start(host, worker, "--host", host, "--webui-port", "0", *sizes, url))
        wait_until(lambda: all("registered with master" in each.said for each in running[1:]), seconds=120)
        yield url
    finally:
        for each in reversed(running):
            each.kill()  # and the executors that it has started
