"""A checkpoint is on a volume that driver and executors share and may write, or the query is refused."""

import pytest
import yaml

from millrace_api.model.streamquery import StreamQuery
from millrace_operator.resources.checkpoint_volume import checkpoint_volume
from millrace_operator.resources.restrictions import problems

from .cases import SMALLEST

CLAIM = {"persistentVolumeClaim": {"claimName": "state"}}
CSI = {"csi": {"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "nfs", "share": "/state"}}}
READ_ONLY = {"persistentVolumeClaim": {"claimName": "state", "readOnly": True}}
SHARED = "on a volume that driver and executors share and may write"


def pod(name, volume=CLAIM, path="/mnt/state", **mount):
    """A pod template with one volume."""
    container = {"name": name, "volumeMounts": [{"name": "state", "mountPath": path, **mount}]}
    return {"spec": {"volumes": [{"name": "state", **volume}], "containers": [container]}}


def query(uri="file:///mnt/state/trips", driver=None, executor=None, checkpoint=None):
    document = yaml.safe_load(SMALLEST)
    document["spec"] |= {
        "checkpoint": checkpoint or {"uri": uri},
        "driver": {"podTemplate": pod("driver") if driver is None else driver},
        "executors": {"podTemplate": pod("executor") if executor is None else executor},
    }
    return StreamQuery.model_validate(document, by_name=False)


@pytest.mark.parametrize(
    ("uri", "driver", "executor"),
    [
        ("file:///mnt/state/trips", {}, {}),
        ("file:///mnt/state", {}, {}),
        ("file:/mnt/state/a%20b", {}, {}),
        ("file:///mnt/state/trips", {"volume": CSI}, {"volume": CSI}),
        ("file:///mnt/state/trips", {"subPath": "a"}, {"subPath": "a"}),
        ("file:///mnt/state/trips", {}, {"path": "/mnt/state/trips", "subPath": "trips"}),
        ("file:///mnt/state/trips", {"path": "/mnt/x/../state"}, {"path": "/mnt/state/"}),
    ],
)
def test_a_folder_of_the_same_volume_in_all_pods_is_a_checkpoint(uri, driver, executor):
    asked = query(uri, pod("driver", **driver), pod("executor", **executor))
    assert problems(asked) == []
    assert checkpoint_volume(asked) == driver.get("volume", CLAIM)


@pytest.mark.parametrize(
    ("uri", "driver", "executor"),
    [
        ("file:///tmp/trips", {}, {}),
        ("file:///mnt/state-2/trips", {}, {}),
        ("file:///var/lib/millrace/local/trips", {"path": "/var/lib/millrace"}, {"path": "/var/lib/millrace"}),
        ("file:///mnt/state/trips", {"volume": {"emptyDir": {}}}, {"volume": {"emptyDir": {}}}),
        ("file:///mnt/state/trips", {"volume": {"ephemeral": {}}}, {"volume": {"ephemeral": {}}}),
        ("file:///mnt/state/trips", {"volume": {"configMap": {"name": "a"}}}, {"volume": {"configMap": {"name": "a"}}}),
        ("file:///mnt/state/trips", {}, {"volume": {"persistentVolumeClaim": {"claimName": "other"}}}),
        ("file:///mnt/state/trips", {}, {"path": "/mnt"}),
        ("file:///mnt/state/trips", {}, {"subPath": "a"}),
        ("file:///mnt/state/trips", {"readOnly": True}, {"readOnly": True}),
        ("file:///mnt/state/trips", {"volume": READ_ONLY}, {"volume": READ_ONLY}),
        ("file:///mnt/state/trips", {"subPathExpr": "$(POD_NAME)"}, {"subPathExpr": "$(POD_NAME)"}),
    ],
)
def test_a_folder_that_pods_do_not_share_is_no_checkpoint(uri, driver, executor):
    (problem,) = problems(query(uri, pod("driver", **driver), pod("executor", **executor)))
    assert str(problem).startswith(f'spec.checkpoint.uri: the checkpoint "{uri}" is not {SHARED}; write checkpoint:')


@pytest.mark.parametrize("role", ["driver", "executor"])
def test_a_checkpoint_has_to_be_mounted_by_the_container_that_writes_it(role):
    (problem,) = problems(query(**{role: pod("side")}))
    assert SHARED in str(problem)


def test_an_empty_volume_over_the_claims_is_noticed():
    """A template may replace any volume, also the one that the operator mounts for a claim."""
    empty = {"spec": {"volumes": [{"name": "checkpoint", "emptyDir": {}}]}}
    (problem,) = problems(query(checkpoint={"claimName": "state"}, driver=empty, executor=empty))
    assert str(problem).startswith(f'spec.checkpoint.claimName: the checkpoint "state" is not {SHARED}')


@pytest.mark.parametrize(
    "uri",
    ["file://host/mnt/state", "file:///mnt/state/../../tmp", "file:///mnt/state/%2e%2e/tmp", "file:///a?b", "file:/["],
)
def test_a_uri_that_could_be_read_in_two_ways_is_refused(uri):
    found = [str(problem) for problem in problems(query(uri))]
    assert len(found) == 1
    assert "is not a plain absolute path" in found[0] or SHARED in found[0]


@pytest.mark.parametrize(
    ("volumes", "said"), [("x", "is not a list"), ([5], "is not a mapping"), (None, SHARED), ({}, "is not a list")]
)
def test_volumes_of_the_wrong_type_are_refused(volumes, said):
    template = {"spec": {"volumes": volumes, "containers": [{"name": "driver", "volumeMounts": volumes}]}}
    assert said in str(problems(query(driver=template))[0])


@pytest.mark.parametrize("uri", ["s3a://lake/checkpoints/trips", "abfss://lake@account.blob.core.windows.net/trips"])
def test_a_checkpoint_in_an_object_store_is_on_no_volume(uri):
    asked = query(uri, {}, {})
    assert problems(asked) == []
    assert checkpoint_volume(asked) is None


@pytest.mark.parametrize("uri", ["gs://lake/trips", "abfss://lake@account.dfs.core.windows.net/trips", "s3a://lake"])
def test_other_stores_are_refused(uri):
    (problem,) = problems(query(uri, {}, {}))
    assert str(problem).startswith(f'spec.checkpoint.uri: a checkpoint at "{uri}" is not supported on a cluster')
    assert problem.hint.endswith(
        "or {uri: s3a://BUCKET/PREFIX} or {uri: abfss://CONTAINER@ACCOUNT.blob.core.windows.net/PREFIX}"
    )


@pytest.mark.parametrize(
    ("checkpoint", "snapshot", "is_seen"),
    [
        ({"uri": "file:///mnt/state/trips"}, "file:///mnt/state/old/snapshots/one", True),
        ({"uri": "file:///mnt/state/trips"}, "file:///mnt/elsewhere/old/snapshots/one", False),
        ({"claimName": "claim"}, "file:///var/lib/millrace/checkpoint/old/snapshots/one", True),
        ({"claimName": "claim"}, "file:///mnt/state/old/snapshots/one", True),
        ({"claimName": "claim"}, "file:///old/snapshots/one", False),
    ],
)
def test_a_snapshot_is_on_a_volume_that_the_driver_mounts(checkpoint, snapshot, is_seen):
    found = [str(each) for each in problems(query(checkpoint=checkpoint | {"fromSnapshot": snapshot}))]
    assert found == (
        []
        if is_seen
        else [
            f'spec.checkpoint.fromSnapshot: the snapshot "{snapshot}" is not on a volume that the driver mounts; with '
            "claimName, the snapshots of a query are in file:///var/lib/millrace/checkpoint/QUERY/snapshots"
        ]
    )
