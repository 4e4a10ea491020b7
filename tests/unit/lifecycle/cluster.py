"""A cluster in memory, with the parts of API server, StatefulSet controller and kubelet that the operator sees."""

import itertools
import pickle
from datetime import UTC, datetime, timedelta

import yaml

from millrace_api.model.driver_waits import WAITS_KEY
from millrace_api.model.memory_use import MEMORY_KEY
from millrace_api.model.plan import APPLIED_KEY, Applied, Plan
from millrace_api.model.snapshots import SNAPSHOTS_KEY
from millrace_api.model.status import Status
from millrace_api.model.takeover import RUNNING_VERSION_KEY
from millrace_operator.lifecycle.objects.object_sizes import NAMESPACE_BYTES
from millrace_operator.lifecycle.observed_query import QueryKey
from millrace_operator.lifecycle.query_memory import ApplyBackoff, StatusPace
from millrace_operator.lifecycle.reconcile import REQUEUE_MARGIN, ChangeForbiddenError, GoneError, Reconciler
from millrace_operator.lifecycle.refusals import NameTakenError, ObjectRefusedError
from millrace_operator.lifecycle.workqueue import WorkQueue
from millrace_operator.resources.gangs import POD_GROUP
from millrace_operator.resources.pod_defaults import PodDefaults
from millrace_operator.telemetry.metrics import OperatorMetrics

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
KEY = QueryKey("default", "trips-by-cell")
POD, SET = ("Pod", "trips-by-cell-driver-0"), ("StatefulSet", "trips-by-cell-driver")
REPLICAS = ("StatefulSet", "trips-by-cell-partitioner")
OF_DRIVER = (APPLIED_KEY, SNAPSHOTS_KEY, RUNNING_VERSION_KEY, WAITS_KEY, MEMORY_KEY)


def stamp(time):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def copied(value):
    """Return a deep copy. For plain data, pickling is several times faster than ``copy``."""
    return pickle.loads(pickle.dumps(value))


class ConflictError(Exception):
    """An object differs from what the request assumes."""


class PunctualQueue(WorkQueue):
    """A queue without the operator's margin for times that are in whole seconds."""

    def add_later(self, key, seconds):
        super().add_later(key, max(seconds - REQUEUE_MARGIN, 0.0))

    def due(self, key):
        """When a key is handed out next; None if it is not."""
        return None if (due := self._due.get(key)) is None else datetime.fromtimestamp(due, UTC)


