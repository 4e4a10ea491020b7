"""The table of ``bench.sinks``: medians and ranges of rounds, and ratios to the writer that a place is measured by."""

from bench.sinks import BY_DRIVER, BY_TASKS, FOLDER, KAFKA, S3, SPARK, SinkFigure, summary


def test_the_table_has_a_line_for_each_contender_in_each_place_by_each_number_of_tasks():
    writers = {FOLDER: (SPARK, "delta"), S3: (SPARK, "delta"), KAFKA: (BY_DRIVER, BY_TASKS)}
    figures = [
        SinkFigure(tasks, place, writer, "zstd", number, rate * number, ratio)
        for tasks in (1, 16)
        for number in (1, 2, 3)
        for place, pair in writers.items()
        for writer, rate, ratio in zip(pair, (1_000_000.0, 800_000.0), (1.0, 0.6 + number / 10), strict=True)
    ]
    table = summary(figures, "Batches")
    cells = [list(column.cells) for column in table.columns]
    assert [list(line) for line in zip(*cells, strict=True)] == [
        [tasks, place, *line]
        for tasks in ("1", "16")
        for place, (first, second) in writers.items()
        for line in (
            [first, "zstd", "2,000", "1,000 to 3,000", "", ""],
            [second, "zstd", "1,600", "800 to 2,400", "0.80", "0.70 to 0.90"],
        )
    ]
