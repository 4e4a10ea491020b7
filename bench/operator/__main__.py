"""The operator with a thousand queries, on its own control plane with simulated nodes and pods.

    python -m bench.operator [--queries 1000] [--rate 20] [--kib 0] [--json FILE]

Everything but the nodes is real: etcd, API server, controller manager, scheduler and operator run on this machine.
Times therefore depend on the machine; counts of requests do not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kubernetes import config
from rich.console import Console

from bench.operator.fleet import QueryFleet, Sightings
from bench.operator.measure import OperatorBench
from bench.operator.report import show
from lab.control_plane import running_control_plane
from lab.kwok import running_kwok

ROOT = Path(__file__).parents[2]
CRDS = [ROOT / "crds" / f"{kind}.millrace.io.yaml" for kind in ("streamqueries", "connections")]


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--rate", type=float, default=20.0, help="queries that are applied a second, at most")
    parser.add_argument("--kib", type=int, default=0, help="KiB by which each query is larger, at most 120")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "operator.json", help="file for all figures")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="millrace-bench-") as name,
        running_control_plane(Path(name)) as plane,
        running_kwok(plane),
    ):
        for file in CRDS:
            plane.kubectl("apply", "--server-side", "-f", file).check_returncode()
            plane.wait_for_crd(file.stem)

        def client() -> Any:
            return config.new_client_from_config(str(plane.kubeconfig))  # type: ignore[no-untyped-call]

        seen = Sightings()
        seen.watch(client)
        figures = OperatorBench(
            plane, QueryFleet(client(), options.queries, options.rate, options.kib), seen, Path(name), _print_line
        ).run()
    show(figures, Console(width=120))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(asdict(figures), indent=1))


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
