"""Look-ups in a pod: by a forwarded port, with the right to forward it; and from other pods, with a token."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster import JOBS_USER, Cluster
from lab.counting_query import Counting
from lab.firewall import enforced_policies
from lab.images import build
from lab.installation import Installation, make_namespace
from lab.parts.millrace_images import JOBS_IMAGE, TAG
from lab.pods import Pods
from lab.waiting import wait_until
from millrace_api.errors import MillraceError, TransientError
from millrace_operator.commands import pod_lookups
from millrace_operator.commands.cluster import connect
from millrace_support.lookups import Lookup, TableAnswer, look_up

pytestmark = pytest.mark.cluster

_IMAGE = "millrace.local/lab:1"
_POD = "trips-driver-0"
_ANSWER = {"query": "trips", "batch": 7, "key": ["cell"], "next": None, "rows": [{"cell": "a", "trips": 3}]}
_SERVER = """
use IO::Socket::INET;
$listening = IO::Socket::INET->new(LocalAddr => "127.0.0.1", LocalPort => 8081, Listen => 5) or die;
while ($client = $listening->accept) {
  $request = <$client>;
  1 while ($line = <$client>) && $line ne "\\r\\n";
  $body = $request =~ m{GET /table\\?key=a HTTP} ? '%s' : "{}";
  print $client "HTTP/1.1 200 OK\\r\\nContent-Length: ", length $body, "\\r\\nConnection: close\\r\\n\\r\\n$body";
  close $client;
}
"""


@pytest.fixture(scope="module", autouse=True)
def _image(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A plain Debian."""
    context = tmp_path_factory.mktemp("image")
    dockerfile = context / "Dockerfile"
    dockerfile.write_text(f"FROM debian:bookworm-slim\nUSER {JOBS_USER}\n")
    cluster.load(build(_IMAGE, dockerfile, context, tmp_path_factory.mktemp("exported")))


def looked_up(kubeconfig: Path, namespace: str, pod: str = _POD) -> TableAnswer:
    with pod_lookups._connected(connect(kubeconfig, None, namespace), namespace, pod) as connection:
        return look_up(connection, Lookup(["a"]), pod)


def test_look_ups_reach_a_driver_that_listens_on_its_loopback_interface(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    pods = Pods(cluster, namespace, _IMAGE)
    script = "cat > /tmp/server.pl <<'END'\n" + _SERVER % json.dumps(_ANSWER) + "END\nexec perl /tmp/server.pl"
    listens = {"exec": {"command": ["grep", "-q", ":1F91 .* 0A ", "/proc/net/tcp"]}, "periodSeconds": 1}  # port 8081
    pods.start(_POD, script, container={"readinessProbe": listens})
    pods.start("silent", "sleep 1000")
    pods.wait(_POD, "condition=Ready")
    kubeconfig = Path(cluster.kubeconfig)

    for _ in range(3):
        answer = looked_up(kubeconfig, namespace)
        assert (answer.batch, answer.rows) == (7, [{"cell": "a", "trips": "3"}])

    address = cluster.get("-n", namespace, f"pod/{_POD}")["status"]["podIP"]
    assert pods.run("client", f"bash -c ': > /dev/tcp/{address}/8081' 2>/dev/null || echo refused") == "refused\n"

    pods.wait("silent", "condition=Ready")
    with pytest.raises(TransientError, match="no look-ups are answered at silent"):
        looked_up(kubeconfig, namespace, "silent")
    with pytest.raises(MillraceError, match='pods "absent" not found'):
        looked_up(kubeconfig, namespace, "absent")
    stranger = cluster.kubeconfig_of("operator", tmp_path / "kubeconfig")  # who has no role here
    with pytest.raises(MillraceError, match='you may not create pods/portforward "trips-driver-0" in namespace'):
        looked_up(stranger, namespace)


ONE, TWO = "the-first-token-31f0", "the-second-token-86ab"
READ = """
import sys, urllib.error, urllib.request
asked = urllib.request.Request(sys.argv[1], headers={"Authorization": f"Bearer {sys.argv[2]}"})
try:
    with urllib.request.urlopen(asked, timeout=5) as answer:
        print(answer.read().decode())
except urllib.error.HTTPError as error:
    print(error.code)
except OSError:
    print('"closed"')
"""


@pytest.fixture
def enforced(installation: Installation, tmp_path: Path) -> Iterator[list[str]]:
    """Names of three namespaces, each with a pod ``client``, while NetworkPolicies hold."""
    names = [f"{role}-{uuid.uuid4().hex[:8]}" for role in ("queries", "readers", "others")]
    with enforced_policies(installation.cluster, tmp_path):
        for name in names:
            make_namespace(installation.cluster, name)
            Pods(installation.cluster, name, f"{JOBS_IMAGE}:{TAG}").start("client", "sleep 3600")
        yield names
        for name in names:
            installation.kubectl("delete", "namespace", name)  # before the firewall ends, so that rules are at rest


@pytest.mark.slow(minutes=4)
@pytest.mark.timeout(1200)
def test_pods_of_the_named_namespaces_read_the_table_with_a_token(
    installation: Installation, enforced: list[str]
) -> None:
    own, readers, others = enforced
    counting = Counting(installation, own)
    query = counting.query
    query.kubectl("create", "secret", "generic", "readers", f"--from-literal=tokens={ONE}")
    reference = {"secretKeyRef": {"name": "readers", "key": "tokens"}}

    def read(token: str, namespace: str = readers) -> Any:
        command = ("exec", "client", "--", "python", "-c", READ, f"http://counts-driver.{own}:8082/table", token)
        return json.loads(installation.kubectl("-n", namespace, *command))

    try:
        counting.start(lookups={"tokens": reference, "namespaces": [readers]})
        wait_until(lambda: read(ONE, others) == read(ONE, own) == "closed", "only the named namespace reaches the port")
        assert [read(token) for token in (TWO, "", ONE[:-1])] == [401] * 3
        driver = query.driver
        assert "readers" in json.dumps(driver["spec"]["volumes"])
        assert "readers" not in json.dumps([each["spec"]["volumes"] for each in query.executors])

        query.kubectl("patch", "secret", "readers", "-p", json.dumps({"stringData": {"tokens": f"{ONE}\n{TWO}\n"}}))
        wait_until(lambda: read(TWO) != 401, "the new token opens the table")
        query.kubectl("patch", "secret", "readers", "-p", json.dumps({"stringData": {"tokens": TWO}}))
        wait_until(lambda: read(ONE) == 401, "the old token does not any more")
        counting.check()
        wait_until(lambda: counts(read(TWO)) == counting.written, "look-ups find every record")
        assert query.driver["metadata"]["uid"] == driver["metadata"]["uid"]
        assert query.runs == 1
        said = query.log + query.kubectl("get", "sq,cm,sts,pods,events,services", "-o", "json")
        assert not [token for token in (ONE, TWO) if token in said]

        query.kubectl("patch", "sq", query.name, "--type=json", "-p", '[{"op": "remove", "path": "/spec/lookups"}]')
        query.wait_until_settled()
        assert read(TWO) == "closed"
        assert "8082" not in query.kubectl("get", "services,networkpolicies", "-o", "json")
    finally:
        counting.stop()


def counts(answer: dict[str, Any]) -> Counter[str]:
    """The records by key in an answer."""
    return Counter({row["name"]: row["records"] for row in answer["rows"]})
