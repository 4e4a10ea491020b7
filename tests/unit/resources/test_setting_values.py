"""Within a policy, a Spark setting has a value that names nothing, unless an administrator names the setting."""

from __future__ import annotations

import pytest
import yaml

from millrace_api.model.streamquery import StreamQuery
from millrace_api.validation.loading import read_query
from millrace_operator.resources.permissions import Permissions
from millrace_operator.resources.tenancy_policy import TenancyPolicy

from .cases import SMALLEST


def allowed(name: str, value: str, **rule: object) -> bool:
    document = yaml.safe_load(SMALLEST)
    document["spec"]["sparkConf"] = {name: value}
    query: StreamQuery = read_query(document)
    policy = TenancyPolicy.model_validate({"policy": [{"namespaces": ["cabs"], **rule}]}, by_name=False)
    return Permissions(policy).allow(query, "cabs")


@pytest.mark.parametrize(
    "value",
    ["true", "False", "0", "-1", "+3", "0.25", "200", "64m", "1g", "16KB", "2GiB", "30s", "500ms", "10 min", " 7 "],
)
def test_numbers_sizes_durations_and_flags_name_nothing(value: str) -> None:
    assert allowed("spark.sql.some.setting", value)


LEADING_OUT = {
    "spark.driver.extraJavaOptions": "-javaagent:/data/evil.jar",
    "spark.executor.defaultJavaOptions": "-agentpath:/data/evil.so",
    "spark.driver.extraClassPath": "/data/evil.jar",
    "spark.executor.extraLibraryPath": "/data",
    "spark.jars": "/data/evil.jar",
    "spark.files": "/var/run/secrets/kubernetes.io/serviceaccount/token",
    "spark.archives": "/data/evil.zip#x",
    "spark.submit.pyFiles": "/data/evil.py",
    "spark.pyspark.python": "sh",
    "spark.pyspark.driver.python": "/data/evil",
    "spark.python.daemon.module": "evil",
    "spark.python.worker.module": "evil",
    "spark.executorEnv.PYTHONPATH": "/data",
    "spark.executorEnv.LD_PRELOAD": "/data/evil.so",
    "spark.driver.resource.gpu.discoveryScript": "/data/evil.sh",
    "spark.resources.discoveryPlugin": "evil.Plugin",
    "spark.extraListeners": "evil.Listener",
    "spark.sql.extensions": "evil.Extensions",
    "spark.sql.queryExecutionListeners": "evil.Listener",
    "spark.sql.streaming.streamingQueryListeners": "evil.Listener",
    "spark.sql.streaming.stateStore.providerClass": "evil.Provider",
    "spark.sql.streaming.checkpointFileManagerClass": "evil.Manager",
    "spark.sql.sources.commitProtocolClass": "evil.Protocol",
    "spark.sql.catalog.evil": "evil.Catalog",
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.defaultCatalog": "evil",
    "spark.sql.warehouse.dir": "/data",
    "spark.sql.hive.metastore.jars": "path",
    "spark.hadoop.fs.file.impl": "evil.FileSystem",
    "spark.hadoop.fs.defaultFS": "hdfs://evil.com",
    "spark.hadoop.hive.metastore.uris": "thrift://evil.com:9083",
    "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:/data/x",
    "spark.hadoop.hadoop.security.credential.provider.path": "jceks://file/data/x",
    "spark.serializer": "evil.Serializer",
    "spark.kryo.registrator": "evil.Registrator",
    "spark.closure.serializer": "evil.Serializer",
    "spark.io.compression.codec": "evil.Codec",
    "spark.shuffle.manager": "evil.Manager",
    "spark.shuffle.sort.io.plugin.class": "evil.Plugin",
    "spark.metrics.conf": "/data/metrics.properties",
    "spark.metrics.conf.*.sink.x.class": "evil.Sink",
    "spark.eventLog.dir": "/var/lib/millrace/checkpoint/bank",
    "spark.driver.log.dfsDir": "/data",
    "spark.ui.filters": "evil.Filter",
    "spark.remote": "sc://evil.com",
    "spark.api.mode": "connect",
    "spark.checkpoint.dir": "/data",
    "spark.sql.streaming.checkpointLocation": "/data",
    "spark.some.setting": "",
}


@pytest.mark.parametrize(("name", "value"), LEADING_OUT.items(), ids=LEADING_OUT)
def test_a_text_may_lead_out_of_the_query(name: str, value: str) -> None:
    assert not allowed(name, value)
    assert not allowed(name, value, sparkConf={"allow": ["spark.*"]}), "only its own name allows it"


@pytest.mark.parametrize("value", ["1,2", "1\n2", "0x10", "1e3", "true;sh", "1 2", "١", "1g/x", "٣s"])
def test_what_only_begins_as_a_number_is_a_text(value: str) -> None:
    assert not allowed("spark.sql.some.setting", value)


def test_a_setting_is_allowed_by_its_own_name_and_some_have_harmless_texts() -> None:
    options = {"allow": ["spark.driver.extraJavaOptions"]}
    assert allowed("spark.driver.extraJavaOptions", "-Xss4m", sparkConf=options)
    assert not allowed("spark.executor.extraJavaOptions", "-Xss4m", sparkConf=options)
    assert allowed("spark.sql.parquet.compression.codec", "zstd")
    assert allowed("spark.log.level", "WARN")
