"""What a query may not ask for: each is refused by name, and what is usual is not."""

import pytest
import yaml

from millrace_api.model.streamquery import DRIVER, EXECUTOR, PARTITIONER, StreamQuery
from millrace_operator.resources.driver_config import mounted_query, spark_defaults
from millrace_operator.resources.names import Owner
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.resources.pods import driver_pod, executor_pod, partitioner_pod
from millrace_operator.resources.restrictions import problems

from .cases import CASES, SMALLEST, query_of
from .templated import ROLES, container, templated


def with_setting(name, value):
    document = yaml.safe_load(SMALLEST)
    document["spec"]["sparkConf"] = {name: value}
    return StreamQuery.model_validate(document, by_name=False)


def with_template(spec, role="driver"):
    return templated({"spec": spec}, role)


@pytest.mark.parametrize("case", CASES)
def test_what_the_cases_ask_for_is_allowed(case):
    document = yaml.safe_load(CASES[case])
    assert problems(StreamQuery.model_validate(document, by_name=False)) == []


@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        (None, "spec.checkpoint: a query on a cluster needs a checkpoint; write checkpoint: {claimName: NAME}"),
        (
            {"uri": "gs://bucket/state"},
            'spec.checkpoint.uri: a checkpoint at "gs://bucket/state" is not supported on a cluster',
        ),
    ],
)
def test_the_checkpoint_is_where_all_pods_of_a_query_are(checkpoint, said):
    document = yaml.safe_load(SMALLEST)
    document["spec"]["checkpoint"] = checkpoint
    (problem,) = problems(StreamQuery.model_validate(document, by_name=False))
    assert str(problem).startswith(said)


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("spark.master", "leave it out"),
        ("spark.kubernetes.namespace", "leave it out"),
        ("spark.kubernetes.authenticate.driver.serviceAccountName", "leave it out"),
        ("spark.kubernetes.executor.volumes.hostPath.x.mount.path", "leave it out"),
        ("spark.kubernetes.driver.podTemplateFile", "leave it out"),
        ("spark.driver.host", "leave it out"),
        ("spark.driver.memory", "write spec.driver.memory"),
        ("spark.driver.memoryOverhead", "write spec.driver.memory"),
        ("spark.executor.instances", "write spec.executors.initial"),
        ("spark.executor.cores", "write spec.executors.cores"),
        ("spark.dynamicAllocation.enabled", "leave it out"),
        ("spark.decommission.enabled", "leave it out"),
        ("spark.submit.deployMode", "leave it out"),
        ("spark.plugins", "leave it out"),
        ("spark.authenticate", "leave it out"),
        ("spark.authenticate.enableSaslEncryption", "leave it out"),
        ("spark.network.crypto.enabled", "leave it out"),
        ("spark.network.crypto.saslFallback", "leave it out"),
        ("spark.io.encryption.enabled", "leave it out"),
        ("spark.ssl.rpc.enabled", "leave it out"),
        ("spark.memory.offHeap.enabled", "write spec.executors.memory"),
        ("spark.memory.offHeap.size", "write spec.executors.memory"),
        ("Spark.Memory.OffHeap.Size", "write spec.executors.memory"),
        ("spark.unsafe.offHeap", "write spec.executors.memory"),
        ("spark.yarn.executor.memoryOverhead", "write spec.executors.memory"),
        ("spark.yarn.driver.memoryOverhead", "write spec.driver.memory"),
        ("spark.executor.pyspark.memory", "write spec.executors.memory"),
        ("spark.executor.minMemoryOverhead", "write spec.executors.memory"),
        ("spark.plugins.defaultList", "leave it out"),
        ("SPARK.PLUGINS", "leave it out"),
        ("spark.app.id", "leave it out"),
    ],
)
def test_settings_of_the_operator_are_refused(setting, hint):
    document = yaml.safe_load(SMALLEST)
    document["spec"]["sparkConf"] = {setting: "x", "spark.sql.adaptive.enabled": "false"}
    (problem,) = problems(StreamQuery.model_validate(document, by_name=False))
    assert str(problem) == f'spec.sparkConf[{setting}]: "{setting}" is set by Millrace itself; {hint}'


