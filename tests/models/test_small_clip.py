"""The small CLIP: nothing is out of vocabulary, a made-up word is a word, two files a side and
nothing pickled.
"""

import json
from pathlib import Path

import pytest
import torch

from cenote.models import create_model, load
from cenote.models.image_text import ImageText, Invertible, LocalNetwork, create_image_text
from cenote.models.image_text.small_clip import (
    TEXT,
    TEXT_WEIGHTS,
    SmallClip,
    load_image_text,
    save_image_text,
)
from cenote.models.image_text.text_encoder import BYTES, FIRST_WORD, PAD, TextTower, Words

SAID = ["a sketch of a cat", "two red birds in a meadow", "dog, sketch", "bird"]


def small(pool: str = "simpool") -> SmallClip:
    torch.manual_seed(0)
    words = Words.of(SAID, context=12)
    image = create_model("resnet_micro", pool, 0, embedding_dim=16)
    tower = TextTower(len(words), 16, 12, width=24, layers=2, heads=2)
    return SmallClip(image, tower, words, things=["bird", "cat"]).eval()


def test_known_words_are_one_token_and_others_pieces() -> None:
    words = Words.of(SAID)
    ids = dict(zip(words.vocabulary, range(FIRST_WORD, 999), strict=False))
    row = words.encode(["A Cat"])[0].tolist()
    assert row == [ids["a"], ids["cat"]]
    assert words.encode(["cats"])[0].tolist() == [ids["cat"], 1 + ord("s")]
    assert words.encode(["bird_sketch"])[0].tolist() == [ids["bird"], 1 + ord("_"), ids["sketch"]]
    assert words.encode(["zéro"])[0].tolist() == [1 + byte for byte in "zéro".encode()]
    both = words.encode(["cat", "a cat in a meadow"])
    assert both.shape == (2, 5) and both[0].tolist() == [ids["cat"], *[PAD] * 4]
    assert words.encode(["cat bird"], spelled=[True])[0].tolist() == [1 + ord(c) for c in "catbird"]


@pytest.mark.parametrize("text", ["猫の絵", "🐈", "$%&", "x" * 500, "_", "\ud800", "naïve—co-op’s"])
def test_nothing_is_out_of_vocabulary(text: str) -> None:
    words = Words.of(SAID)
    ids = words.encode([text])
    assert 1 <= ids.shape[1] <= words.context and (ids > PAD).all() and (ids < len(words)).all()


def test_the_most_frequent_words_are_kept() -> None:
    assert Words.of(["a b", "a c", "a b d"], most=2).vocabulary == ["a", "b"]
    assert len(Words([])) == 1 + BYTES


@torch.no_grad()
def test_local_features_are_those_of_the_backbone() -> None:
    model, pixels = small(), torch.rand(2, 3, 64, 96)
    assert isinstance(model, LocalNetwork)
    vectors, maps = model.embed_local_output(model.local_network(pixels))
    torch.testing.assert_close(vectors, model.embed_images(pixels))
    features = model.image.features(pixels)
    assert maps.shape[2:] == features.grid
    torch.testing.assert_close(maps[:, :, 1, 0], features.tokens[:, features.grid[1]])


def test_a_text_does_not_depend_on_its_batch() -> None:
    model = small()
    together = model.embed_texts(SAID)
    for text, row in zip(SAID, together, strict=True):
        torch.testing.assert_close(model.embed_texts([text])[0], row, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(together.norm(dim=1), torch.ones(len(SAID)))
    assert model.embed_texts([]).shape == (0, 16)


def test_the_order_of_words_matters() -> None:
    one, other = small().embed_texts(["dog red bird", "bird red dog"])
    assert not torch.allclose(one, other, atol=1e-4)


def test_the_vector_of_a_real_word_is_that_word() -> None:
    model = small()
    table = model.text.embedding.weight
    words = table[[int(model.words.encode([word])[0, 0]) for word in ("cat", "bird")]]
    texts = model.embed_texts(SAID)
    with torch.no_grad():
        found = model.embed_with_word("a sketch of $, red", words)
    torch.testing.assert_close(
        found, model.embed_texts(["a sketch of cat, red", "a sketch of bird, red"])
    )
    word = words.detach().clone().requires_grad_()
    (gradient,) = torch.autograd.grad(model.embed_with_word("a $", word).sum(), word)
    assert gradient.abs().sum() > 0
    torch.testing.assert_close(model.embed_texts(SAID), texts)  # the word is gone again


def test_it_is_saved_in_two_pairs_of_files(tmp_path: Path) -> None:
    model = small()
    model.scale.data.fill_(3.0)
    save_image_text(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json", "model.safetensors", "text.json", "text.safetensors",
    ]  # fmt: skip
    back = create_image_text(str(tmp_path))
    pixels = torch.rand(2, 3, 64, 64)
    assert isinstance(back, ImageText) and isinstance(back, Invertible)
    torch.testing.assert_close(back.embed_texts(SAID), model.embed_texts(SAID))
    torch.testing.assert_close(back.embed_images(pixels), model.embed_images(pixels))
    expected = model.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in back.state_dict().items())
    assert (
        back.identity == model.identity and back.name == tmp_path.name and float(back.scale) == 3.0
    )
    assert isinstance(back, SmallClip) and back.things == ["bird", "cat"]
    assert not any(p.requires_grad for p in back.parameters())
    torch.testing.assert_close(
        load(tmp_path).embed(pixels), model.image.embed(pixels)
    )  # the image side is a model


def test_identity_is_of_weights_and_words(tmp_path: Path) -> None:
    model, other = small(), small()
    assert model.identity == other.identity
    other.text.projection.weight.data[0, 0] += 1
    assert model.identity != other.identity
    other = small()
    other.words = Words([*other.words.vocabulary[1:], "zebra"], 12)
    assert model.identity != other.identity


def test_what_does_not_belong_together_is_refused(tmp_path: Path) -> None:
    save_image_text(small(), tmp_path)
    text, weights = (tmp_path / TEXT).read_text(), (tmp_path / TEXT_WEIGHTS).read_bytes()

    def refused(values: str) -> None:
        with pytest.raises(ValueError, match=values):
            load_image_text(tmp_path)
        (tmp_path / TEXT).write_text(text)
        (tmp_path / TEXT_WEIGHTS).write_bytes(weights)

    (tmp_path / TEXT_WEIGHTS).write_bytes(weights[:-1] + b"x")
    refused(r"text\.safetensors.*text\.json")
    (tmp_path / TEXT).write_text("{")
    refused(r"text\.json")
    (tmp_path / TEXT).write_text("[]")
    refused(r"text\.json.*format, image, sha256, text, things, words")
    config = json.loads(text)
    for change, values in (
        ({"format": 2}, r"format.*\b2\b"),
        ({"words": [1]}, r"text\.json.*\bwords\b"),
        ({"things": "cat"}, r"text\.json.*\bthings\b"),
        ({"words": config["words"][:-1]}, r"text\.json.*text\.safetensors"),
        ({"text": config["text"] | {"width": 10**9}}, r"text\.json.*\b1000000000\b"),
        ({"text": config["text"] | {"heads": 5}}, r"text\.json.*text\.safetensors.*\b5\b.*\b24\b"),
    ):
        (tmp_path / TEXT).write_text(json.dumps(config | change))
        refused(values)
    (tmp_path / TEXT).unlink()
    with pytest.raises(ValueError, match=r"text\.json"):
        create_image_text(str(tmp_path))
