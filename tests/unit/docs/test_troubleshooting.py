"""docs/troubleshooting.md: the messages that it explains are those of the product, for files with these mistakes."""

import pytest

from doc_blocks import ROOT, blocks
from millrace_jobs.run.query_file import check_file

PAGE = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
SHOPS = next(block for block in blocks(ROOT / "docs/laptop.md") if block.title == "shops.yaml").text


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("batchInterval", "batchIntervall", 'there is no field "batchIntervall" here; did you mean "batchInterval"?'),
        ("Interval: 1s", "Interval: 1 second", '"1 second" is not a duration longer than zero'),
        ("emit: OnWindowClose", "emit: Append", '"Append" is not one of OnUpdate, OnWindowEnd, OnWindowClose'),
        ("sum(price)", "sum(prize)", 'there is no column "prize"'),
        ("FROM orders", "FROM order_lines", 'there is no source "order_lines"'),
        ("price DOUBLE", "price DOUBEL", '"DOUBEL" is not a type that a schema can have'),
        ("at TIMESTAMP", "at STRING", '"at" is STRING, not TIMESTAMP'),
        ("watermark: {column: at, delay: 10m}", "", "emit OnWindowClose needs a watermark"),
        ("window(at, '10 minutes'), shop", "shop", "emit OnWindowClose needs a window or a join"),
        ("minutes'), shop", "minutes'), shop ORDER BY shop", "ORDER BY needs all records, and a stream has no end"),
        (
            "count(*)",
            "rank() OVER (ORDER BY at)",
            "OVER needs all records of a partition, and a stream has no end",
        ),
        (
            "count(*)",
            "stddev(DISTINCT length(drink))",
            "a stream does not keep every value, which DISTINCT in an aggregate needs",
        ),
        ("path: orders", "path: oders", "no file matches this path"),
        ("path: orders", "path: s3://bucket/orders", "the scheme s3: is not supported"),
        (
            "emit:",
            "sparkConf: {spark.sql.session.timeZone: Europe/Vienna}\n  emit:",
            'is "Europe/Vienna", but queries compute in UTC',
        ),
        ("name: shops", "name: My_Shops", "is not a name for a StreamQuery"),
    ],
)
def test_a_message_of_the_page_is_that_of_the_product(right, wrong, message, tmp_path):
    assert right in SHOPS
    file = tmp_path / "shops.yaml"
    text = SHOPS.replace("window.start AS since, ", "") if "needs a window" in message else SHOPS
    file.write_text(text.replace(right, wrong), encoding="utf-8")
    said = [str(problem) for problem in check_file(file, ())]
    assert any(message in each for each in said), said
    assert f"`{message}" in PAGE
