"""``millrace init``: what it asks, what it writes, and that this is valid."""

import csv
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from typer.testing import CliRunner

from millrace_api.errors import MillraceError
from millrace_api.validation.loading import load_queries
from millrace_jobs.cli import app
from millrace_jobs.run.query_file import check_file
from millrace_jobs.starter.sample import TRIPS, write_trips

EVENTS = (
    '{"id": 1, "user": {"country": "de"}, "created_at": 1714550400000, "at": "2024-05-01T10:00:00+02:00", "n": 5}\n'
    '{"id": 2, "user": {"country": "fr"}, "created_at": 1714550401000, "at": "2024-05-01T11:00:00Z", "n": 1714550400}\n'
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*arguments: str, typed: str = "") -> str:
    """Run the command; return its output, or raise its error."""
    result = CliRunner().invoke(app, ["init", *arguments], input=typed)
    if isinstance(result.exception, MillraceError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def spec(file: str = "query.yaml") -> dict:
    """Return the spec of a file that is valid."""
    assert check_file(Path(file)) == []
    return yaml.safe_load(Path(file).read_text())["spec"]


def test_the_sample_is_counted_by_station_and_hour_in_the_terminal() -> None:
    said = init("--sample", "--yes")
    assert said == "wrote query.yaml and trips.csv; run it: millrace run query.yaml --once\n"
    written = spec()
    assert written["sources"]["records"]["schema"] == "started TIMESTAMP, station STRING, rider STRING, minutes BIGINT"
    assert "window(started, '1 hour'), station" in written["query"]["sql"]
    assert (written["sink"], written["emit"]) == ({"console": {}}, "OnWindowClose")


def test_the_sample_is_the_same_each_time_in_order_and_skewed(folder: Path) -> None:
    write_trips(folder / "a.csv")
    write_trips(folder / "b.csv")
    assert (folder / "a.csv").read_bytes() == (folder / "b.csv").read_bytes()
    with (folder / "a.csv").open() as file:
        trips = list(csv.DictReader(file))
    assert len(trips) == TRIPS
    assert trips == sorted(trips, key=lambda trip: trip["started"])
    counts = Counter(trip["station"] for trip in trips).most_common()
    assert counts[0][1] > 10 * counts[-1][1]


def test_nested_json_is_declared_and_its_times_are_recognized(folder: Path) -> None:
    (folder / "events.jsonl").write_text(EVENTS)
    init("events.yaml", "--input", "events.jsonl", "--group-by", "user.country", "--yes")
    source = spec("events.yaml")["sources"]["records"]
    assert source["schema"] == ("id BIGINT, user STRUCT<country: STRING>, created_at TIMESTAMP, at TIMESTAMP, n BIGINT")
    assert source["timeFormats"] == {"created_at": "milliseconds"}
    assert source["watermark"]["column"] == "created_at"
    assert "GROUP BY window(created_at, '1 hour'), user.country" in spec("events.yaml")["query"]["sql"]


def test_a_file_without_times_is_counted_without_windows_as_it_changes(folder: Path) -> None:
    (folder / "people.csv").write_text("day,Full Name,n\n2024-05-01,x,1\n")
    init("--input", "people.csv", "--output", "out", "--yes")
    written = spec()
    assert written["query"]["sql"] == "SELECT `Full Name`, count(*) AS records\nFROM records\nGROUP BY `Full Name`\n"
    assert (written["sink"], written["emit"]) == ({"files": {"path": "out", "format": "csv"}}, "OnUpdate")
    assert "the row with the highest _batch_id is the newest" in Path("query.yaml").read_text()


def test_columns_of_parquet_are_its_own(folder: Path) -> None:
    pq.write_table(pa.table({"at": pa.array([1], pa.timestamp("ms")), "k": pa.array([1], pa.uint16())}), "a.parquet")
    init("--input", "a.parquet", "--yes")
    assert spec()["sources"]["records"]["schema"] == "at TIMESTAMP, k INT"


def test_a_topic_needs_its_columns_and_results_may_go_to_another() -> None:
    options = ("--topic", "trips", "--bootstrap-servers", "kafka:9092", "--output-topic", "counts", "--yes")
    with pytest.raises(MillraceError, match=r"--schema 'COLUMN TYPE, \.\.\.' is not given"):
        init(*options)
    assert init(*options, "--schema", "who STRING, at TIMESTAMP").endswith("run it: millrace run query.yaml\n")
    assert spec()["sink"] == {"kafka": {"bootstrapServers": "kafka:9092", "topic": "counts"}}


def test_three_questions_are_asked_in_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace_jobs.commands.init._has_terminal", lambda: True)
    (folder / "events.jsonl").write_text(EVENTS)
    said = init(typed="events.jsonl\nuser.country\n2 hours\nresults\n")
    questions = ("Records: ", "Count records by (user.country, ", "Over windows of created_at (or none)", "Results: ")
    assert [said.count(question) for question in questions] == [1, 1, 1, 1]
    assert "window(created_at, '2 hours'), user.country" in spec()["query"]["sql"]
    assert spec()["sink"]["files"]["path"] == "results"


def test_without_a_terminal_the_missing_options_are_named(folder: Path) -> None:
    with pytest.raises(
        MillraceError, match="--sample, --input FILE or --topic TOPIC is not given, and there is no terminal to ask on"
    ):
        init()
    with pytest.raises(
        MillraceError, match="--group-by is not given, and there is no terminal to ask on; give --sample"
    ):
        init("--sample")
    assert list(folder.iterdir()) == []


def test_nothing_is_overwritten(folder: Path) -> None:
    (folder / "query.yaml").write_text("mine")
    with pytest.raises(MillraceError, match=r"query\.yaml: exists, and is not overwritten"):
        init("--sample", "--yes")
    (folder / "trips.csv").write_text("mine")
    with pytest.raises(MillraceError, match=r"trips\.csv: exists"):
        init("other.yaml", "--sample", "--yes")
    assert {file.read_text() for file in folder.iterdir()} == {"mine"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--group-by", "statoin"], '--group-by statoin is no column that can be used here; did you mean "station"'),
        (["--time", "station"], "--time station is no column that can be used here; write one of started"),
        (["--window", "1 fortnight"], "fortnight"),
    ],
)
def test_answers_that_do_not_fit_leave_no_file(folder: Path, options: list[str], said: str) -> None:
    with pytest.raises(MillraceError) as error:
        init("--sample", "--yes", *options)
    assert said in str(error.value)
    assert list(folder.iterdir()) == []


