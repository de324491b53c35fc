"""An index that an earlier release made with version 1 of the text-space model keeps it."""

import json
from pathlib import Path

import torch

from cenote.models.image_text.text_space import TextSpace
from cenote.search.load import load_model, open_store
from cenote.search.store import IndexDescription


def test_an_index_of_an_earlier_release_is_searched_with_its_model(tmp_path: Path) -> None:
    for version, identity in ((1, "text-space/lite0 "), (2, "text-space-2/lite0 ")):
        folder = tmp_path / str(version)
        model = TextSpace(version=version)
        store = open_store(folder, IndexDescription.create("text-space", model))
        described = json.loads((folder / "index.json").read_text())
        assert described["model"] == "text-space"
        assert described["identity"].startswith(identity)
        loaded = load_model(store)
        assert loaded.identity == model.identity
        torch.testing.assert_close(loaded.embed_texts(["dolphin"]), model.embed_texts(["dolphin"]))
