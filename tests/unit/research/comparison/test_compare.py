import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from millrace_api.errors import MillraceError
from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.key_hashes import hash_columns
from millrace_jobs.partitioners.placement_cost import moved_keys
from millrace_research.comparison.compare import ComparisonRequest, compare
from millrace_research.comparison.plot import write_plot
from millrace_research.comparison.table import print_tables
from millrace_support.plot_files import check_plotting
from placements import placement_cost

WORKERS = 4


@pytest.fixture
def ask(tmp_path):
    """A request for a stream of 300 records in ten minutes, changed as given."""

    def ask(**changes):
        file = tmp_path / "stream.parquet"
        random = np.random.default_rng(5)
        keys = random.zipf(1.5, 300) % 20
        pq.write_table(pa.table({"at": np.sort(random.integers(0, 600, 300)), "key": keys}), file)
        given = {"time": "at", "window": "2m", "slide": "60s", "algorithms": "hash,shuffle,pkg:choices=3"}
        given |= {"workers": WORKERS, "replicas": 2, "seed": 3}
        return ComparisonRequest(**{"file": file, "keys": ["key"], **given, **changes})

    return ask


def recomputed(report, ids, request):
    """The metrics of every window from the stream and the worker ids alone."""
    table = pq.read_table(request.file)
    at, keys = table["at"].to_numpy(), table["key"].to_numpy()
    before = None
    for end in range(60, 660, 60):
        now = (at >= end - 120) & (at < end)
        moved = None if before is None else moved_keys((ids[before], keys[before]), (ids[now], keys[now]))
        yield end, placement_cost(ids[now], keys[now], WORKERS), moved
        before = now


def test_anyone_can_recompute_the_metrics(ask, tmp_path):
    request = ask(assignments=tmp_path / "new" / "ids")
    report = compare(request)
    assert sorted(path.name for path in request.assignments.iterdir()) == [
        "hash.npy",
        "pkg-choices=3.npy",
        "shuffle.npy",
    ]
    for result in report.results:
        ids = np.load(request.assignments / f"{result.contender.file_stem}.npy")
        assert ids.dtype == np.int32
        assert [(report.end_of(w.number), w.cost, w.moved) for w in result.windows] == list(
            recomputed(report, ids, request)
        )
        keys = pq.read_table(request.file)["key"].to_numpy()
        assert result.total == placement_cost(ids, keys, WORKERS)


def test_the_report_is_written_as_json(ask):
    report = json.loads(json.dumps(compare(ask()).to_json(), allow_nan=False))
    assert (report["unit_of_time"], report["window"], report["slide"]) == ("seconds", 120, 60)
    assert report["input"]["rows"] == 300
    assert report["input"]["late"] == 0
    hashing, shuffle, pkg = report["algorithms"]
    assert pkg["label"] == "pkg:choices=3"
    assert pkg["parameters"] == {"choices": 3, "slides": 2, "probing": 0}
    assert len(pkg["windows"]) == len(pkg["slides"]) == 10
    assert pkg["windows"][0]["moved_keys"] is None
    assert sum(slide["rows"] for slide in pkg["slides"]) == 300
    assert pkg["records_per_second"] > 0
    assert pkg["state_bytes"] == max(slide["state_bytes"] for slide in pkg["slides"])
    means = pkg["mean_of_windows"]
    for name in ("load_imbalance", "mpi", "ksr", "aggregation_cost"):
        values = [window[name] for window in pkg["windows"]]
        assert means[name] == pytest.approx(np.mean(values))
        assert pkg["max_of_windows"][name] == max(values)
    assert means["mpi"] == pytest.approx((means["bsi"] + means["bci"] + means["ksr"]) / 3)
    assert pkg["relative"]["bsi"] == pytest.approx(means["bsi"] / hashing["mean_of_windows"]["bsi"])
    assert pkg["relative"]["bci"] == pytest.approx(means["bci"] / shuffle["mean_of_windows"]["bci"])
    assert hashing["relative"]["bsi"] == shuffle["relative"]["bci"] == shuffle["relative"]["ksr"] == 1.0
    assert hashing["moved_keys"]["moved"] == 0
    for window in pkg["windows"]:
        assert window["aggregation_cost_least"] <= window["aggregation_cost"] <= window["aggregation_cost_most"]


def test_relative_figures_do_not_depend_on_who_else_is_compared(ask):
    alone, among = compare(ask(algorithms="pkg")), compare(ask(algorithms="hash,shuffle,pkg"))
    assert alone.relative(alone.results[0]) == among.relative(among.results[2])


def test_a_figure_without_a_reference_is_null(ask):
    report = compare(ask(workers=1, algorithms="pkg")).to_json()
    assert report["algorithms"][0]["relative"] == {"bsi": None, "bci": None, "ksr": 1.0, "mpi": None}


def test_windows_may_be_counted_in_records(ask):
    report = compare(ask(time=None, window="100", slide="100", algorithms="shuffle"))
    assert [report.end_of(window.number) for window in report.results[0].windows] == [100, 200, 300]
    assert [window.cost.rows for window in report.results[0].windows] == [100, 100, 100]
    assert all(window.cost.load_imbalance <= 1 for window in report.results[0].windows)


def test_every_algorithm_gives_the_same_placement_each_time(ask, tmp_path):
    for folder in ("one", "two"):
        compare(ask(algorithms="all", assignments=tmp_path / folder))
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


