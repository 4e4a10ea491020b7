"""The pod that compares two versions of a query: that of a driver, which serves nothing and may do nothing."""

import pytest
import yaml

from millrace_api.model.confinement import CONFINEMENT_FILE, Confinement
from millrace_api.validation.loading import read_query
from millrace_operator.resources.names import Owner
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.resources.shadow import shadow_objects
from millrace_operator.resources.spec_changes import REVISION, revision

from .cases import SECURED, SMALLEST

OWNER = Owner("default", "trips-by-cell", "uid-of-the-query")
SHADOW = "  upgrade: {mode: Shadow, duration: 5m}\n"
TEMPLATE = """\
  driver:
    memory: 2g
    podTemplate:
      metadata: {labels: {team: cabs}}
      spec:
        serviceAccountName: someone
        containers: [{name: log-shipper, image: example.org/logs}, {name: driver, env: [{name: STAGE, value: test}]}]
        affinity:
          podAffinity:
            requiredDuringSchedulingIgnoredDuringExecution:
            - {topologyKey: zone, labelSelector: {matchLabels: {app: kafka}}}
"""


def read(text):
    return read_query(yaml.safe_load(text))


def made(new, old=SMALLEST, confinement=None):
    """The ConfigMap and the pod of a comparison."""
    queries = [read(text) for text in (old, new)]
    pod = OWNER.shadow("0" * 10, 1)
    return shadow_objects(*queries, OWNER, PodDefaults("example.org/jobs"), pod, confinement)


def container(pod, name="driver"):
    return next(each for each in pod["spec"]["containers"] if each["name"] == name)


def test_it_runs_the_comparison_once_and_serves_nothing():
    config_map, pod = made(SMALLEST + SHADOW)
    main = container(pod)
    assert main["args"][:4] == ["millrace", "shadow", "/etc/millrace/query/old.yaml", "/etc/millrace/query/new.yaml"]
    assert main["args"][4:] == ["--report", main["terminationMessagePath"]]
    assert not any("Probe" in part for part in main)
    assert "ports" not in main
    assert "prometheus.io/scrape" not in pod["metadata"]["annotations"]
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["activeDeadlineSeconds"] == 300 * (1 + 2 + 3) + 1800
    assert pod["metadata"]["labels"]["millrace.io/role"] == "shadow"
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "query"]
    assert volume["configMap"]["name"] == config_map["metadata"]["name"]
    assert config_map["immutable"]


def test_it_has_no_right_in_the_cluster():
    _, pod = made(SMALLEST + SHADOW)
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in pod["spec"]


def test_it_is_confined_as_a_driver_is():
    confined = Confinement(folders=("/data",), logins=(), functions=())
    config_map, _ = made(SMALLEST + SHADOW, confinement=confined)
    assert Confinement.from_json(config_map["data"][CONFINEMENT_FILE]) == confined
    assert CONFINEMENT_FILE not in made(SMALLEST + SHADOW)[0]["data"]


def test_each_version_names_its_image():
    config_map, pod = made(SMALLEST + SHADOW + "  image: example.org/jobs:2\n")
    images = [yaml.safe_load(config_map["data"][file])["spec"]["image"] for file in ("old.yaml", "new.yaml")]
    assert images == ["example.org/jobs", "example.org/jobs:2"]
    assert container(pod)["image"] == "example.org/jobs:2"


def test_it_has_the_identity_in_a_cloud_that_the_query_has():
    _, pod = made(SMALLEST + SHADOW + "  serviceAccountName: trips\n")
    assert pod["spec"]["serviceAccountName"] == "trips"
    assert pod["spec"]["automountServiceAccountToken"] is False


def test_it_is_as_restricted_as_a_driver():
    _, pod = made(SMALLEST + SHADOW + TEMPLATE)
    assert pod["spec"]["securityContext"]["runAsNonRoot"]
    for each in pod["spec"]["containers"]:
        assert each["securityContext"]["allowPrivilegeEscalation"] is False
        assert each["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container(pod)["securityContext"]["readOnlyRootFilesystem"]


def test_it_has_what_the_user_gives_a_driver():
    _, pod = made(SMALLEST + SHADOW + TEMPLATE)
    assert pod["metadata"]["labels"]["team"] == "cabs"
    assert {"name": "STAGE", "value": "test"} in container(pod)["env"]
    assert container(pod, "log-shipper")["image"] == "example.org/logs"
    required = pod["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert [each["topologyKey"] for each in required] == ["zone", "kubernetes.io/hostname"]


def test_it_shares_the_drivers_node_only_for_a_volume():
    _, on_claim = made(SMALLEST + SHADOW)
    (near,) = on_claim["spec"]["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert near["labelSelector"]["matchLabels"]["millrace.io/role"] == "driver"
    _, in_a_store = made(SMALLEST.replace("claimName: checkpoints", "uri: s3a://lake/trips") + SHADOW)
    assert "affinity" not in in_a_store["spec"]


def test_both_versions_find_their_secrets():
    other = SECURED.replace("kafka-login", "later-login")
    config_map, pod = made(other + SHADOW, old=SECURED)
    names = {each["secret"]["secretName"] for each in pod["spec"]["volumes"] if "secret" in each}
    assert names == {"kafka-ca", "kafka-login", "later-login"}
    for file, login in (("old.yaml", "kafka-login"), ("new.yaml", "later-login")):
        sasl = yaml.safe_load(config_map["data"][file])["spec"]["sources"]["trips"]["kafka"]["sasl"]
        assert sasl["password"] == {"file": f"/etc/millrace/secrets/{login}/password"}


def test_both_versions_find_their_code():
    code = "  code: [{configMap: {name: %s, key: fares.py}, sha256: '" + "0" * 64 + "'}]\n"
    _, pod = made(SMALLEST + SHADOW + code % "fares-2", old=SMALLEST + code % "fares-1")
    paths = {each["mountPath"] for each in container(pod)["volumeMounts"]}
    assert {f"/etc/millrace/code/{name}" for name in ("fares-1", "fares-2")} <= paths
    assert pod["metadata"]["annotations"][REVISION] == revision(read(SMALLEST + SHADOW + code % "fares-2").spec)


@pytest.mark.parametrize("more", ["  executors: {memory: 4g}\n", "  driver: {memory: 4g}\n"])
def test_it_has_the_memory_of_a_driver_and_an_executor(more):
    _, pod = made(SMALLEST + SHADOW)
    _, larger = made(SMALLEST + SHADOW + more)
    sizes = [int(container(each)["resources"]["limits"]["memory"].removesuffix("Mi")) for each in (pod, larger)]
    assert sizes[1] - sizes[0] >= 2048
    assert container(pod)["resources"]["requests"]["memory"] == container(pod)["resources"]["limits"]["memory"]
