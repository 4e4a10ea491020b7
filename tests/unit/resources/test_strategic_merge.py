"""A pod template merged into a pod, as ``kubectl patch --type=strategic`` does it."""

from hypothesis import given
from hypothesis import strategies as st

from millrace_operator.resources.pods import strategic_merge

BASE = {
    "metadata": {"labels": {"a": "1"}, "annotations": {"b": "2"}},
    "spec": {
        "containers": [
            {
                "name": "driver",
                "image": "i",
                "env": [{"name": "HOME", "value": "/tmp"}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
        "tolerations": [{"key": "old"}],
    },
}


def spec(**patch):
    return strategic_merge(BASE, {"spec": patch})["spec"]


def test_named_things_are_merged_by_name_and_new_ones_follow():
    containers = spec(containers=[{"name": "shipper"}, {"name": "driver", "tty": True}])["containers"]
    assert [container["name"] for container in containers] == ["driver", "shipper"]
    assert (containers[0]["image"], containers[0]["tty"]) == ("i", True)


def test_variables_and_mounts_are_added_to_those_there_are():
    (driver,) = spec(containers=[{"name": "driver", "env": [{"name": "TZ", "value": "UTC"}]}])["containers"]
    assert [each["name"] for each in driver["env"]] == ["HOME", "TZ"]
    assert driver["volumeMounts"] == BASE["spec"]["containers"][0]["volumeMounts"]


def test_a_volume_of_the_same_name_takes_the_place_of_the_old_one():
    claim = {"persistentVolumeClaim": {"claimName": "c"}}
    assert spec(volumes=[{"name": "tmp", **claim}])["volumes"] == [{"name": "tmp", **claim}]


def test_other_lists_are_replaced_and_null_takes_away():
    assert spec(tolerations=[{"key": "new"}])["tolerations"] == [{"key": "new"}]
    assert strategic_merge(BASE, {"metadata": {"labels": {"a": None}}})["metadata"]["labels"] == {}
    assert "tolerations" not in spec(tolerations=None)


def test_entries_without_a_name_are_left_for_the_api_server_to_refuse():
    assert spec(containers=[{"image": "x"}])["containers"][1:] == [{"image": "x"}]


_VALUES = st.recursive(
    st.one_of(st.integers(), st.text(max_size=3)),
    lambda below: st.dictionaries(st.sampled_from(["a", "b", "c"]), below, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["a", "b", "c"]), _VALUES, max_size=3))
def test_merging_twice_is_merging_once_and_the_base_stays(patch):
    before = str(BASE)
    once = strategic_merge(BASE, patch)
    assert strategic_merge(once, patch) == once
    assert str(BASE) == before
    assert strategic_merge(BASE, {}) == BASE
