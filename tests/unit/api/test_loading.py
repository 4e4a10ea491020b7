from pathlib import Path

import pytest

from millrace_api.errors import MillraceError
from millrace_api.model.deployment import Algorithm
from millrace_api.model.plan import Plan
from millrace_api.validation.loading import load_plan, load_queries, validate_file

from .documents import MINIMAL, changed, problems

VALID = Path(__file__).parent / "data" / "valid.yaml"


def test_a_valid_file_has_no_problems_and_is_loaded():
    assert validate_file(VALID) == []
    [query] = load_queries(VALID)
    assert query.name == "trips-by-cell"
    assert query.spec.batch_interval.seconds == 2
    assert query.spec.partitioner.algorithm is Algorithm.PKG
    assert query.spec.sources["trips"].kind == "replay"


def test_a_small_file_is_enough(tmp_path):
    path = tmp_path / "query.yaml"
    path.write_text(MINIMAL)
    [query] = load_queries(path)
    assert query.spec.executors.initial == 1
    assert query.spec.parallelism.at_start == 8


NO_CORES = 'is not a number of CPU cores; write a whole number from 1 to 999999, or a quantity such as 500m or, in quotes, "1.5"'

FIELD_MISTAKES = [
    (
        1,
        "apiVersion: v1",
        '1: apiVersion: "v1" is not allowed here; write millrace.io/v1alpha1',
    ),
    (
        3,
        "metadata: {name: Trips_By}",
        '3: metadata.name: "Trips_By" is not a name for a StreamQuery; write at most 63 lower-case letters, digits '
        "and '-', a letter first and no '-' last",
    ),
    (
        3,
        "metadata: {name: a, lables: {}}",
        '3: metadata.lables: there is no field "lables" here; did you mean "labels"?',
    ),
    (
        12,
        "  lookups: {tokens: {env: TOKENS}, namespaces: [web, dash-]}",
        '12: spec.lookups.namespaces[1]: "dash-" is not a namespace; write the name of a namespace, or "*" for '
        "everything that reaches the pod",
    ),
    (
        6,
        "    Trips:",
        "6: spec.sources.Trips: \"Trips\" is not a name for a source; write lower-case letters, digits and '_', "
        "not a digit first: it is the table's name in the SQL",
    ),
    (
        10,
        '    functions: {Near: {python: "geo:near", returns: INT}}\n    sql: SELECT cell FROM trips',
        "10: spec.query.functions.Near: \"Near\" is not a name for a function; write lower-case letters, digits and '_', "
        "not a digit first; the SQL may call it in any case",
    ),
    (
        10,
        '    functions: {near: {python: "geo.near", returns: INT}}\n    sql: SELECT cell FROM trips',
        '10: spec.query.functions.near.python: "geo.near" is not a Python function; write "module:function", such as '
        '"mypackage.geo:distance"',
    ),
    (
        11,
        "  sink: {python: {write: alerts.write}}",
        '11: spec.sink.python.write: "alerts.write" is not a Python function; write "module:function", such as '
        '"mypackage.geo:distance"',
    ),
    (
        7,
        "      python: {read: shop.Orders}",
        '7: spec.sources.trips.python.read: "shop.Orders" is not a Python class; write "module:Class", such as '
        '"mypackage.orders:Orders"',
    ),
    (
        10,
        '    aggregates: {Top: {python: "routes:Top"}}\n    sql: SELECT cell FROM trips',
        "10: spec.query.aggregates.Top: \"Top\" is not a name for a function; write lower-case letters, digits and '_', "
        "not a digit first; the SQL may call it in any case",
    ),
    (
        10,
        '    aggregates: {top: {python: "routes.Top"}}\n    sql: SELECT cell FROM trips',
        '10: spec.query.aggregates.top.python: "routes.Top" is not an aggregator; write "module:Name", such as '
        '"mypackage.routes:TopRoutes"',
    ),
    (
        7,
        "      files: {format: csv}",
        "7: spec.sources.trips.files.path: is required; write path: data/*.csv",
    ),
    (
        7,
        "      files: {path: a, format: cvs}",
        '7: spec.sources.trips.files.format: "cvs" is not one of csv, json, parquet; did you mean "csv"?',
    ),
    (
        7,
        "      files: {path: a, format: 3}",
        "7: spec.sources.trips.files.format: 3 is not one of csv, json, parquet; write one of these",
    ),
    (
        7,
        '      files: {path: a, format: csv, separator: ";"}',
        '7: spec.sources.trips.files.separator: there is no field "separator" here; did you mean "delimiter"?',
    ),
    *(
        (
            11,
            f"  sink: {{console: {{}}}}\n  emit: {mode}",
            f'12: spec.emit: "{mode}" is not one of OnUpdate, OnWindowEnd, OnWindowClose; {hint}',
        )
        for mode, hint in (
            ("Append", "append is OnWindowClose here"),
            ("update", "update is OnUpdate here"),
            ("complete", "write OnUpdate and sink.table, which holds the newest result of each key"),
        )
    ),
    (
        7,
        '      files: {path: a, format: csv, delimiter: "||"}',
        '7: spec.sources.trips.files.delimiter: "||" is not a delimiter; write one character such as "," or "|" or "\\t"',
    ),
    (
        7,
        "      fils: {path: a, format: csv}",
        '7: spec.sources.trips.fils: there is no field "fils" here; did you mean "files"?',
    ),
    (
        7,
        "      files: [a]",
        "7: spec.sources.trips.files: a list is not a mapping; write its fields below it",
    ),
    (8, "      schema: 3", "8: spec.sources.trips.schema: 3 is not text; write it in quotes"),
    (
        11,
        "  sink:",
        "11: spec.sink: is empty; write a value ({} to use all defaults), or leave it out",
    ),
    (
        11,
        "  sink:\n    console:",
        "12: spec.sink.console: is empty; write a value ({} to use all defaults), or leave it out",
    ),
    (
        12,
        "  batchInterval: 30",
        "12: spec.batchInterval: 30 is not a duration longer than zero; "
        "write whole numbers, each with one of d, h, m, s, ms, us, such as 500ms, 30s, 1h30m or 7d",
    ),
    (
        12,
        "  batch_interval: 2s",
        '12: spec.batch_interval: there is no field "batch_interval" here; did you mean "batchInterval"?',
    ),
    (
        12,
        '  executors: {max: "2"}',
        '12: spec.executors.max: "2" is not a whole number; write a number without quotes, such as 4',
    ),
    (
        12,
        "  executors: {max: 0}",
        "12: spec.executors.max: 0 is less than 1; write a number of at least 1",
    ),
    (
        12,
        "  executors: {max: 1.5}",
        "12: spec.executors.max: 1.5 is not a whole number; write a number without quotes, such as 4",
    ),
    (
        12,
        "  executors: {max: yes}",
        "12: spec.executors.max: true is not a whole number; write a number without quotes, such as 4",
    ),
    (12, "  executors: {cores: 0}", f"12: spec.executors.cores: 0 {NO_CORES}"),
    (12, "  executors: {cores: 1.5}", f"12: spec.executors.cores: 1.5 {NO_CORES}"),
    (12, "  executors: {cores: yes}", f"12: spec.executors.cores: true {NO_CORES}"),
    (12, "  executors: {cores: 0m}", f'12: spec.executors.cores: "0m" {NO_CORES}'),
    (12, "  driver: {cores: 2Gi}", f'12: spec.driver.cores: "2Gi" {NO_CORES}'),
    (
        12,
        "  executors: {memory: 2GB}",
        '12: spec.executors.memory: "2GB" is not a size; '
        "write a whole number and one of Ki, Mi, Gi, Ti, such as 512Mi or 2Gi, or "
        "Spark's k, m, g, t for the same",
    ),
    (
        12,
        "  12: 2s",
        "12: spec[12]: the name 12 is not text; write it in quotes",
    ),
    (
        12,
        "  scaling: {target: .nan}",
        "12: spec.scaling.target: nan is not a finite number; write an ordinary number",
    ),
    (
        12,
        "  scaling: {target: 1.5}",
        "12: spec.scaling.target: 1.5 is greater than 1.0; write a number of at most 1.0",
    ),
    (
        12,
        "  partitioner: {parameters: {choices: [2]}}",
        "12: spec.partitioner.parameters.choices: [2] is not a single value; write a number, a text, true or false",
    ),
    (
        12,
        f"  code: [{{uri: s3a://code/my-fares.py, sha256: {'a' * 64}}}]",
        '12: spec.code[0].uri: "s3a://code/my-fares.py" has no name that Python can import; '
        "name the file by letters, digits and _",
    ),
    (
        12,
        f"  code: [{{configMap: {{name: Fares, key: fares.py}}, sha256: {'a' * 64}}}]",
        '12: spec.code[0].configMap.name: "Fares" is not the name of a ConfigMap; '
        "write lower-case letters, digits, - and ., such as fares-1",
    ),
    (
        12,
        f"  code: [{{configMap: {{name: fares, key: my-fares.py}}, sha256: {'a' * 64}}}]",
        '12: spec.code[0].configMap.key: "my-fares.py" is not a key with code; '
        "write the name of a module and .py, such as fares.py, or of a .whl, a .zip or a .jar",
    ),
    (
        12,
        "  checkpoint: {uri: ./out}",
        '12: spec.checkpoint.uri: "./out" is not a URI; '
        "write file:// and an absolute path, such as file:///var/lib/millrace",
    ),
]