def test_names_that_spark_would_not_take_are_quoted(folder: Path) -> None:
    (folder / "in.csv").write_text("größe,select,at\n1,a,x\n")
    init("--input", "in.csv", "--yes", "--group-by", "select")
    assert spec()["sources"]["records"]["schema"] == "`größe` BIGINT, `select` STRING, at STRING"
    assert "GROUP BY `select`" in spec()["query"]["sql"]


def test_digits_that_begin_with_zero_are_texts(folder: Path) -> None:
    (folder / "in.csv").write_text("code,n\n01234,0\n98765,10\n")
    init("--input", "in.csv", "--yes")
    assert spec()["sources"]["records"]["schema"] == "code STRING, n BIGINT"


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_the_delimiter_is_that_of_the_header(folder: Path, delimiter: str) -> None:
    (folder / "in.csv").write_text(f'a{delimiter}"b, c, d, e"\n1{delimiter}x\n')
    init("--input", "in.csv", "--yes")
    source = spec()["sources"]["records"]
    assert source["files"] == {"path": "in.csv", "format": "csv", "delimiter": delimiter}
    assert source["schema"] == "a BIGINT, `b, c, d, e` STRING"


@pytest.mark.parametrize(("also", "path"), [("2.csv", "in"), ("notes.txt", "in/*.csv")])
def test_a_folder_is_read_whole_or_by_the_ending_of_its_first_file(folder: Path, also: str, path: str) -> None:
    (folder / "in").mkdir()
    for name in ("1.csv", also):
        (folder / "in" / name).write_text("a\n1\n")
    init("--input", "in", "--yes")
    assert spec()["sources"]["records"]["files"] == {"path": path, "format": "csv"}