class Cluster:
    """One query, its objects, and an operator. ``time`` changes only when a test moves it."""

    key = KEY

    def __init__(self):
        self.time = NOW
        self.query = None
        self.others = {}
        """Other queries of the namespace by name, as their own operators would leave them."""
        self.objects = {}
        self.foreign = set()
        """Kinds and names of objects that are not the query's, and that the operator does not watch."""
        self.secrets = set()
        """Names of the Secrets of drivers; the operator does not watch them."""
        self.policy = None
        """Kind of objects that the API server refuses, whatever is in them."""
        self.refused_pods = {}
        """What the API server says of pods that it refuses, by their role."""
        self.limits = []
        """ResourceQuotas and LimitRanges, which nothing here counts."""
        self.asked = []
        """Names of the pods that the operator has asked about, with the times."""
        self.permissions = None
        """What the next operator lets queries ask for; None lets them ask for all that is valid."""
        self.forbids = False
        """Whether the operator has lost the rights to change anything but the finalizer."""
        self.namespace_bytes = NAMESPACE_BYTES
        """Bytes that the next operator keeps of the namespace."""
        self.image = "example.org/jobs"
        """Default image of the next operator."""
        self.reads = 0
        """How often the operator has read the query, beside its watch."""
        self.writes, self.events, self.actions, self.dies_at = 0, [], [], None
        self._versions, self._lives, self._next_uid = itertools.count(1), itertools.count(1), "u"
        self.start_operator()

    # Actions of users.

    def put(self, text, annotations=None):
        """Apply a query as kubectl does."""
        document = yaml.safe_load(text)
        document["spec"].setdefault("checkpoint", {"claimName": "checkpoints"})
        before, generation = self.query, 1
        if before is not None:
            generation = before["metadata"]["generation"] + (before["spec"] != document["spec"])
        document["metadata"] |= {
            "namespace": KEY.namespace,
            "uid": before["metadata"]["uid"] if before else self._next_uid,
            "generation": generation,
            "finalizers": before["metadata"].get("finalizers", []) if before else [],
            "annotations": annotations or {},
            "managedFields": [{"manager": "kubectl"}],
        }
        self.query = document | ({"status": before["status"]} if before and "status" in before else {})
        return self._changed(self.query)

    def put_other(self, name, phase, topic):
        """Put another query that writes a topic; it has reached its phase now."""
        is_ready = str(phase == "Running")
        ready = {"type": "Ready", "status": is_ready, "reason": "R", "lastTransitionTime": stamp(self.time)}
        self.others[name] = {
            "metadata": {"namespace": KEY.namespace, "name": name, "uid": name, "generation": 1},
            "spec": {"sources": {}, "sink": {"kafka": {"bootstrapServers": "kafka:9092", "topic": topic}}},
            "status": {"phase": phase, "conditions": [ready]},
        }
        return self.settle()

    def delete(self):
        """Request the deletion of the query."""
        self.query["metadata"]["deletionTimestamp"] = stamp(self.time)
        self._collect_query()

    def pass_time(self, **span):
        """Advance the time; meanwhile, the operator works only when it has said that it will."""
        until, queue = self.time + timedelta(**span), self.reconciler.queue
        for _ in range(1000):
            due = queue.due(self.key)
            if due is None or due > until:
                self.time = until
                return self.status
            self.time = max(due, self.time)
            queue.done(queue.get())
            self.settle()
        raise AssertionError(f"it is busy all the time: {self.actions[-20:]}")

    # Requests of the operator to the API server.

    def read(self, key):
        if self.query is None:
            raise GoneError
        self.reads += 1
        return copied(self.query)

    def objects_of(self, owner):
        return [copied(each) for each in self.objects.values()]

    def write_status(self, key, uid, status):
        if self.forbids:
            raise ChangeForbiddenError("no rights here")
        self._act(("status", status.phase and str(status.phase)))
        if self.query is None or self.query["metadata"]["uid"] != uid:
            raise GoneError
        self.writes += 1
        self.query["status"] = status.to_document()
        return self._changed(self.query)

    def add_finalizer(self, key, uid, finalizer):
        self._act(("finalizer", True))
        self.query["metadata"]["finalizers"] = [finalizer]
        return copied(self.query)

    def remove_finalizer(self, key, body, finalizer):
        self._act(("finalizer", False))
        self.query["metadata"]["finalizers"] = []
        self._collect_query()

    def post_event(self, key, uid, event):
        self._act(("event", event.reason))
        self.events.append((event.warning, event.reason))

    def create(self, manifest, owner, *, dry_run=False):
        key = (manifest["kind"], manifest["metadata"]["name"])
        if key in self.foreign:
            raise NameTakenError(*key)
        if key[0] != POD_GROUP and key in self.objects and owner.owns(self.objects[key]):
            return copied(self.objects[key])
        return self.apply(manifest, dry_run=dry_run)

    def apply(self, manifest, *, dry_run=False):
        key = (manifest["kind"], manifest["metadata"]["name"])
        if "not a label" in str(manifest):
            raise ObjectRefusedError("spec.template.spec.nodeSelector: Invalid value: 'not a label'")
        if self.policy is not None and key[0] == self.policy:
            raise ObjectRefusedError(f"{key[0]}: a policy of the cluster says no")
        if dry_run:
            return {}
        self._act(("apply", *key))
        version = manifest["metadata"].get("resourceVersion")
        if version is not None and version != self.objects[key]["metadata"]["resourceVersion"]:
            raise ConflictError
        held = copied(manifest) | {"extra": "the API server's"}
        held["metadata"].setdefault("creationTimestamp", stamp(self.time))
        uid = self.objects[key]["metadata"]["uid"] if key in self.objects else f"uid {next(self._lives)}"
        if held["metadata"].setdefault("uid", uid) != uid:
            raise ConflictError
        data = self.objects.get(key, {}).get("data", {})
        held.get("data", {}).update({each: data[each] for each in OF_DRIVER if each in data})
        if key[0] == "StatefulSet":
            self._follow(held, self.objects.get(key))
        self.objects[key] = held
        return self._changed(held)

    def _follow(self, held, before):
        """Count the changes of a StatefulSet, of which its controller reports the latest that it has seen."""
        before = before or {"spec": None, "metadata": {"generation": 0}}
        held["metadata"]["generation"] = before["metadata"]["generation"] + (held["spec"] != before["spec"])
        if "status" in before:
            held["status"] = before["status"]

    def make_secret(self, owner, *, dry_run=False):
        if self.policy == "Secret":
            raise ObjectRefusedError("Secret: a policy of the cluster says no")
        if dry_run:
            return "tried"
        self._act(("make", "Secret"))
        name = f"{owner.name}-auth-{next(self._lives)}"
        self.secrets.add(name)
        return name

    def drop_secret(self, owner, name):
        self._act(("drop", name))
        self.secrets.discard(name)

    def drop(self, found):
        self._act(("drop", found["metadata"]["name"]))
        self.reconciler.observations.object_gone(self.objects.pop((found["kind"], found["metadata"]["name"])))

    def drop_pod_group(self, owner):
        self._act(("drop", POD_GROUP))
        self.objects.pop((POD_GROUP, owner.name), None)

    def drain(self, namespace, stateful_set, uid):
        if self.forbids:
            raise ChangeForbiddenError("no rights here")
        self._act(("drain", stateful_set))
        held = self.objects["StatefulSet", stateful_set]
        assert held["metadata"]["uid"] == uid
        held["spec"]["replicas"] = 0
        return self._changed(held)

    def refuses(self, pod):
        self.asked.append((pod["metadata"]["name"], self.time))
        return self.refused_pods.get(pod["metadata"]["labels"]["millrace.io/role"])

    # Actions of controllers and the kubelet.

    @property
    def pod(self):
        return self.objects.get(("Pod", f"{self.key.name}-driver-0"))

    def configuration(self, at=POD):
        """Return the ConfigMap with the configuration that a pod, or the template of a StatefulSet, mounts."""
        held = self.objects[at]
        spec = held["spec"] if at[0] == "Pod" else held["spec"]["template"]["spec"]
        (volume,) = [each for each in spec["volumes"] if each["name"] == "query"]
        return self.objects["ConfigMap", volume["configMap"]["name"]]

    @property
    def configurations(self):
        """Names of all ConfigMaps with configurations."""
        return {name for kind, name in self.objects if kind == "ConfigMap" and "-query" in name}

    def control(self):
        """Create and delete pods, as the StatefulSet controller does."""
        for name in (f"{self.key.name}-driver", f"{self.key.name}-partitioner"):
            held = self.objects.get(("StatefulSet", name))
            wanted = 0 if held is None or self.query is None else held["spec"]["replicas"]
            pods = [("Pod", f"{name}-{number}") for number in range(8)]
            for key in pods[:wanted]:
                role = held["spec"]["template"]["metadata"]["labels"]["millrace.io/role"]
                if key not in self.objects and role not in self.refused_pods:
                    self._create_pod(key, held["spec"]["template"])
            for key in pods[wanted:]:
                if key in self.objects:
                    self.reconciler.observations.object_gone(self.objects.pop(key))
            if held is not None:
                replicas = sum(key in self.objects for key in pods)
                held["status"] = {"replicas": replicas, "observedGeneration": held["metadata"]["generation"]}

    def _create_pod(self, key, template):
        made = copied(template)
        made["metadata"] |= {
            "name": key[1],
            "namespace": KEY.namespace,
            "uid": f"pod {next(self._lives)}",
            "creationTimestamp": stamp(self.time),
        }
        self.objects[key] = made | {"kind": "Pod", "status": {}}
        self._changed(self.objects[key])

    def pod_shows(self, key=POD, **status):
        """Report a pod's state like a kubelet, which keeps its start, and let the operator see it."""
        start = {name: at for name, at in self.objects[key].get("status", {}).items() if name == "startTime"}
        self.objects[key]["status"] = status | start
        self._changed(self.objects[key])
        return self.settle()

    def pod_is_ready(self, key=POD):
        """Let the pod be ready, whose container has just started."""
        since = stamp(self.time)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        name = self.objects[key]["spec"]["containers"][0]["name"]
        before = self.objects[key]["status"].get("containerStatuses", [{}])[0]
        restarts, running = before.get("restartCount", 0), {"running": {"startedAt": since}}
        state = {"name": name, "restartCount": restarts, "started": True, "state": running}
        return self.pod_shows(key, conditions=[ready], startTime=since, containerStatuses=[state])

    def driver_starts(self, *, serves=True):
        """Let the driver's container run, and serve its probes; the driver is not ready."""
        running = {"running": {"startedAt": stamp(self.time)}}
        return self.pod_shows(containerStatuses=[{"name": "driver", "started": serves, "state": running}])

    def driver_follows(self, executors, partitions):
        """Report that batches run under the current plan, on ``executors`` executors."""
        held = self.objects["ConfigMap", f"{KEY.name}-plan"]
        plan = Plan.from_json(held["data"]["plan.yaml"])
        applied = Applied(
            epoch=plan.epoch, algorithm=plan.algorithm, state_partitions=partitions, executors_ready=executors
        )
        held["data"][APPLIED_KEY] = applied.to_json()
        return self._changed(held)

    def pod_fails(self, message="", code=1, reason="Error", restarts=1, key=POD):
        """End the pod's container. Kubernetes waits before it restarts the container."""
        ended = {"exitCode": code, "reason": reason, "message": message, "finishedAt": stamp(self.time)}
        ended["containerID"] = f"containerd://{next(self._lives)}"
        waiting = {"reason": "CrashLoopBackOff", "message": "back-off restarting"}
        state = {
            "name": self.objects[key]["spec"]["containers"][0]["name"],
            "restartCount": restarts,
            "state": {"waiting": waiting},
            "lastState": {"terminated": ended},
        }
        before = self.objects[key]["status"].get("conditions", ())
        scheduled = [each for each in before if each["type"] == "PodScheduled"]
        return self.pod_shows(key, conditions=scheduled, containerStatuses=[state])

    def executor(self, number, driver=None, *, runs=True):
        """Create an executor's pod, as the driver does. ``driver`` is the uid of another driver's pod."""
        labels = {"millrace.io/query": self.key.name, "millrace.io/role": "executor"}
        metadata = {
            "name": f"exec-{number}",
            "namespace": KEY.namespace,
            "uid": f"executor {number}",
            "labels": labels,
            "creationTimestamp": stamp(self.time),
            "ownerReferences": [{"kind": "Pod", "uid": driver or self.pod["metadata"]["uid"]}],
        }
        key = ("Pod", metadata["name"])
        self.objects[key] = {"kind": "Pod", "metadata": metadata, "spec": {"containers": [{"name": "executor"}]}}
        self._changed(self.objects[key])
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": stamp(self.time)}
        if runs:
            self.pod_shows(key, phase="Running", conditions=[ready])
        return key

    def executor_ends(self, key, code=1, reason="Error"):
        """End an executor's container; the driver deletes the pod at once."""
        ended = {"exitCode": code, "reason": reason, "finishedAt": stamp(self.time)}
        self.pod_shows(key, phase="Running", containerStatuses=[{"name": "executor", "state": {"terminated": ended}}])
        self.reconciler.observations.object_gone(self.objects.pop(key))
        return self.settle()

    # The operator.

    def start_operator(self):
        """Start a new operator process, which knows only what the API server stores."""
        self.metrics = OperatorMetrics()
        limits = {"permissions": self.permissions, "namespace_bytes": self.namespace_bytes}
        self.reconciler = Reconciler(self, self, PodDefaults(self.image), lambda: self.time, self.metrics, **limits)
        self.reconciler.queue = PunctualQueue(lambda: self.time.timestamp())
        self.reconciler._seconds = lambda: self.time.timestamp()
        if self.query is not None:
            self.reconciler.observations.query_seen(copied(self.query))
        for each in self._watched():
            self.reconciler.observations.object_seen(copied(each))

    def settle(self):
        """Run the operator and the controllers until nothing changes, however long that takes, and return the status."""
        for _ in range(50):
            before = copied((self.query, self.objects))
            if self.query is not None:  # the time stays the same here
                self.memory.rounds, self.memory.pace = ApplyBackoff(), StatusPace()
            self.show()
            self.reconciler.reconcile(self.key)
            self.control()
            self.show()
            again = len(self.reconciler.queue)
            if again:
                self.reconciler.queue.done(self.reconciler.queue.get())
            if (self.query, self.objects) == before and not again:
                return self.status
        raise AssertionError(f"it does not settle: {self.actions[-20:]}")

    @property
    def memory(self):
        """What the operator remembers of the query."""
        return self.reconciler.observations.memory_of(self.key, self.query["metadata"]["uid"])

    @property
    def status(self):
        return Status.reported((self.query or {}).get("status") or {})

    def condition(self, type):
        return next(each for each in self.status.conditions if each.type == type)

    def show(self):
        """Deliver the current objects to the operator through its watches."""
        for each in (self.query, *self.others.values()):
            if each is not None:
                self.reconciler.chains.seen(copied(each))
                self.reconciler.rollouts.note(copied(each))
        if self.query is not None:
            self.reconciler.observations.query_seen(copied(self.query))
        for each in self._watched():
            self.reconciler.observations.object_seen(copied(each))
        for each in self.limits:
            self.reconciler.observations.limit_seen(copied(each))

    def _watched(self):
        """All objects but PodGroups, which the operator does not watch."""
        return [each for (kind, _), each in self.objects.items() if kind != POD_GROUP]

    def _act(self, action):
        if self.dies_at is not None:
            if self.dies_at == 0:
                raise ConnectionError("the operator dies here")
            self.dies_at -= 1
        self.actions.append(action)

    def _changed(self, body):
        body["metadata"]["resourceVersion"] = str(next(self._versions))
        return copied(body)

    def _collect_query(self):
        """Remove a query that is being deleted and has no finalizers, with all objects that it owns."""
        metadata = self.query["metadata"]
        if "deletionTimestamp" in metadata and not metadata["finalizers"]:
            self.reconciler.observations.query_gone(self.query)
            self.query, self._next_uid = None, f"u{next(self._lives)}"
            self.secrets.clear()
            for each in self._watched():
                self.reconciler.observations.object_gone(each)
            self.objects.clear()