@pytest.mark.parametrize(
    "setting",
    [
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net",
        "spark.hadoop.fs.s3a.bucket.lake.secret.key",
        "spark.hadoop.fs.s3a.bucket.lake.access.key",
        "spark.hadoop.FS.S3A.SECRET.KEY",
        "spark.executorEnv.AWS_SECRET_ACCESS_KEY",
        "spark.executorEnv.AWS_ACCESS_KEY_ID",
        "spark.hadoop.fs.azure.sas.key",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "spark.executorEnv.MYSQL_PASSWD",
        "spark.executorEnv.SSH_PASSPHRASE",
        "spark.hadoop.ssl.server.keystore.keypassword",
    ],
)
def test_secrets_in_plain_text_are_refused_and_not_repeated(setting):
    document = yaml.safe_load(SMALLEST)
    document["spec"]["sparkConf"] = {setting: "hunter2", "spark.sql.session.timeZone": "UTC"}
    (problem,) = problems(StreamQuery.model_validate(document, by_name=False))
    assert str(problem).startswith(f'spec.sparkConf[{setting}]: "{setting}" is a secret, which everyone')
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.driver.extraJavaOptions", "-Xss4m -Dfs.s3a.secret.key=hunter2"),
        ("spark.executor.extraJavaOptions", "-DAWS_SECRET_ACCESS_KEY=hunter2"),
        ("spark.executor.defaultJavaOptions", '-Djavax.net.ssl.keyStorePassword="hunter2"'),
        ("spark.sql.catalog.shop.url", "jdbc:postgresql://shop/db?user=me&password=hunter2"),
        ("spark.hadoop.login", 'org.x.LoginModule required username="me" password="hunter2";'),
        ("spark.eventLog.dir", "s3a://me:hunter2@bucket/logs"),
        ("spark.jars", "https://me:hunter2@repository/a.jar"),
    ],
)
def test_secrets_in_the_value_of_a_setting_are_refused_and_not_repeated(setting, value):
    (problem,) = problems(with_setting(setting, value))
    assert str(problem).startswith(
        f'spec.sparkConf[{setting}]: the value of "{setting}" has a secret in it, which everyone'
    )
    assert "hunter2" not in str(problem)


@pytest.mark.parametrize(
    "options", ["-Dspark.plugins=a.B", "-Xss4m '-Dspark.plugins=a.B'", '-D"spark.master"=local', "-Ds\\park.app.id=1"]
)
@pytest.mark.parametrize("setting", ["spark.driver.extraJavaOptions", "spark.executor.defaultJavaOptions"])
def test_settings_within_java_options_are_refused(setting, options):
    """Spark reads system properties as settings."""
    (problem,) = problems(with_setting(setting, options))
    assert str(problem).startswith(f'spec.sparkConf[{setting}]: "{setting}" has Spark settings in it')


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("spark.extraListeners", "org.example.Listener"),
        ("spark.sql.extensions", "org.example.Extensions"),
        ("spark.sql.queryExecutionListeners", "org.example.Listener"),
        ("spark.executor.extraClassPath", "/opt/query/a.jar"),
        ("spark.jars", "https://repository/a.jar"),
        ("spark.driver.extraJavaOptions", "-Xss4m -Duser.timezone=UTC"),
        ("spark.hadoop.fs.s3a.aws.credentials.provider", "org.example.TokenProvider"),
        ("spark.eventLog.dir", "abfss://container@account.dfs.core.windows.net/logs"),
        ("spark.redaction.regex", "(?i)secret|password|token"),
        ("spark.executorEnv.SECTION", "arn:aws:secretsmanager:eu-west-1:1:secret:a"),
    ],
)
def test_settings_that_load_code_or_only_look_like_secrets_are_allowed(setting, value):
    """Code of the user's runs in the pods anyway; a policy that restricts images refuses what comes from elsewhere."""
    assert problems(with_setting(setting, value)) == []