def test_a_folder_without_records_is_refused_as_a_folder(folder: Path) -> None:
    (folder / "in").mkdir()
    with pytest.raises(MillraceError, match="in: is a folder without a file of a known format; write --input and"):
        init("--input", "in", "--yes")


@pytest.mark.parametrize(
    ("values", "written"),
    [
        (["31.12.2024 23:59", "01.02.2025 03:04"], '{"at": "dd.MM.yyyy HH:mm"}'),
        (["02/01/2024", "13/01/2024"], '{"at": "dd/MM/yyyy"}'),
        (["a while ago"], "with a PATTERN such as dd.MM.yyyy HH:mm:ss"),
    ],
)
def test_times_in_another_form_are_noted_and_not_suggested_to_group_by(
    folder: Path, values: list[str], written: str
) -> None:
    (folder / "in.csv").write_text("\n".join(["at,n", *(f"{value},1" for value in values), ""]))
    said = init("--input", "in.csv", "--yes")
    assert "note: at is text that may be a time" in said
    assert written in said
    assert written in Path("query.yaml").read_text()
    assert spec()["query"]["sql"] == "SELECT n, count(*) AS records\nFROM records\nGROUP BY n\n"


def test_two_columns_of_one_name_are_refused(folder: Path) -> None:
    (folder / "in.csv").write_text("a,b,A\n1,2,3\n")
    with pytest.raises(MillraceError, match="two columns are called 'a'; rename one in the header"):
        init("--input", "in.csv", "--yes")
    assert not (folder / "query.yaml").exists()


def test_a_folder_that_does_not_exist_is_named_before_anything_is_written(folder: Path) -> None:
    with pytest.raises(MillraceError, match="there is no folder new"):
        init("new/query.yaml", "--sample", "--yes")
    assert list(folder.iterdir()) == []


def test_a_name_that_yaml_takes_for_something_else_is_quoted() -> None:
    init("no.yaml", "--sample", "--yes")
    assert yaml.safe_load(Path("no.yaml").read_text())["metadata"]["name"] == "no"
    assert 'name: "no"' in Path("no.yaml").read_text()


def test_a_query_that_was_written_is_one_that_loads() -> None:
    init("My Trips!.yaml", "--sample", "--yes")
    assert [query.name for query in load_queries(Path("My Trips!.yaml"))] == ["my-trips"]


def test_records_with_another_number_of_fields_are_kept_by_the_query(folder: Path) -> None:
    (folder / "in.csv").write_text('shop,price,at\n"a, b",1,2024-05-01\nc\nd,2,2024-05-01\n')
    said = init("my query.yaml", "--input", "in.csv", "--yes")
    assert (
        "note: 1 of the first records does not fit the header: the query keeps such records in rejected/my-query"
        in said
    )
    source = spec("my query.yaml")["sources"]["records"]
    assert source["schema"] == "shop STRING, price BIGINT, at DATE"
    assert source["corruptRecords"] == {"policy": "DeadLetter", "path": "rejected/my-query"}


def test_a_header_that_fits_few_records_is_refused(folder: Path) -> None:
    (folder / "in.csv").write_text("a;b,c\n1;2;3\n4;5;6\n")
    with pytest.raises(MillraceError, match=r"in\.csv: cannot be read as csv: "):
        init("--input", "in.csv", "--yes")


@pytest.mark.parametrize(
    "options", [("--window", "1 hour"), ("--time", "day", "--window", "1 hour"), ("--time", "day")]
)
def test_a_text_that_is_wanted_as_the_time_is_read_by_its_pattern(folder: Path, options: tuple[str, ...]) -> None:
    (folder / "in.csv").write_text("shop,day\na,20/11/2026 08:00\nb,21/11/2026 09:30\n")
    said = init("--input", "in.csv", "--yes", *options)
    assert "note: day is read as dd/MM/yyyy HH:mm; if that is wrong, correct timeFormats" in said
    source = spec()["sources"]["records"]
    assert (source["schema"], source["timeFormats"]) == ("shop STRING, day TIMESTAMP", {"day": "dd/MM/yyyy HH:mm"})
    assert "window(day, '1 hour')" in spec()["query"]["sql"]
