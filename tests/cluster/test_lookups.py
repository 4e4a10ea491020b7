"""Look-ups in a pod: through the API server by a forwarded port, with the right to forward it, and in no other way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cluster import JOBS_USER, Cluster
from lab.images import build
from lab.pods import Pods
from millrace_api.errors import MillraceError, TransientError
from millrace_operator.commands import pod_lookups
from millrace_operator.commands.connection import connect
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


def test_a_driver_that_listens_on_its_loopback_interface(cluster: Cluster, namespace: str, tmp_path: Path) -> None:
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
