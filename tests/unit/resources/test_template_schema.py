"""A pod template is what Kubernetes reads, and no other reading of it."""

import pytest

from millrace_operator.resources.restrictions import problems

from .templated import ROLES, container, templated

READ_OTHERWISE = [
    ({"spec": container(securityContext={"runAsUser": "0"})}, 'securityContext.runAsUser: "0" is not a whole number'),
    ({"spec": container(securityContext={"runAsNonRoot": "false"})}, 'runAsNonRoot: "false" is not true or false'),
    ({"spec": {"securityContext": {"runAsUser": 0.0}}}, "securityContext.runAsUser: 0.0 is not a whole number"),
    ({"spec": {"hostNetwork": "true"}}, 'spec.hostNetwork: "true" is not true or false'),
    ({"spec": container(security_context={"privileged": True})}, "containers[0].security_context: is not a field"),
    ({"spec": {"host_network": True}}, "spec.host_network: is not a field of Kubernetes here"),
    ({"spec": container(securityContext={"Privileged": True})}, "securityContext.Privileged: is not a field"),
    ({"spec": container(resources={"limits": {"memory": True}})}, "limits.memory: true is not a text"),
    ({"spec": container(resources={"limits": {"memory": [1]}})}, "limits.memory: this is not a text"),
    ({"spec": {"nodeSelector": {"disk": True}}}, "nodeSelector.disk: true is not a text"),
    ({"metadata": {"finalizers": ["example.org/stay"]}}, "metadata.finalizers: is not for a pod template"),
    ({"metadata": {"ownerReferences": []}}, "metadata.ownerReferences: is not for a pod template"),
    ({"metadata": {"namespace": "bank"}}, "metadata.namespace: is not for a pod template"),
    ({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/driver": "unconfined"}}}, "may not choose a security profile"),
    ({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "unconfined"}}}, "may not choose a security profile"),
    ({"spec": {"priority": 2_000_000_000}}, "spec.priority: may not be 2000000000"),
    ({"spec": {"overhead": {"cpu": "1"}}}, "spec.overhead: may not be set"),
    ({"spec": {"schedulingGates": [{"name": "never"}]}}, "spec.schedulingGates: may not be set"),
    ({"spec": container(securityContext={"seLinuxOptions": {"type": "spc_t"}})}, "seLinuxOptions: may not be set"),
]  # fmt: skip


@pytest.mark.parametrize(("template", "said"), READ_OTHERWISE)
@pytest.mark.parametrize("role", ROLES)
def test_a_template_is_what_kubernetes_reads_and_a_query_may_have(template, said, role):
    found = [str(problem) for problem in problems(templated(template, role))]
    assert len(found) == 1, found
    assert said in found[0]


def test_what_kubernetes_takes_is_taken():
    probe = {"httpGet": {"port": "metrics", "path": "/"}, "periodSeconds": 5}
    limits = {"cpu": 2, "memory": "1Gi", "example.org/gpu": 1}
    spec = {
        **container(resources={"limits": limits}, readinessProbe=probe, ports=[{"containerPort": 1}]),
        "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": 1_000_000}}],
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
        "nodeSelector": {"node_pool": "fast"},
        "hostUsers": False,
        "securityContext": {"fsGroup": 1000, "seccompProfile": {"type": "RuntimeDefault"}, "runAsUser": None},
    }
    assert problems(templated({"metadata": {"annotations": {"a_b/c": "d"}}, "spec": spec}, "driver")) == []
