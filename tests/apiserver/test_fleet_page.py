"""The operator's page of its fleet on a real API server: who gets in, and who sees what."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from lab.processes import Process
from millrace_operator.leadership.shard import Shard
from unit.fleet_page.fleets import ask, bearer, log_in

from .conftest import new_namespace
from .deployed import apply_queries
from .granted_rights import RULES
from .observed import status_of, wait_until
from .operators import start_operator

pytestmark = [pytest.mark.apiserver, pytest.mark.timeout(600)]

PAGE_RULES = yaml.safe_load((Path(__file__).parents[2] / "charts/millrace/files/page-rules.yaml").read_text())["rules"]
RBAC = "rbac.authorization.k8s.io"
LIST = [{"apiGroups": ["millrace.io"], "resources": ["streamqueries"], "verbs": ["get", "list", "watch"]}]


@dataclass
class Served:
    """A page that an operator of shard 1/2 serves, with tokens of accounts by their names."""

    operator: Process
    port: int
    mine: str
    yours: str
    names: list[str]
    tokens: dict[str, str] = field(default_factory=dict)

    def queries(self, account: str) -> set[str]:
        """The queries that an account sees, as their pages are linked."""
        status, _, text = ask(self, "/", **bearer(self.tokens[account]))
        assert status == 200, text
        return set(re.findall(r'href="queries/([^"]+)"', text))


def allow(plane, account, name, rules, namespace=None):
    """Let a service account do what rules say, in a namespace or everywhere."""
    kind = "Role" if namespace else "ClusterRole"
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    home, _, subject = account.partition("/")
    role = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": subject, "namespace": home}],
    }
    done = plane.kubectl("apply", "-f", "-", document=[role, binding])
    assert done.returncode == 0, done.stderr


def account(plane, namespace, name, *options):
    """Make a service account, if there is none, and return a token of it."""
    plane.kubectl("-n", namespace, "create", "serviceaccount", name)
    done = plane.kubectl("-n", namespace, "create", "token", name, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def page(plane, tmp_path_factory):
    """The page of two namespaces, each with queries of both shards; the operator has its own rights alone."""
    folder, mine, yours = tmp_path_factory.mktemp("fleet-page"), new_namespace(plane), new_namespace(plane)
    candidates = [f"query-{number}" for number in range(64)]
    names = [next(each for each in candidates if Shard(number, 2).owns(mine, each)) for number in (1, 2)]
    for namespace in (mine, yours):

        def kubectl(*arguments, namespace=namespace, document=None):
            done = plane.kubectl("-n", namespace, *arguments, document=document)
            assert done.returncode == 0, done.stderr
            return done.stdout

        apply_queries(kubectl, names)
    tokens = {
        "mine": account(plane, mine, "reader"),
        "yours": account(plane, yours, "reader"),
        "both": account(plane, mine, "administrator"),
        "neither": account(plane, mine, "stranger"),
        "one": account(plane, mine, "guest"),
    }
    allow(plane, f"{mine}/reader", "reader", LIST, mine)
    allow(plane, f"{yours}/reader", "reader", LIST, yours)
    allow(plane, f"{mine}/administrator", f"page-administrator-{mine}", LIST)
    named = {
        "apiGroups": ["millrace.io"],
        "resources": ["streamqueries"],
        "resourceNames": [names[0]],
        "verbs": ["get"],
    }
    allow(plane, f"{mine}/guest", "guest", [named], mine)
    kubeconfig = plane.write_kubeconfig(folder / "kubeconfig", account(plane, mine, "millrace"))
    allow(plane, f"{mine}/millrace", f"page-operator-{mine}", RULES + PAGE_RULES)
    can = ("auth", "can-i", "create", "tokenreviews", f"--as=system:serviceaccount:{mine}:millrace")
    wait_until(lambda: plane.kubectl(*can).returncode == 0)
    options = ("--page-port", "0", "--shard", "1/2")
    operator = start_operator(plane, folder / "operator.log", *options, kubeconfig=kubeconfig)
    try:
        wait_until(lambda: re.search(r"the page of the fleet is on port \d+", operator.said))
        port = int(re.search(r"the page of the fleet is on port (\d+)", operator.said)[1])
        served = Served(operator, port, mine, yours, names, tokens)
        wanted = {f"{namespace}/{name}" for namespace in (mine, yours) for name in names}
        wait_until(lambda: served.queries("both") >= wanted)
        yield served
        assert not any(token in operator.said for token in tokens.values())  # nor is one in the log
    finally:
        operator.kill()
        for namespace in (mine, yours):
            plane.kubectl("delete", "namespace", namespace, "--wait=false")


def test_each_account_sees_the_queries_that_it_may_list_those_of_other_shards_too(page):
    of = {each: {f"{each}/{name}" for name in page.names} for each in (page.mine, page.yours)}
    assert page.queries("mine") == of[page.mine]
    assert page.queries("yours") == of[page.yours]
    assert page.queries("both") >= of[page.mine] | of[page.yours]
    assert page.queries("neither") == set()
    assert page.yours not in ask(page, "/", **bearer(page.tokens["mine"]))[2]


def test_a_query_of_another_tenant_is_as_if_it_did_not_exist(page):
    def answer(path, account):
        return ask(page, path, **bearer(page.tokens[account]))[::2]

    there, missing = f"/queries/{page.yours}/{page.names[0]}", f"/queries/{page.yours}/none"
    assert answer(there, "yours")[0] == 200
    assert answer(there, "mine") == answer(missing, "mine")
    assert answer(there, "mine")[0] == 404
    assert answer(f"{there}/live", "mine")[0] == 404


def test_who_may_get_one_query_sees_its_page_alone(page):
    assert page.queries("one") == set()
    assert ask(page, f"/queries/{page.mine}/{page.names[0]}", **bearer(page.tokens["one"]))[0] == 200
    assert ask(page, f"/queries/{page.mine}/{page.names[1]}", **bearer(page.tokens["one"]))[0] == 404


def test_a_session_is_that_of_its_token(page):
    cookie = log_in(page, page.tokens["mine"])
    status, _, text = ask(page, "/", Cookie=cookie)
    assert status == 200
    assert f"system:serviceaccount:{page.mine}:reader" in text
    assert ask(page, "/logout", "POST", {}, Cookie=cookie)[0] == 303
    assert ask(page, "/", Cookie=cookie)[0] == 401


def test_tokens_that_the_api_server_does_not_accept_show_nothing(plane, page):
    elsewhere = account(plane, page.mine, "reader", "--audience=https://elsewhere.example")
    revoked = account(plane, page.mine, "gone")
    plane.kubectl("-n", page.mine, "delete", "serviceaccount", "gone")
    for token in ("no-token", f"{page.tokens['both']}x", elsewhere, revoked):
        status, headers, text = ask(page, "/login", "POST", {"token": token})
        assert (status, headers["Set-Cookie"]) == (401, None)
        assert "does not accept this token" in text
        assert ask(page, "/", **bearer(token))[0] == 401


def test_the_page_of_a_driver_takes_the_readers_own_right(plane, page):
    """There is no kubelet here, so that the API server has nothing to connect to."""
    name = page.names[0]  # of the operator's own shard, so that it has a driver

    def kubectl(*arguments):
        return plane.kubectl("-n", page.mine, *arguments).stdout

    wait_until(lambda: "driver" in status_of(kubectl, name))

    def shown(account):
        path = f"/queries/{page.mine}/{name}/driver"
        return ask(page, path, Sec_Fetch_Dest="iframe", **bearer(page.tokens[account]))

    wait_until(lambda: "pods/proxy" in shown("mine")[2])
    status, _, text = shown("mine")
    assert (status, f"you may not get pods/proxy in namespace {page.mine}" in text) == (502, True)
    proxy = [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}]
    allow(plane, f"{page.mine}/administrator", "proxy", proxy, page.mine)
    wait_until(lambda: "does not answer with a page" in shown("both")[2])