@pytest.mark.parametrize(("line", "replacement", "expected"), FIELD_MISTAKES)
def test_a_wrong_field_is_one_sentence_with_its_line(tmp_path, line, replacement, expected):
    assert problems(tmp_path, changed(MINIMAL, line, replacement)) == [expected]


def test_every_problem_of_every_document_is_reported_at_once(tmp_path):
    first = changed(MINIMAL, 12, "  executors: {min: 4, cores: x}\n  emit: OnClose")
    second = changed(MINIMAL, 10, "    sql: SELECT cel FROM trips")
    assert problems(tmp_path, f"{first}---\n{second}") == [
        f'12: spec.executors.cores: "x" {NO_CORES}',
        "12: spec.executors.min: min <= initial <= max does not hold (got min: 4, initial: 1, max: 8); "
        "write values in that order",
        '13: spec.emit: "OnClose" is not one of OnUpdate, OnWindowEnd, OnWindowClose; did you mean "OnWindowClose"?',
        '17: metadata.name: "trips-by-cell" is the name of two queries, the first in line 3; rename one',
        '24: spec.query.sql: there is no column "cel" (line 1, column 8 of the SQL); did you mean "cell"?',
    ]


def test_a_mistake_elsewhere_does_not_hide_one_in_the_sql(tmp_path):
    text = changed(changed(MINIMAL, 10, "    sql: SELECT cel FROM trips"), 11, "  sink: {consol: {}}")
    assert problems(tmp_path, text) == [
        '10: spec.query.sql: there is no column "cel" (line 1, column 8 of the SQL); did you mean "cell"?',
        '11: spec.sink.consol: there is no field "consol" here; did you mean "console"?',
    ]


