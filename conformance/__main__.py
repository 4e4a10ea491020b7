"""Run the conformance suite.

    python -m conformance [--engines millrace,flink,...] [--queries NAME,...]
    python -m conformance --random 20 --seed 1 [--engines ...] [--queries ...]
    python -m conformance --expected
    python -m conformance --page

The first form runs all cases and writes docs/conformance.md. The second runs random cases and shrinks those that
differ. The third has the interpreter write the right results again; the last writes the page from the results so far.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence

from .cases import ENGINES, EXPECTED, Case, Query, all_queries, by_id, document_of, expected, text_of
from .engines.common import Runner
from .page import PAGE, page
from .random_cases import random_case, smallest
from .reference import right_outcome
from .results import Verdict, load, save, verdict


def _millrace() -> Runner:
    from .engines.millrace import MillraceRunner

    return MillraceRunner()


def _kafka_streams() -> Runner:
    from .engines.kafka_streams import KafkaStreamsRunner

    return KafkaStreamsRunner()


def _flink() -> Runner:
    from .engines.flink import FlinkRunner

    return FlinkRunner()


def _spark() -> Runner:
    from .engines.spark import SparkRunner

    return SparkRunner()


_RUNNERS: Mapping[str, Callable[[], Runner]] = {
    "millrace": _millrace,
    "kafkaStreams": _kafka_streams,
    "flink": _flink,
    "spark": _spark,
}
"""Runners by engine. Each imports its engine only when it runs."""


_SAVED_EVERY = 10
"""Number of cases after which results are saved, so that a run that is ended keeps most of them."""


def expected_text(query: Query) -> str:
    """Return the file of a query's right results."""
    found = {case.id.partition("/")[2]: document_of(right_outcome(query, case)) for case in query.cases}
    return text_of(found)


def main() -> None:
    """Run the suite from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", default=",".join(ENGINES))
    parser.add_argument("--queries", default="", help="names of queries, separated by commas; all without it")
    parser.add_argument("--missing", action="store_true", help="run the cases that have no result, or have changed")
    parser.add_argument("--random", type=int, help="number of random cases for each query")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--expected", action="store_true", help="write the right results, and run nothing")
    parser.add_argument("--page", action="store_true", help="write the page, and run nothing")
    options = parser.parse_args()
    queries = all_queries([name for name in options.queries.split(",") if name])
    engines = options.engines.split(",")
    unknown = set(engines) - set(ENGINES)
    if unknown or not queries:
        parser.error(
            f"no such engine or query: {', '.join(unknown) or options.queries}: choose from {', '.join(ENGINES)}"
        )
    if options.expected:
        for query in queries:
            (EXPECTED / f"{query.name}.yaml").write_text(expected_text(query), encoding="utf-8")
    elif options.random:
        sys.exit(_run_random(queries, engines, range(options.seed, options.seed + options.random)))
    else:
        for engine in [] if options.page else engines:
            _run_engine(engine, queries, only_missing=options.missing)
        PAGE.write_text(page(all_queries()), encoding="utf-8")


def _run_engine(engine: str, queries: Sequence[Query], *, only_missing: bool) -> None:
    runner = _RUNNERS[engine]()
    known = load(engine, all_queries()) if only_missing else {}
    work = [(query, case) for query, case in by_id(queries) if not query.inexpressible(engine) and case.id not in known]
    right = {name: each for query in queries for name, each in expected(query).items()}
    found: dict[str, Verdict] = {}
    try:
        for name, outcome in runner.outcomes(work):
            found[name] = verdict(right[name], outcome)
            if not found[name].is_right:
                print(f"  {name}: {'versions' if found[name].rows else 'rows'} differ", flush=True)
            if len(found) % _SAVED_EVERY == 0:
                save(engine, all_queries(), found)
    finally:  # a run that is interrupted keeps what it has
        save(engine, all_queries(), found)
    print(f"{runner.version}: {sum(each.is_right for each in found.values())} of {len(found)} cases are right")


def _run_random(queries: Sequence[Query], engines: Sequence[str], seeds: range) -> int:
    """Run random cases, print those that differ as the files have them, and return the exit status."""
    differing = 0
    for engine in engines:
        runner = _RUNNERS[engine]()
        asked = [query for query in queries if not query.inexpressible(engine)]
        work = [(query, random_case(query, seed)) for query in asked for seed in seeds]
        outcomes = dict(runner.outcomes(work))
        wrong = [each for each in work if not verdict(right_outcome(*each), outcomes[each[1].id]).is_right]
        print(f"{runner.version}: {len(work) - len(wrong)} of {len(work)} random cases are right")
        shown: set[str] = set()
        for query, case in wrong:
            if query.name not in shown:  # one of each query, since shrinking starts the engine often
                shown.add(query.name)
                _show(runner, query, smallest(runner, query, case))
        differing += len(wrong)
    return min(differing, 1)


def _show(runner: Runner, query: Query, case: Case) -> None:
    found = dict(runner.outcomes([(query, case)]))[case.id]
    arrivals = [[each.written() for each in arrivals] for arrivals in case.rounds]
    document = {
        "case": [{"name": case.id.partition("/")[2], "words": case.words, "rounds": arrivals}],
        "right": document_of(right_outcome(query, case)),
        "found": {"error": found.error} if found.error else document_of(found) if found.changelog else list(found.rows),
    }
    print(f"{query.name}:")
    print(text_of(document))


if __name__ == "__main__":
    main()