@pytest.mark.parametrize("replicas", [1, 2])
def test_keys_that_move_on_a_resize_are_those_of_the_last_window(ask, replicas):
    """Hashing keeps nothing from record to record, so new replicas place the window as those did that ended it."""
    request = ask(algorithms="hash", replicas=replicas, resize=6)
    report = compare(request)
    table = pq.read_table(request.file)
    keys = hash_columns([table["key"]], table.num_rows)[table["at"].to_numpy() >= 480]
    four, six = (
        registry.make("hash", workers=n, replica=0, replicas=1, seed=3, parameters={}).route(keys) for n in (4, 6)
    )
    expected = moved_keys((four, keys), (six, keys))
    assert expected.moved > 0
    assert report.results[0].moved_on_resize == expected


def test_a_resize_changes_nothing_else(ask, tmp_path):
    with_resize, without = (
        compare(ask(algorithms="all", assignments=tmp_path / str(resize), resize=resize)) for resize in (7, None)
    )
    for resized, plain in zip(with_resize.results, without.results, strict=True):
        assert resized.windows == plain.windows
        assert resized.moved_on_resize.keys == resized.windows[-1].cost.distinct_keys
        assert plain.moved_on_resize is None
        file = f"{plain.contender.file_stem}.npy"
        assert (tmp_path / "7" / file).read_bytes() == (tmp_path / "None" / file).read_bytes()


def test_a_resize_is_reported_only_if_it_is_asked_for(ask):
    asked, plain = compare(ask(resize=4)), compare(ask())
    found = asked.to_json()
    assert found["resize"] == 4
    assert found["algorithms"][0]["moved_on_resize"] == {
        "keys": asked.results[0].windows[-1].cost.distinct_keys,
        "moved": 0,
        "share": 0.0,
    }
    assert "resize" not in plain.to_json()
    assert "moved_on_resize" not in plain.to_json()["algorithms"][0]
    assert "moved by resize" in printed(asked)
    assert "moved by resize" not in printed(plain)


def test_the_seed_matters(ask):
    one, other = (compare(ask(algorithms="hash", seed=seed)).results[0].total for seed in (1, 2))
    assert one != other


def printed(report):
    console = Console(file=StringIO(), width=80)
    print_tables(report, console)
    return console.file.getvalue()


def test_the_tables_name_everything(ask):
    text = printed(compare(ask()))
    assert "300 records with" in text
    assert "4 workers, 2 replicas; 10 windows of 120s by 60s" in text
    assert text.count("pkg:choices=3") == 3
    assert "= KSR" in text
    assert "Placement metrics are exact." in text
    assert "older than the slide" not in text
    assert "…" not in text


def test_the_tables_tell_of_late_records_and_of_undefined_figures(ask, tmp_path):
    file = tmp_path / "late.csv"
    file.write_text("at,key\n100,a\n10,a\n,b\n")
    text = printed(compare(ask(file=file, algorithms="hash", workers=1)))
    assert "1 records are older than the slide that was current, 1 have no time; they are counted in" in text
    assert " - " in text


@pytest.mark.parametrize("changes", [{}, {"time": None, "window": "100", "slide": "50"}])
def test_the_picture_is_svg_with_all_labels(ask, tmp_path, changes):
    file = tmp_path / "out.svg"
    check_plotting(file)
    write_plot(compare(ask(**changes)), file)
    picture = ElementTree.fromstring(file.read_text(encoding="utf-8"))
    texts = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {"hash", "shuffle", "pkg:choices=3", "keys moved since the previous window"} <= texts


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workers": 0}, "--workers is 0; write a whole number from 1 to 1000000"),
        ({"replicas": 0}, "--replicas is 0; write a whole number from 1"),
        ({"resize": 0}, "--resize is 0; write a whole number from 1 to 1000000"),
        ({"seed": -1}, "--seed is -1; write a whole number from 0"),
        ({"slide": "7s"}, "--slide 7s does not divide --window 2m"),
        ({"algorithms": "dice"}, "there is no partitioner 'dice'"),
    ],
)
def test_bad_requests_are_refused_before_anything_is_read(ask, changes, said):
    with pytest.raises(MillraceError) as error:
        compare(ask(**changes, file=Path("gone.csv")))
    assert said in str(error.value)


def test_folders_and_pictures_that_cannot_be_written_are_refused(ask, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(
        MillraceError, match=r"assignments cannot be written to .*file/ids: Not a directory; name another"
    ):
        compare(ask(assignments=tmp_path / "file" / "ids"))
    with pytest.raises(MillraceError, match=r"--plot cannot be written to .*file/out.svg: Not a directory"):
        check_plotting(tmp_path / "file" / "out.svg")
    with pytest.raises(
        MillraceError, match=r"--plot out.png is not the name of an SVG file; write a name that ends in"
    ):
        check_plotting(Path("out.png"))


@pytest.mark.data
def test_taxi_rides_in_drop_off_order_have_the_papers_order_of_algorithms(data: Callable[[str], Path], ask, tmp_path):
    """Paper 004's DEBS stream, whose times go backwards: the papers' order of hashing, two choices and shuffle."""
    names = ["medallion", "distance", "at", "x", "y", "to_x", "to_y", "fare", "tip"]
    rides = pa.csv.read_csv(
        data("cppstream_debs_google_tpch/debs_frequent_route_compact_ride_10000.csv"),
        read_options=pa.csv.ReadOptions(column_names=names),
    )
    pq.write_table(rides, tmp_path / "rides.parquet")
    report = compare(
        ask(file=tmp_path / "rides.parquet", keys=["x", "y"], window="10m", slide="10m", algorithms="hash,pkg,shuffle")
    )
    assert (report.input.rows, report.input.distinct_keys) == (10_000, 344)
    assert report.input.late > 0
    hashing, pkg, shuffle = (result.means() for result in report.results)
    assert hashing["load_imbalance"] > pkg["load_imbalance"] > shuffle["load_imbalance"]
    assert hashing["replication_factor"] == 1.0
    assert 1.0 < pkg["replication_factor"] <= 2.0
    assert pkg["replication_factor"] < shuffle["replication_factor"]