@pytest.mark.parametrize(
    ("part", "value", "field"),
    [
        (("sources", "trips", "kafka", "bootstrapServers"), "kafka://me:hunter2@kafka:9092",
         "spec.sources.trips.kafka.bootstrapServers"),
        (("sources", "trips", "kafka", "bootstrapServers"), "me:hunter2@kafka:9092",
         "spec.sources.trips.kafka.bootstrapServers"),
        (("sink", "kafka", "bootstrapServers"), "a:9092,b://me:hunter2@kafka", "spec.sink.kafka.bootstrapServers"),
        (("sink",), {"files": {"path": "s3a://key:hunter2@bucket/a"}}, "spec.sink.files.path"),
    ],
)  # fmt: skip
def test_a_password_in_an_address_is_refused_and_not_repeated(part, value, field):
    document = yaml.safe_load(SMALLEST)
    *above, last = part
    inner = document["spec"]
    for name in above:
        inner = inner[name]
    inner[last] = value
    (problem,) = problems(StreamQuery.model_validate(document, by_name=False))
    assert str(problem).startswith(f"{field}: has a password in it, which everyone who may read ConfigMaps would see")
    assert "hunter2" not in str(problem)


def test_a_password_in_the_url_of_a_schema_registry_is_refused():
    document = yaml.safe_load(SMALLEST)
    avro = {"registry": "https://me:hunter2@schemas"}
    document["spec"]["sources"]["trips"] |= {"format": "avro", "avro": avro}
    (problem,) = problems(StreamQuery.model_validate(document, by_name=False))
    assert str(problem).startswith("spec.sources.trips.avro.registry: has a password in it")


def test_the_account_of_all_other_pods_is_refused():
    document = yaml.safe_load(SMALLEST)
    document["spec"]["serviceAccountName"] = "default"
    (problem,) = problems(StreamQuery.model_validate(document, by_name=False))
    assert str(problem).startswith('spec.serviceAccountName: "default" is the account of all pods that name none')


@pytest.mark.parametrize(
    "label",
    [
        "app.kubernetes.io/component",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/name",
        "apps.kubernetes.io/pod-index",
        "spark-app-selector",
        "spark-exec-id",
        "spark-role",
        "statefulset.kubernetes.io/pod-name",
    ],
)
@pytest.mark.parametrize("value", ["another", None])
@pytest.mark.parametrize("role", ROLES)
def test_labels_that_say_what_a_pod_belongs_to_are_refused(role, label, value):
    (problem,) = problems(templated({"metadata": {"labels": {label: value, "app.kubernetes.io/part-of": "a"}}}, role))
    assert str(problem) == (
        f'spec.{role}.podTemplate.metadata.labels: "{label}" says what the pod belongs to, and is set by Millrace, Spark '
        "or Kubernetes; leave it out, or write another label"
    )


