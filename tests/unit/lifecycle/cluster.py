"""A cluster in memory, with what of an API server, a StatefulSet's controller and a kubelet the operator sees."""

import itertools
import pickle
from datetime import UTC, datetime, timedelta

import yaml

from millrace_api.model.plan import APPLIED_KEY, Applied, Plan
from millrace_api.model.status import Status
from millrace_operator.lifecycle.observe import QueryKey
from millrace_operator.lifecycle.reconcile import GoneError, ObjectRefusedError, Reconciler

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
KEY = QueryKey("default", "trips-by-cell")
POD = ("Pod", "trips-by-cell-driver-0")
SET = ("StatefulSet", "trips-by-cell-driver")


def stamp(time):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def copied(value):
    """A deep copy; of plain data, pickling makes one several times faster than ``copy`` does."""
    return pickle.loads(pickle.dumps(value))


class ConflictError(Exception):
    """An object is not any more what a request says it is."""


class Cluster:
    """One query, its objects, and an operator; ``time`` stands still until it is moved."""

    def __init__(self):
        self.time = NOW
        self.query = None
        self.objects = {}
        self.writes, self.told, self.actions = 0, [], []
        self.dies_at = None
        self._versions = itertools.count(1)
        self._lives = itertools.count(1)
        self.start_operator()

    # What people do.

    def put(self, text, annotations=None):
        """Apply a query as kubectl does."""
        document = yaml.safe_load(text)
        document["spec"].setdefault("checkpoint", {"claim": "checkpoints"})
        before = self.query
        generation = 1
        if before is not None:
            generation = before["metadata"]["generation"] + (before["spec"] != document["spec"])
        document["metadata"] |= {
            "namespace": KEY.namespace,
            "uid": before["metadata"]["uid"] if before else "u",
            "generation": generation,
            "finalizers": before["metadata"].get("finalizers", []) if before else [],
            "annotations": annotations or {},
            "managedFields": [{"manager": "kubectl"}],
        }
        self.query = document | ({"status": before["status"]} if before and "status" in before else {})
        return self._changed(self.query)

    def delete(self):
        """Ask for the query's deletion."""
        self.query["metadata"]["deletionTimestamp"] = stamp(self.time)
        self._collect_query()

    def pass_time(self, **span):
        """Let time pass, and the operator look again."""
        self.time += timedelta(**span)
        return self.settle()

    # What the operator asks of the API server.

    def write_status(self, key, uid, status):
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
        self.told.append((event.warning, event.reason))

    def apply(self, manifest, *, trial=False):
        key = (manifest["kind"], manifest["metadata"]["name"])
        if "nodeselector" in str(manifest):
            raise ObjectRefusedError(".spec.template.spec.nodeselector: field not declared in schema")
        if trial:
            return {}
        self._act(("apply", *key))
        version = manifest["metadata"].get("resourceVersion")
        if version is not None and version != self.objects[key]["metadata"]["resourceVersion"]:
            raise ConflictError
        held = copied(manifest) | {"extra": "the API server's"}
        held["metadata"]["uid"] = f"uid of {key}"
        if APPLIED_KEY in (told := self.objects.get(key, {}).get("data", {})):  # another manager's
            held["data"][APPLIED_KEY] = told[APPLIED_KEY]
        self.objects[key] = held
        return self._changed(held)

    def drain(self, namespace, stateful_set):
        self._act(("drain", stateful_set))
        self.objects[SET]["spec"]["replicas"] = 0
        return self._changed(self.objects[SET])

    # What controllers and the kubelet do.

    @property
    def pod(self):
        return self.objects.get(POD)

    def control(self):
        """The StatefulSet's controller: one pod, or none."""
        held = self.objects.get(SET)
        wanted = held is not None and held["spec"]["replicas"] == 1 and self.query is not None
        if wanted and self.pod is None:
            template = copied(held["spec"]["template"])
            template["metadata"] |= {
                "name": POD[1],
                "namespace": KEY.namespace,
                "uid": f"pod {next(self._lives)}",
                "creationTimestamp": stamp(self.time),
            }
            self.objects[POD] = template | {"kind": "Pod", "status": {}}
            self._changed(self.objects[POD])
        elif not wanted and self.pod is not None:
            self.reconciler.observations.object_gone(self.objects.pop(POD))
        if held is not None:
            held["status"] = {"replicas": int(POD in self.objects)}

    def pod_shows(self, **status):
        """The kubelet's report; the operator looks at it."""
        self.pod["status"] = status
        self._changed(self.pod)
        return self.settle()

    def pod_is_ready(self):
        since = stamp(self.time)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": since}
        return self.pod_shows(conditions=[ready], startTime=since)

    def driver_follows(self, executors, partitions):
        """The driver tells that its batches run under the plan that there is, on so many executors."""
        held = self.objects["ConfigMap", f"{KEY.name}-plan"]
        plan = Plan.from_json(held["data"]["plan.yaml"])
        told = Applied(
            epoch=plan.epoch,
            algorithm=plan.algorithm,
            state_partitions=partitions,
            executors_ready=executors,
        )
        held["data"][APPLIED_KEY] = told.to_json()
        return self._changed(held)

    def pod_fails(self, message="", code=1, reason="Error", restarts=1):
        """Its container has ended, and Kubernetes waits before it starts it again."""
        ended = {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "finishedAt": stamp(self.time),
            "containerID": f"containerd://{next(self._lives)}",
        }
        waiting = {"reason": "CrashLoopBackOff", "message": "back-off restarting"}
        state = {
            "name": "driver",
            "restartCount": restarts,
            "state": {"waiting": waiting},
            "lastState": {"terminated": ended},
        }
        return self.pod_shows(containerStatuses=[state])

    # The operator.

    def start_operator(self):
        """A new process, which knows nothing but what the API server says."""
        self.reconciler = Reconciler(self, self, "example.org/jobs", lambda: self.time)
        if self.query is not None:
            self.reconciler.observations.query_seen(copied(self.query))
        for each in self.objects.values():
            self.reconciler.observations.object_seen(copied(each))

    def settle(self):
        """Let the operator and the controllers work until nothing changes any more; the status."""
        for _ in range(50):
            before = copied((self.query, self.objects))
            self.reconciler._backoff.forget(KEY)  # no time passes here
            self.show()
            self.reconciler.reconcile(KEY)
            self.control()
            self.show()
            if (self.query, self.objects) == before:
                return self.status
        raise AssertionError(f"it does not settle: {self.actions[-20:]}")

    @property
    def status(self):
        return Status.model_validate((self.query or {}).get("status") or {}, by_name=False)

    def condition(self, type):
        return next(each for each in self.status.conditions if each.type == type)

    def show(self):
        """The watches tell the operator what there is."""
        if self.query is not None:
            self.reconciler.observations.query_seen(copied(self.query))
        for each in self.objects.values():
            self.reconciler.observations.object_seen(copied(each))

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
        """What is being deleted is gone when nobody holds it, and what it owns goes with it."""
        metadata = self.query["metadata"]
        if "deletionTimestamp" in metadata and not metadata["finalizers"]:
            self.reconciler.observations.query_gone(self.query)
            self.query = None
            for key in list(self.objects):
                self.reconciler.observations.object_gone(self.objects.pop(key))