def test_load_queries_raises_all_problems(tmp_path):
    path = tmp_path / "query.yaml"
    path.write_text(changed(MINIMAL, 12, "  emit: No\n  suspend: Nope"))
    with pytest.raises(MillraceError) as caught:
        load_queries(path)
    assert [problem.field for problem in caught.value.problems] == ["spec.emit", "spec.suspend"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["1: is empty; write at least one document"]),
        ("---\n---\n", ["1: is empty; write at least one document"]),
        (
            "a: [\n",
            [
                "2: is not valid YAML at column 1: while parsing a flow node expected the node content, "
                "but found '<stream end>'; check indentation, colons and quotes there"
            ],
        ),
        (
            changed(MINIMAL, 3, "schema: at TIMESTAMP, who STRUCT<name: STRING>"),
            [
                "3: is not valid YAML at column 38: mapping values are not allowed here; write schema: | and the columns "
                "on the next line, or put them in quotes: YAML reads their colon as its own"
            ],
        ),
        ("- a\n", ["1: is a list, not a mapping of fields; write the path of a YAML file with a StreamQuery"]),
        (
            "at,who\n2024-01-01,a\n",
            ["1: is plain text, not a mapping of fields; write the path of a YAML file with a StreamQuery"],
        ),
        (
            changed(MINIMAL, 3, "metadata:\n  name: a\n  name: b"),
            ['5: metadata.name: "name" is given twice, first in line 4; keep one of them'],
        ),
    ],
)
def test_mistakes_in_yaml_are_reported_with_their_line(tmp_path, text, expected):
    assert problems(tmp_path, text) == expected


