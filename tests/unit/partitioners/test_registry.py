import pytest

from millrace_jobs.partitioners import registry

from .streams import ROUTED, make


def test_the_registry_has_the_algorithms_of_this_version():
    routed = ["shuffle", "hash", "pkg", "cm", "am", "cam", "lm", "dchoices", "wchoices", "dagreedy", "dalton", "prompt"]
    assert list(registry.ALGORITHMS) == ["native", *routed]
    assert routed == ROUTED


@pytest.mark.parametrize("name", ROUTED)
def test_a_name_makes_its_partitioner(name):
    assert make(name, workers=5).workers == 5


def test_parameters_are_completed_by_defaults():
    assert registry.resolve_parameters("pkg", {}) == {"choices": 2, "slides": 1, "probing": 0}
    assert registry.resolve_parameters("pkg", {"choices": 5}) == {"choices": 5, "slides": 1, "probing": 0}
    assert registry.resolve_parameters("native", {}) == {}
    assert registry.resolve_parameters("prompt", {"budget": 3}) == {
        "budget": 3,
        "buffering": "count-tree",
        "packing": "zigzag",
    }


@pytest.mark.parametrize(
    ("algorithm", "parameters", "message"),
    [
        (
            "pk",
            {},
            "there is no partitioner 'pk'; write one of: native, shuffle, hash, pkg, cm, am, cam, lm, dchoices, "
            "wchoices, dagreedy, dalton, prompt",
        ),
        ("pkg", {"choice": 2}, "partitioner pkg has no parameter 'choice'; write one of: choices, slides, probing"),
        ("hash", {"choices": 2}, "partitioner hash has no parameter 'choices'; it takes none"),
        ("native", {"x": 1}, "partitioner native has no parameter 'x'; it takes none"),
        *[
            (
                "pkg",
                {"choices": bad},
                f"parameter 'choices' of partitioner pkg is {bad!r}; write a whole number of at least 1",
            )
            for bad in (0, -3, 2.0, True, "2", None)
        ],
    ],
)
def test_bad_parameters_are_explained(algorithm, parameters, message):
    with pytest.raises(ValueError) as error:
        registry.resolve_parameters(algorithm, parameters)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"workers": 0}, "workers is 0; write a whole number of at least 1"),
        ({"replicas": 0}, "replicas is 0; write a whole number of at least 1"),
        ({"replica": -1}, "replica is -1; write a whole number of at least 0"),
        ({"replica": 3, "replicas": 3}, "replica is 3; write a whole number below replicas, which is 3"),
        ({"seed": -1}, "seed is -1; write a whole number of at least 0"),
    ],
)
@pytest.mark.parametrize("name", ROUTED)
def test_bad_numbers_are_explained(name, arguments, message):
    with pytest.raises(ValueError) as error:
        make(name, **arguments)
    assert str(error.value) == message


def test_native_cannot_be_made():
    with pytest.raises(ValueError, match="routes nothing, so none can be made; write one of: shuffle, hash, pkg"):
        make("native")


def test_an_unknown_name_is_neither_routed_nor_native():
    with pytest.raises(ValueError, match="there is no partitioner 'round-robin'"):
        registry.is_routed("round-robin")
