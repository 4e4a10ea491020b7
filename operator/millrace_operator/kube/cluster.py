"""The cluster that a kubeconfig names, for the command line."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
from urllib3 import Retry

from millrace_api.errors import MillraceError, Problem
from millrace_api.explain_errors import suggest

TIMEOUT = (5.0, 15.0)
"""Seconds to connect, and to answer."""


@dataclass(frozen=True)
class Cluster:
    """An API server as one context of a kubeconfig names it, and the namespace that is meant."""

    client: ApiClient
    server: str
    context: str
    namespace: str


def connect(kubeconfig: Path | None, context: str | None, namespace: str | None) -> Cluster:
    """The cluster of a context, by default the current one; nothing is asked of it yet.

    Without ``kubeconfig``, KUBECONFIG names the files, or else it is ``~/.kube/config``.

    Raises:
        MillraceError: no kubeconfig is there, it cannot be read, or it has no such context.
    """
    files = str(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config")
    try:
        found = KubeConfigMerger(files).config  # type: ignore[no-untyped-call]
        if found is None:
            hint = "write --kubeconfig FILE, or set KUBECONFIG"
            raise MillraceError(Problem(f"there is no kubeconfig {Path(files).expanduser()}", hint))
        chosen = _context(files, context, found.value)
        loader = KubeConfigLoader(found, active_context=chosen, config_base_path=None)  # type: ignore[no-untyped-call]
        configuration = Configuration()
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        theirs = loader.current_context["context"].get("namespace")
    except (ConfigException, yaml.YAMLError, OSError, TypeError, AttributeError, LookupError, ValueError) as error:
        # what the library says may quote whole entries of users, tokens included: it is not repeated
        problem = f"{files} is no kubeconfig that can be used: {type(error).__name__}"
        raise MillraceError(Problem(problem, "see what kubectl config view says of it")) from None
    # again only where the server asks for it: that it is away is told at once
    configuration.retries = Retry(3, connect=False, read=False, other=0, raise_on_status=False)
    configuration.keep_alive = True  # or else a stream whose other end has gone silently is waited for in vain
    client = ApiClient(configuration)
    return Cluster(client, configuration.host, chosen, namespace or theirs or "default")


def _context(files: str, wanted: str | None, document: dict[str, object]) -> str:
    contexts = document["contexts"]
    names = [str(each.value["name"]) for each in contexts] if isinstance(contexts, list) else []
    chosen = wanted or document.get("current-context")
    if not chosen:
        hint = f"write --context {names[0]}" if names else "add one with kubectl config set-context"
        raise MillraceError(Problem(f"{files} has no current context", hint))
    if chosen not in names:
        raise MillraceError(Problem(f'{files} has no context "{chosen}"', suggest(str(chosen), names)))
    return str(chosen)