BOUNDLESS = (
    "the document is nested too deeply, or an alias refers to a value that contains it; "
    "write at most 64 levels and 100000 values, aliases included"
)


@pytest.mark.parametrize("text", ["spec: &a {sources: *a}\n", "[" * 100 + "]" * 100 + "\n", "{" * 3000])
def test_documents_without_bounds_are_refused(tmp_path, text):
    [problem] = problems(tmp_path, text)
    assert problem.endswith(BOUNDLESS)


def test_an_alias_bomb_does_not_go_off(tmp_path):
    lines = ["a0: &a0 [x, x]", *(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40))]
    [problem] = problems(tmp_path, "\n".join(lines))
    assert problem.endswith(BOUNDLESS)


def test_a_control_character_is_reported_with_its_line(tmp_path):
    [problem] = problems(tmp_path, "a: 1\nb: \x00\n")
    assert problem.startswith("2: is not YAML: unacceptable character #x0000")


def test_merge_keys_are_no_duplicates(tmp_path):
    text = changed(MINIMAL, 11, "  sink: {console: {}}\n  driver: &size {cores: 2}\n  executors: {<<: *size, cores: 3}")
    assert problems(tmp_path, text) == []


def test_files_that_cannot_be_read_are_one_sentence(tmp_path):
    missing, binary = tmp_path / "none.yaml", tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe")
    assert [str(p) for p in validate_file(missing)] == [f"{missing}: there is no such file; check the path"]
    assert [str(p) for p in validate_file(binary)] == [f"{binary}: is not text in UTF-8 (byte 0); save it as UTF-8"]
    assert [str(p) for p in validate_file(tmp_path)] == [
        f"{tmp_path}: cannot be read: Is a directory; write the path of a file"
    ]


@pytest.mark.parametrize("load", [load_queries, load_plan])
def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path, load):
    path = tmp_path / "data.yaml"
    with path.open("w") as stream:
        stream.truncate((1 << 20) + 1)  # zeros, which would be another problem if they were read
    with pytest.raises(MillraceError) as refused:
        load(path)
    assert str(refused.value) == (
        f"{path}: is too large: 1,048,577 bytes, and at most 1,048,576 are read; "
        "write the path of a smaller file, or split it into several"
    )


def test_a_plan_is_loaded_from_a_file(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("algorithm: pkg\nparameters: {choices: 2}\nreplicas: 2\nparallelism: 3\n")
    assert load_plan(path) == Plan(algorithm=Algorithm.PKG, parameters={"choices": 2}, replicas=2, parallelism=3)


def test_every_problem_of_a_plan_file_is_reported(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("algorithm: auto\nreplicas: 2\nparallelism: 3\n---\nalgorithm: hash\n")
    with pytest.raises(MillraceError) as caught:
        load_plan(path)
    assert [str(p).removeprefix(f"{path}:") for p in caught.value.problems] == [
        "1: algorithm: a plan names one algorithm (got algorithm: auto); "
        "write the algorithm itself, such as hash, instead of auto",
        "5: a plan file has one document; remove the others",
    ]


def test_the_first_plan_of_a_query_follows_its_spec():
    [query] = load_queries(VALID)
    plan = Plan.initial(query.spec)
    assert plan == Plan(
        epoch=1, algorithm=Algorithm.PKG, parameters={"choices": 2}, replicas=2, parallelism=8, executors=2
    )
    assert Plan.from_json(plan.to_json()) == plan


def test_auto_starts_as_the_caller_says(tmp_path):
    path = tmp_path / "query.yaml"
    path.write_text(MINIMAL)
    [query] = load_queries(path)
    assert Plan.initial(query.spec).algorithm is Algorithm.NATIVE
    assert Plan.initial(query.spec, auto=Algorithm.HASH).algorithm is Algorithm.HASH
