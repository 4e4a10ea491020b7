"""Images share layers on disk, but only whole ones."""

from __future__ import annotations

import hashlib

import pytest

from lab.parts.millrace_images import share_layers

LAYER = b"a layer"


@pytest.fixture
def images(tmp_path):
    """Two images with a layer in common."""
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        (folder / hashlib.sha256(LAYER).hexdigest()).write_bytes(LAYER)
        (folder / "manifest.json").write_text(folder.name)
    return folders


def layer_of(image):
    return image / hashlib.sha256(LAYER).hexdigest()


def test_a_layer_that_another_image_has_is_linked_to(images, tmp_path):
    one, two = images
    share_layers(two, tmp_path.glob("**/*"))
    assert layer_of(two).samefile(layer_of(one))
    assert (two / "manifest.json").read_text() == "two"


def test_a_damaged_layer_is_not_linked_to(images, tmp_path):
    one, two = images
    layer_of(one).write_bytes(b"a broken layer")
    share_layers(two, tmp_path.glob("**/*"))
    assert layer_of(two).read_bytes() == LAYER