@pytest.mark.parametrize("part", ["labels", "annotations"])
@pytest.mark.parametrize("role", ROLES)
def test_the_operators_own_labels_are_refused(role, part):
    """With the label of another query, a pod would be among those that its policy lets in."""
    (problem,) = problems(templated({"metadata": {part: {"millrace.io/query": "another", "team": "a"}}}, role))
    assert str(problem) == (
        f'spec.{role}.podTemplate.metadata.{part}: "millrace.io/query" is the operator\'s own; '
        "leave it out, or write it without that prefix"
    )


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({"hostNetwork": True}, "hostNetwork: may not be true"),
        ({"hostPID": True}, "hostPID: may not be true"),
        ({"hostIPC": True}, "hostIPC: may not be true"),
        ({"serviceAccountName": "admin"}, 'serviceAccountName: may not be "admin"'),
        ({"automountServiceAccountToken": True}, "automountServiceAccountToken: may not be true"),
        ({"nodeName": "master"}, 'nodeName: may not be "master"'),
        ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "volumes[0].hostPath: may not be set"),
        ({"volumes": [{"name": "v", "nfs": {"server": "s"}}]}, "volumes[0].nfs: may not be set"),
        ({"securityContext": {"runAsUser": 0}}, "securityContext.runAsUser: may not be 0"),
        ({"securityContext": {"runAsNonRoot": False}}, "securityContext.runAsNonRoot: may not be false"),
        (
            {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
            'securityContext.seccompProfile.type: may not be "Unconfined"',
        ),
        ({"securityContext": {"sysctls": [{"name": "a"}]}}, "securityContext.sysctls: may not be set"),
        (
            container(securityContext={"privileged": True}),
            "containers[0].securityContext.privileged: may not be true",
        ),
        (
            container(securityContext={"allowPrivilegeEscalation": True}),
            "containers[0].securityContext.allowPrivilegeEscalation: may not be true",
        ),
        (
            container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}),
            'containers[0].securityContext.capabilities.add: may not be "SYS_ADMIN"',
        ),
        (
            container(securityContext={"capabilities": {"drop": []}}),
            "containers[0].securityContext.capabilities.drop: may not be []; leave it out",
        ),
        (
            container(securityContext={"capabilities": {"drop": ["NET_RAW"]}}),
            'containers[0].securityContext.capabilities.drop: may not be ["NET_RAW"]; leave it out',
        ),
        (container(ports=[{"containerPort": 1, "hostPort": 80}]), "containers[0].ports[0].hostPort: may not be 80"),
        (
            {"initContainers": [{"name": "i", "securityContext": {"runAsUser": 0}}]},
            "initContainers[0].securityContext.runAsUser: may not be 0",
        ),
    ],
)
@pytest.mark.parametrize("role", ROLES)
def test_what_the_restricted_level_forbids_is_refused(role, spec, place):
    (problem,) = problems(with_template(spec, role))
    assert str(problem).startswith(f"spec.{role}.podTemplate.spec.")
    assert place in str(problem)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ({"metadata": None}, "metadata: null is not a mapping; write its fields below it, or leave it out"),
        ({"metadata": {"labels": "team"}}, 'metadata.labels: "team" is not a mapping'),
        ({"spec": None}, "spec: null is not a mapping"),
        ({"spec": []}, "spec: [] is not a mapping"),
        ({"spec": {"securityContext": "none"}}, 'spec.securityContext: "none" is not a mapping'),
        (
            {"spec": {"containers": {"name": "driver"}}},
            "spec.containers: {'name': 'driver'} is not a list; write a list of containers, each with its name",
        ),
        ({"spec": {"containers": None}}, "spec.containers: null is not a list"),
        ({"spec": {"containers": ["driver"]}}, 'spec.containers[0]: "driver" is not a mapping'),
        ({"spec": {"initContainers": [None]}}, "spec.initContainers[0]: null is not a mapping"),
        ({"spec": container(securityContext=5)}, "spec.containers[0].securityContext: 5 is not a mapping"),
        ({"spec": container(resources="2g")}, 'spec.containers[0].resources: "2g" is not a mapping'),
        (
            {"spec": container(resources={"limits": "2g"})},
            'spec.containers[0].resources.limits: "2g" is not a mapping',
        ),
    ],
)
@pytest.mark.parametrize("role", ROLES)
def test_a_template_with_values_of_the_wrong_type_is_refused(role, template, said):
    (problem,) = problems(templated(template, role))
    assert str(problem).startswith(f"spec.{role}.podTemplate.{said}")


def test_a_template_may_leave_optional_values_empty():
    spec = container(securityContext=None, resources={"limits": None}) | {"initContainers": None}
    assert problems(with_template(spec | {"securityContext": None})) == []


def test_a_template_has_metadata_and_spec_only():
    document = yaml.safe_load(SMALLEST)
    document["spec"]["driver"] = {"podTemplate": {"containers": []}}
    (problem,) = problems(StreamQuery.model_validate(document, by_name=False))
    assert "a pod template has metadata and spec" in str(problem)


