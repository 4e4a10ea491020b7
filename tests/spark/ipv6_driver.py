"""The session of a driver's pod whose address is one of IPv6, with executors that have such addresses, too.

Run as ``ipv6_driver.py FOLDER ADDRESS``. The cluster is Spark's own, in processes of this machine.
"""

from __future__ import annotations

import sys
from pathlib import Path

from millrace_jobs.session import pod_session

folder, address = Path(sys.argv[1]), sys.argv[2]
settings = {"spark.master": "local-cluster[1,1,1024]", "spark.executor.memory": "512m"}
spark = pod_session("v6", 2, settings, folder, address, "v6", 1)
rows = spark.range(0, 1000, 1, 4).selectExpr("id % 7 AS k").groupBy("k").count().count()
assert spark._jvm is not None
hosts = spark._jsc.sc().getExecutorMemoryStatus().keys().mkString(" ")
print("rows", rows)
print("hosts", *sorted({host.rpartition(":")[0] for host in hosts.split()}))
spark.stop()
