"""Spark's analyzer about the SQL that the checks without it accept and refuse for groups, names, types and windows."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysed_queries import COLUMNS, REFUSED, SOUND

pytestmark = pytest.mark.spark


@pytest.fixture
def sources(spark: SparkSession) -> SparkSession:
    for name in ("e", "f"):
        spark.createDataFrame([], COLUMNS.replace("TIMESTAMP", "timestamp")).createOrReplaceTempView(name)
    return spark


@pytest.mark.parametrize("sql", SOUND)
def test_spark_accepts_what_the_checks_accept(sources: SparkSession, sql: str) -> None:
    sources.sql(sql)


@pytest.mark.parametrize("sql", REFUSED)
def test_spark_refuses_what_the_checks_refuse(sources: SparkSession, sql: str) -> None:
    with pytest.raises(PySparkException):
        sources.sql(sql)
