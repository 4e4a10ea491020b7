"""Connection of the command line to a cluster, by kubeconfig or by a pod's service account."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import yaml
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import ConfigException, incluster_config
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
from urllib3 import Retry

from millrace_api.errors import MillraceError, Problem
from millrace_api.explain_errors import suggest

TIMEOUT = (5.0, 15.0)
"""Timeouts in seconds: to connect, and to receive the answer."""

_DEFAULT = "~/.kube/config"
_IN_CLUSTER = "in-cluster"


@dataclass(frozen=True)
class Cluster:
    """API server of a kubeconfig context or of the current pod, with the namespace to use."""

    client: ApiClient
    server: str
    context: str
    namespace: str


def connect(kubeconfig: Path | None, context: str | None, namespace: str | None) -> Cluster:
    """Return the cluster of a context, by default the current one, without sending a request.

    Without ``kubeconfig``, KUBECONFIG names the files; the default is ``~/.kube/config``. A pod without any of them
    uses its own cluster through its service account.

    Raises:
        MillraceError: there is no kubeconfig, it cannot be read, or it has no such context.
    """
    files = kubeconfig or os.environ.get("KUBECONFIG")
    configuration = Configuration()
    if not files and context is None and _only_a_pod():
        chosen, theirs = _IN_CLUSTER, _load_account(configuration)
    else:
        chosen, theirs = _load(str(files or _DEFAULT), context, configuration)
    # retry only when the server asks for it, so that an unreachable server is reported at once
    configuration.retries = Retry(3, connect=False, read=False, other=0, raise_on_status=False)
    configuration.keep_alive = True  # detects a stream whose peer is silently gone
    client = ApiClient(configuration)
    return Cluster(client, configuration.host, chosen, namespace or theirs or "default")


def own_namespace() -> str | None:
    """Return the namespace of this pod's service account; None outside a pod."""
    file = Path(incluster_config.SERVICE_TOKEN_FILENAME).with_name("namespace")
    return file.read_text(encoding="utf-8").strip() if file.exists() else None


def _only_a_pod() -> bool:
    """Return whether this is a pod without a kubeconfig in the default place."""
    default = Path(os.path.expanduser(_DEFAULT))  # noqa: PTH111 - a user in a container may have no home
    return incluster_config.SERVICE_HOST_ENV_NAME in os.environ and not default.exists()


def _load_account(configuration: Configuration) -> str | None:
    """Load this pod's service account into the configuration; return its namespace."""
    try:
        incluster_config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        return own_namespace()
    except (ConfigException, OSError) as error:
        problem = f"there is no kubeconfig {_DEFAULT}, and this pod's service account cannot be used: {error}"
        raise MillraceError(Problem(problem, "let its token be mounted, or write --kubeconfig FILE")) from None


def _load(files: str, context: str | None, configuration: Configuration) -> tuple[str, str | None]:
    """Load kubeconfig files into the configuration; return the context and its namespace."""
    try:
        found = KubeConfigMerger(files).config  # type: ignore[no-untyped-call]
        if found is None:
            hint = "write --kubeconfig FILE, or set KUBECONFIG"
            raise MillraceError(Problem(f"there is no kubeconfig {Path(files).expanduser()}", hint))
        chosen = _context(files, context, found.value)
        loader = KubeConfigLoader(found, active_context=chosen, config_base_path=None)  # type: ignore[no-untyped-call]
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
        return chosen, loader.current_context["context"].get("namespace")
    except (ConfigException, yaml.YAMLError, OSError, TypeError, AttributeError, LookupError, ValueError) as error:
        # the library's message may quote whole user entries, tokens included, so it is not repeated
        problem = f"{files} is no kubeconfig that can be used: {type(error).__name__}"
        raise MillraceError(Problem(problem, "see what kubectl config view says of it")) from None


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
