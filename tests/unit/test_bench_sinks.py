"""The table of ``bench.sinks``: medians and ranges of rounds, and ratios to Spark's own writer."""

from bench.sinks import SPARK, SinkFigure, summary


def test_the_table_has_a_line_for_each_contender_in_each_place():
    figures = [
        SinkFigure(place, writer, "zstd", number, rate * number, ratio)
        for number in (1, 2, 3)
        for place in ("folder", "S3")
        for writer, rate, ratio in ((SPARK, 1_000_000.0, 1.0), ("delta", 800_000.0, 0.6 + number / 10))
    ]
    table = summary(figures, "Batches")
    cells = [list(column.cells) for column in table.columns]
    assert [list(line) for line in zip(*cells, strict=True)] == [
        [place, *line]
        for place in ("folder", "S3")
        for line in (
            [SPARK, "zstd", "2,000", "1,000 to 3,000", "", ""],
            ["delta", "zstd", "1,600", "800 to 2,400", "0.80", "0.70 to 0.90"],
        )
    ]