@pytest.mark.parametrize(
    "name",
    [" spark.kubernetes.executor.volumes.hostPath.x.mount.path", "spark.\\u006daster", "spark.x\nspark.master", ""],
)
def test_a_name_that_a_properties_file_reads_otherwise_is_refused(name):
    document = yaml.safe_load(SMALLEST)
    document["spec"]["sparkConf"] = {name: "x"}
    assert "is not the name of a setting" in str(problems(StreamQuery.model_validate(document, by_name=False))[-1])


@pytest.mark.parametrize("role", ROLES)
def test_whatever_a_template_takes_away_its_pod_keeps_to_the_restricted_level(role):
    name = {"driver": DRIVER, "executors": EXECUTOR, "partitioner.pod": PARTITIONER}[role]
    side = {"name": "side", "image": "x", "securityContext": {"capabilities": None, "runAsUser": 7}}
    spec = {
        "securityContext": None,
        "containers": [{"name": name, "securityContext": None}, side],
        "initContainers": [{"name": "init", "image": "x"}],
    }
    query = with_template(spec, role)
    owner, (_, secrets) = Owner("cabs", query.name, "u"), mounted_query(query)
    pods = {
        DRIVER: driver_pod(query, owner, PodDefaults("image"), secrets),
        EXECUTOR: executor_pod(query, owner, PodDefaults("image"), secrets),
        PARTITIONER: partitioner_pod(query, owner, PodDefaults("image"), secrets),
    }
    made = pods[name]
    assert made["spec"]["securityContext"]["runAsNonRoot"] is True
    contexts = [each["securityContext"] for each in made["spec"]["containers"] + made["spec"]["initContainers"]]
    assert len(contexts) == 3
    for context in contexts:
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}


def test_a_setting_is_one_line_and_a_backslash_is_one():
    query, owner = query_of(SMALLEST), Owner("cabs", "trips-by-cell", "u")
    executor = executor_pod(query, owner, PodDefaults("image"), {})
    lines = spark_defaults(query, owner, PodDefaults("image\\d\nspark.master local"), executor).splitlines()
    assert "spark.kubernetes.executor.container.image image\\\\d\\nspark.master local" in lines


def test_the_settings_of_a_query_are_in_what_the_driver_runs():
    made, _ = mounted_query(query_of(CASES["secured"]))
    assert made["spec"]["sparkConf"] == {"spark.sql.adaptive.enabled": "false"}


@pytest.mark.parametrize(
    ("resources", "settings"),
    [
        ({"requests": {"cpu": "250m"}}, ["spark.kubernetes.executor.request.cores 250m"]),
        (
            {"limits": {"cpu": "3"}},
            ["spark.kubernetes.executor.request.cores 2", "spark.kubernetes.executor.limit.cores 3"],
        ),
    ],
)
def test_spark_is_told_the_processors_that_a_template_asks_for(resources, settings):
    spec = {"containers": [{"name": "executor", "resources": resources}]}
    query, owner = with_template(spec, "executors"), Owner("cabs", "trips-by-cell", "u")
    lines = spark_defaults(
        query, owner, PodDefaults("image"), executor_pod(query, owner, PodDefaults("image"), {})
    ).splitlines()
    assert [
        line
        for line in lines
        if line.startswith(("spark.kubernetes.executor.request", "spark.kubernetes.executor.limit"))
    ] == settings


@pytest.mark.parametrize("path", ["/etc/millrace/code", "/etc/millrace/code/fares-1", "/etc/./millrace//code/fares-1/"])
def test_a_pod_template_cannot_put_anything_in_the_place_of_code(path):
    document = yaml.safe_load(SMALLEST)
    container = {"name": "driver", "volumeMounts": [{"name": "mine", "mountPath": path}]}
    volumes = [{"name": name, "configMap": {"name": "mine"}} for name in ("mine", "millrace-code-0")]
    document["spec"]["driver"] = {"podTemplate": {"spec": {"containers": [container], "volumes": volumes}}}
    found = [str(problem) for problem in problems(StreamQuery.model_validate(document, by_name=False))]
    at = "spec.driver.podTemplate.spec"
    assert [each.partition(": ")[0] for each in found] == [
        f"{at}.volumes[1].name",
        f"{at}.containers[0].volumeMounts[0].mountPath",
    ]
