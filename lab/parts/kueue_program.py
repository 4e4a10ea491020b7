"""Kueue's controller, as its Go module has it: built for another version of Kubernetes than the lab's, so by itself."""

from __future__ import annotations

import shutil
from pathlib import Path

from .commands import run
from .go_programs import GoPrograms
from .part import Report

_MODULE = Path(__file__).parents[1] / "go_kueue"


class KueuePrograms(GoPrograms):
    """A folder with the controller, its CRDs in ``crds.yaml`` and its webhooks in ``webhooks.yaml``."""

    def fill(self, folder: Path, report: Report) -> None:
        super().fill(folder, report)
        listing = ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue"]
        found = run(listing, folder=_MODULE, environment={"GOFLAGS": "", "GOWORK": "off", "GOPROXY": "off"}, seconds=60)
        components = Path(found.strip(), "config", "components")
        crds = sorted((components / "crd" / "bases").glob("*.yaml"))
        (folder / "crds.yaml").write_text("".join(path.read_text(encoding="utf-8") for path in crds), encoding="utf-8")
        shutil.copyfile(components / "webhook" / "manifests.yaml", folder / "webhooks.yaml")


KUEUE = KueuePrograms("Kueue", "kueue", _MODULE, {"kueue": ("-help",)})
