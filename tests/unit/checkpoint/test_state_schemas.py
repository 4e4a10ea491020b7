"""A checkpoint that was moved finds the schemas of its state in itself."""

import json

import pytest

from millrace_jobs.checkpoint.state_schemas import point_to_own_schemas


def written(spark, operator, batch, paths):
    """Write an operator's metadata as Spark does, and return the file."""
    file = spark / "state" / str(operator) / "_metadata" / "v2" / str(batch)
    file.parent.mkdir(parents=True, exist_ok=True)
    stores = [{"storeName": "default", "numPartitions": 2, "stateSchemaFilePaths": each} for each in paths]
    file.write_text("v2\n" + json.dumps({"operatorInfo": {"operatorId": operator}, "stateStoreInfo": stores}))
    return file


def paths_in(file):
    version, text = file.read_text().split("\n")
    assert version == "v2"
    return [store["stateSchemaFilePaths"] for store in json.loads(text)["stateStoreInfo"]]


@pytest.mark.parametrize(
    "before", ["file:/srv/shop/spark", "s3a://lake/fares/spark-0f", "file:/srv/my shop/10%/spark.new"]
)
@pytest.mark.parametrize("name", ["checkpoint", "my check%20point"])
def test_schemas_are_found_where_the_checkpoint_is(tmp_path, before, name):
    spark = tmp_path / name / "spark"
    first = written(spark, 0, 0, [[f"{before}/state/0/_stateSchema/default/0_a"], []])
    second = written(
        spark, 1, 7, [[f"{before}/state/1/_stateSchema/left/0_b", f"{before}/state/1/_stateSchema/left/7_c"]]
    )
    stale = first.with_name(".0.crc")
    stale.write_bytes(b"crc\0")
    point_to_own_schemas(spark)
    assert paths_in(first) == [[f"file:{spark}/state/0/_stateSchema/default/0_a"], []]
    assert paths_in(second) == [
        [f"file:{spark}/state/1/_stateSchema/left/0_b", f"file:{spark}/state/1/_stateSchema/left/7_c"]
    ]
    assert not stale.exists()


def test_a_checkpoint_in_its_place_and_what_spark_has_to_name_stay_as_they_are(tmp_path):
    spark = tmp_path / "spark"
    point_to_own_schemas(spark)  # no state yet
    right = written(spark, 0, 0, [[f"file:{spark}/state/0/_stateSchema/default/0_a"]])
    damaged = right.with_name("1")
    damaged.write_text("v2\n{")
    (spark / "state/1/_metadata").mkdir(parents=True)
    (spark / "state/1/_metadata/metadata").write_text("v1\n{}")
    before = {file: (file.read_text(), file.stat().st_mtime_ns) for file in spark.rglob("*") if file.is_file()}
    point_to_own_schemas(spark)
    assert before == {file: (file.read_text(), file.stat().st_mtime_ns) for file in spark.rglob("*") if file.is_file()}
