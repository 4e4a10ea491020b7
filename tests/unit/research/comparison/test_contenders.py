import pytest

from millrace_api.errors import MillraceError
from millrace_jobs.partitioners import registry
from millrace_jobs.partitioners.parameters import Number, OneOf, WholeNumber
from millrace_research.comparison.contenders import ComparisonSetting, parse_contender, parse_contenders

NAMES = "write all, or some of: " + ", ".join(name for name in registry.ALGORITHMS if name != "native")


def test_labels_are_names_and_parameters():
    plain, five = parse_contenders("pkg, pkg:choices=5", 1)
    assert (plain.label, plain.algorithm, plain.parameters["choices"]) == ("pkg", "pkg", 2)
    assert (five.label, five.algorithm, five.parameters["choices"]) == ("pkg:choices=5", "pkg", 5)
    assert (plain.file_stem, five.file_stem) == ("pkg", "pkg-choices=5")


def test_all_is_every_algorithm_that_routes():
    labels = [contender.label for contender in parse_contenders("all, pkg:choices=5", 1)]
    assert labels == [name for name in registry.ALGORITHMS if name != "native"] + ["pkg:choices=5"]


def test_each_replica_is_made_in_its_place():
    replicas = parse_contender("shuffle", 1).replicas(ComparisonSetting(workers=8, replicas=4, seed=0, slides=1))
    assert [replica.workers for replica in replicas] == [8] * 4
    assert len(replicas) == 4


@pytest.mark.parametrize("name", [name for name in registry.ALGORITHMS if "slides" in registry.parameters_of(name)])
def test_slides_per_window_are_set_unless_they_are_given(name):
    assert parse_contender(name, 6).parameters["slides"] == 6
    assert parse_contender(f"{name}:slides=2", 6).parameters["slides"] == 2


def test_values_are_read_as_what_the_parameter_takes(monkeypatch):
    kinds = {
        "many": WholeNumber(1, 1),
        "share": Number(0.5, 0, 1),
        "word": OneOf(("a", "b")),
        "slides": WholeNumber(1, 1),
    }
    monkeypatch.setattr(registry, "parameters_of", lambda _: kinds)
    monkeypatch.setattr(registry, "resolve_parameters", lambda _, given: dict(given))
    parsed = parse_contender("pkg:many=3:share=0.25:word=b", 4)
    assert parsed.parameters == {"many": 3, "share": 0.25, "word": "b", "slides": 4}
    assert parsed.file_stem == "pkg-many=3-share=0.25-word=b"
    assert parse_contender("pkg:many=x", 1).parameters["many"] == "x"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pgk", "--algorithm pgk: there is no partitioner 'pgk'; did you mean \"pkg\"?"),
        ("native", f"--algorithm native: native routes nothing; {NAMES}"),
        ("auto", f"--algorithm auto: auto is not one algorithm but chooses among them; {NAMES}"),
        ("all:slides=2", f"--algorithm all:slides=2: all takes no parameters; {NAMES}"),
        ("all,pkg", "--algorithm names pkg twice; name it once"),
        (" ", f"--algorithm names nothing; {NAMES}"),
        (":", f"--algorithm :: there is no partitioner ''; {NAMES}"),
        ("hash,", "--algorithm hash,: there is an empty name; remove the comma"),
        ("hash,,pkg", "--algorithm hash,,pkg: there is an empty name; remove the comma"),
        ("pkg choices=3", "--algorithm pkg choices=3: there is a space in it; write pkg:choices=3"),
        ("pkg : choices = 3", "there is a space in it; write pkg:choices=3"),
        ("hash pkg choices=3", "there is a space in it; write hash,pkg:choices=3"),
        ("dice choices=3", "there is no partitioner 'dice choices=3'; did you mean \"dchoices\"?"),
        ("best", f"there is no partitioner 'best'; {NAMES}"),
        ("pkg:choices", "--algorithm pkg:choices: 'choices' is not a parameter; write name=value after each ':'"),
        ("pkg:choises=3", "partitioner pkg has no parameter 'choises'; write one of: choices, slides"),
        ("pkg:choices=0", "parameter 'choices' of partitioner pkg is 0; write a whole number of at least 1"),
        ("pkg:choices=many", "parameter 'choices' of partitioner pkg is 'many'; write a whole number"),
        ("pkg,hash,pkg", "--algorithm names pkg twice; name it once"),
        ("pkg:probing=3", "--algorithm pkg:probing=3: probing is for replicas in processes of their own; leave it out"),
    ],
)
def test_bad_labels_are_refused_with_the_names(text, said):
    with pytest.raises(MillraceError) as error:
        parse_contenders(text, 1)
    assert said in str(error.value)
