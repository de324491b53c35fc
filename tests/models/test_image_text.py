"""Image-text models: one interface, unit vectors, made-up words exactly where words are, nothing
downloaded.

The text-space model is ConSE by its equation; open_clip models are small random ones in local
files.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from cenote.models.image_text import ImageText, Invertible, LocalNetwork, create_image_text
from cenote.models.image_text.text_encoder import Words
from cenote.models.image_text.text_space import (
    SynsetVectors,
    TextSpace,
    WordVectors,
    class_vectors,
)

TEXTS = ["dog", "a photo of a dog", "Ein Hund, 12 Katzen!", "x" * 300]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try to connect anywhere fails the test."""

    def refuse(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("socket.socket.connect", refuse)


@pytest.fixture(scope="module")
def text_space() -> TextSpace:
    return TextSpace()


@pytest.fixture(scope="module")
def first_version() -> TextSpace:
    return TextSpace(version=1)


def test_word_vectors_are_as_wordllama_has_them(first_version: TextSpace) -> None:
    """The package's own inference. Its `load` looks for the tokenizer in a folder that its wheel
    does not have.
    """
    inference = pytest.importorskip("wordllama.inference", reason="needs: pip install wordllama")
    from tokenizers import Tokenizer

    words = first_version.text_encoder
    assert isinstance(words, WordVectors)
    tokenizer = Tokenizer.from_str(words.tokenizer.to_str())
    theirs = inference.WordLlamaInference(words.table.numpy(), tokenizer).embed(TEXTS, norm=True)
    torch.testing.assert_close(
        first_version.embed_texts(TEXTS), torch.from_numpy(theirs), atol=1e-5, rtol=1e-5
    )
    assert first_version.embed_texts([]).shape == (0, 256)


@pytest.mark.parametrize("version", [1, 2])
def test_an_image_is_the_weighted_mean_of_its_likeliest_classes(
    version: int, text_space: TextSpace, first_version: TextSpace
) -> None:
    """ConSE, one image and one class at a time."""
    model = {1: first_version, 2: text_space}[version]
    all_logits = 5 * torch.randn(3, 1000, generator=torch.Generator().manual_seed(0))
    classes = model.classes.double().numpy()
    pairs = zip(all_logits.double().numpy(), model.embed_output(all_logits), strict=True)
    for logits, vector in pairs:
        likeliest = sorted(range(1000), key=lambda c: -logits[c])[: model.top]
        weights = {c: np.exp(logits[c] / model.temperature) for c in likeliest}
        mean = sum(weights[c] / sum(weights.values()) * classes[c] for c in likeliest)
        np.testing.assert_allclose(vector.numpy(), mean / np.linalg.norm(mean), atol=1e-5)


def test_a_class_of_the_first_version_is_its_names_and_its_definition() -> None:
    from timm.data.imagenet_info import ImageNetInfo

    words, info = WordVectors(), ImageNetInfo()
    assert info.index_to_description(207) == "golden retriever"
    classes = class_vectors(words)
    for c in (0, 207, 385):
        names, _, definition = info.index_to_description(c, detailed=True).partition(": ")
        mean = words(names.split(", ")).mean(0)
        both = mean / mean.norm() + words([definition])[0]
        torch.testing.assert_close(classes[c], both / both.norm())


def test_a_word_is_near_the_classes_that_are_its_relatives(text_space: TextSpace) -> None:
    """None of these words is the name of a class."""
    from timm.data.imagenet_info import ImageNetInfo

    names = [names.split(",")[0] for names in ImageNetInfo().label_descriptions()]
    relatives = {
        "dolphin": {"killer whale", "grey whale", "sea lion", "dugong"},
        "wrench": {"screwdriver", "hammer", "plunger", "plane"},
        "emu": {"ostrich"},
        "ketch": {"schooner", "catamaran", "trimaran", "yawl"},
        "a photo of two motorbikes": {"moped", "motor scooter", "mountain bike"},
    }
    classes = torch.nn.functional.normalize(text_space.classes, dim=1)
    similarities = text_space.embed_texts(list(relatives)) @ classes.T
    for (text, expected), row in zip(relatives.items(), similarities, strict=True):
        assert names[int(row.argmax())] in expected, text


def test_the_projection_keeps_the_similarities_of_classes(text_space: TextSpace) -> None:
    encoder = text_space.text_encoder
    assert isinstance(encoder, SynsetVectors)
    described = encoder.describe(encoder.synsets.classes)
    exact, projected = (x @ x.T for x in (described, encoder.classes))
    assert (exact - projected).square().mean().sqrt() < 0.02
    torch.testing.assert_close(exact.diag(), torch.ones(1000))


def test_a_text_without_a_synset_is_described_by_its_words(text_space: TextSpace) -> None:
    encoder = text_space.text_encoder
    assert isinstance(encoder, SynsetVectors)
    text = "qwertyzxcv"
    assert [phrase.synsets for phrase in encoder.synsets.phrases(text)] == [()]
    words = encoder.words([text]) @ encoder.projection[:256]
    torch.testing.assert_close(encoder([text]), words / words.norm())
    torch.testing.assert_close(encoder(["dog", text])[1:], encoder([text]))


def test_a_photograph_lies_by_its_name(text_space: TextSpace) -> None:
    skimage = pytest.importorskip("skimage.data", reason="needs: pip install scikit-image")
    pixels = text_space.transform()(Image.fromarray(skimage.chelsea()))[None]
    names = ["cat", "dog", "house", "guitar", "mountain", "car"]
    found = text_space.embed_texts(names) @ text_space.embed_images(pixels)[0]
    assert names[int(found.argmax())] == "cat"


def test_the_identity_of_the_first_version_is_that_of_earlier_releases(
    text_space: TextSpace, first_version: TextSpace
) -> None:
    assert TextSpace().identity == text_space.identity
    assert text_space.identity.startswith("text-space-2/lite0 ")
    assert first_version.identity == "text-space/lite0 6783bb0d54e64ded8588bc9e0e622a2c"


# open_clip: a tiny CLIP, and a tiny one whose text tower is SigLIP's (no causal mask, the last
# place, a biased layer)
VISION = {"image_size": 32, "layers": 1, "width": 32, "patch_size": 16, "head_width": 16}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
SIGLIP = {"no_causal_mask": True, "proj_bias": True, "pool_type": "last", "pad_id": 1}
PADDED = {"no_causal_mask": True, "pool_type": "eos", "eos_id": 49407, "embed_cls": False}
CONFIGS: dict[str, dict[str, Any]] = {
    "clip": {"text_cfg": TEXT},
    "siglip": {"text_cfg": TEXT | SIGLIP, "custom_text": True, "init_logit_bias": -10},
    "custom": {"text_cfg": TEXT, "custom_text": True},
    "class-token": {
        "text_cfg": TEXT | {"embed_cls": True, "pool_type": "last"},
        "custom_text": True,
    },
    "eos": {"text_cfg": TEXT | PADDED, "custom_text": True},
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random models as open_clip keeps them in a folder."""
    open_clip = pytest.importorskip("open_clip", reason="needs: pip install 'cenote[clip]'")
    found = {}
    for name, config in CONFIGS.items():
        folder = tmp_path_factory.mktemp(name)
        made = {"embed_dim": 24, "vision_cfg": VISION, **config}
        (folder / "open_clip_config.json").write_text(
            json.dumps({"model_cfg": made, "preprocess_cfg": {}})
        )
        torch.manual_seed(3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = open_clip.create_model(f"local-dir:{folder}")
        for value in (
            model.parameters()
        ):  # as large as trained ones: else every text is nearly the same vector
            value.data.mul_(3)
        save_file(
            {k: v.contiguous() for k, v in model.state_dict().items()},
            folder / "open_clip_model.safetensors",
        )
        found[name] = folder
    return found


def from_folder(folder: Path) -> Any:
    return create_image_text(f"open_clip/local-dir:{folder}")


@pytest.fixture(scope="module")
def models(tiny: dict[str, Path]) -> dict[str, Any]:
    return {name: from_folder(folder) for name, folder in tiny.items()}


def test_a_model_that_is_opened_again_has_the_same_identity(
    models: dict[str, Any], tiny: dict[str, Path]
) -> None:
    assert (
        from_folder(tiny["clip"]).identity == models["clip"].identity != models["custom"].identity
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_vectors_are_open_clips(name: str, models: dict[str, Any]) -> None:
    model = models[name]
    assert isinstance(model, ImageText) and isinstance(model, Invertible)
    pixels = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        images = model.clip.encode_image(pixels, normalize=True)
        texts = model.clip.encode_text(model.tokenizer(TEXTS), normalize=True)
    torch.testing.assert_close(model.embed_images(pixels), images)
    torch.testing.assert_close(model.embed_texts(TEXTS), texts)
    assert model.dim == 24 and not any(p.requires_grad for p in model.parameters())
    assert model.transform()(Image.new("L", (50, 40))).shape == (3, 32, 32)


@torch.no_grad()
def assert_local(model: Any, pixels: torch.Tensor, features: torch.Tensor) -> None:
    """The local network gives the vectors of the plain one, and this map."""
    assert isinstance(model, LocalNetwork)
    vectors, maps = model.embed_local_output(model.local_network(pixels))
    torch.testing.assert_close(vectors, model.embed_images(pixels))
    torch.testing.assert_close(maps, features)


@torch.no_grad()
def test_local_features_of_text_space_are_those_of_the_last_block(text_space: TextSpace) -> None:
    blocks = list[torch.Tensor]()
    pixels = torch.rand(2, 3, 96, 128)
    handle = text_space.classifier.blocks.register_forward_hook(  # type: ignore[union-attr]
        lambda module, inputs, output: blocks.append(output)
    )
    text_space.image_network(pixels)
    handle.remove()
    assert blocks[0].shape == (2, 320, 3, 4)
    assert_local(text_space, pixels, blocks[0])


@torch.no_grad()
@pytest.mark.parametrize("name", ["clip", "siglip"])
def test_local_features_of_open_clip_are_its_patches(name: str, models: dict[str, Any]) -> None:
    model, pixels = models[name], torch.rand(2, 3, 32, 32)
    visual = model.clip.visual
    visual.output_tokens = True
    patches = visual(pixels)[1]  # without CLS
    visual.output_tokens = False
    assert patches.shape == (2, 4, 32)
    assert_local(model, pixels, patches.transpose(1, 2).unflatten(2, (2, 2)))


@pytest.mark.parametrize("mode", ["shortest", "squash", "longest"])
def test_the_visible_part_of_an_image(mode: str, models: dict[str, Any]) -> None:
    """An image of its own coordinates through the transform of open_clip."""
    width, height, model = 96, 64, models["clip"]
    x, y = np.meshgrid((np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height)
    image = Image.fromarray(np.uint8(np.stack([255 * x, 255 * y, 255 + 0 * x], 2).round()))
    before = dict(model.preprocess)
    model.preprocess |= {"resize_mode": mode, "mean": (0.0,) * 3, "std": (1.0,) * 3}
    seen = model.transform()(image)
    x0, y0, x1, y1 = model.visible_box(width, height)
    model.preprocess = before
    place = (np.arange(32) + 0.5) / 32
    for values, inside, side, low, high in (
        (seen[0, 16], seen[2, 16], width, x0, x1),
        (seen[1, :, 16], seen[2, :, 16], height, y0, y1),
    ):
        expected = low + place * (high - low)
        within = (expected > 0.03 * side) & (expected < 0.97 * side)
        assert np.abs(values.numpy() * side - expected)[within].max() < (high - low) / 32  # a pixel
        assert (inside.numpy()[(expected < -2) | (expected > side + 2)] == 0).all()  # padding


@pytest.mark.parametrize("name", CONFIGS)
def test_the_vector_of_a_real_word_is_that_word(name: str, models: dict[str, Any]) -> None:
    model = models[name]
    texts = ["a photo of bird", "a photo of sketch"]
    table = (
        model.clip.text.token_embedding
        if hasattr(model.clip, "text")
        else model.clip.token_embedding
    )
    words = table.weight[[int(row[1]) for row in model.tokenizer(["bird", "sketch"])]]
    with torch.no_grad():
        torch.testing.assert_close(
            model.embed_with_word("a photo of $", words), model.embed_texts(texts)
        )
        behind = model.embed_with_word("$, red and blue", words)
    torch.testing.assert_close(
        behind, model.embed_texts(["bird, red and blue", "sketch, red and blue"])
    )
    assert not torch.allclose(behind[0], behind[1], atol=1e-3)  # the word does matter


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_reach_the_word_alone(name: str, models: dict[str, Any]) -> None:
    model = models[name]
    before = model.embed_texts(TEXTS)
    torch.manual_seed(0)
    word = torch.randn(2, 32, requires_grad=True)
    goal = torch.randn(24)

    def value(given: torch.Tensor) -> torch.Tensor:
        return (model.embed_with_word("a $ on grass", given) @ goal).sum()

    (gradient,) = torch.autograd.grad(value(word), word)
    step = 1e-2 * torch.nn.functional.one_hot(torch.tensor(5), 32)
    slow = (value(word.detach() + step) - value(word.detach() - step)) / 2e-2
    torch.testing.assert_close(gradient[:, 5].sum(), slow, rtol=2e-2, atol=1e-3)
    assert all(p.grad is None for p in model.parameters())
    torch.testing.assert_close(model.embed_texts(TEXTS), before)  # the word is gone again


def test_a_checkpoint_file_goes_into_a_named_model(
    models: dict[str, Any], tiny: dict[str, Path], tmp_path: Path
) -> None:
    """RemoteCLIP's way: a .pt of tensors into a plain model of open_clip."""
    open_clip = pytest.importorskip("open_clip", reason="needs: pip install 'cenote[clip]'")
    config = json.loads((tiny["clip"] / "open_clip_config.json").read_text())["model_cfg"]
    (tmp_path / "tiny-clip.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "tiny-clip.json")
    direct = models["clip"]
    torch.save(direct.clip.state_dict(), tmp_path / "remote.pt")
    model = create_image_text(f"open_clip/tiny-clip/{tmp_path / 'remote.pt'}")
    expected = direct.clip.state_dict()
    assert all(torch.equal(value, expected[key]) for key, value in model.clip.state_dict().items())
    torch.testing.assert_close(model.embed_texts(TEXTS), direct.embed_texts(TEXTS))
    with pytest.raises(ValueError, match=r"bad\.pt"):
        (tmp_path / "bad.pt").write_bytes(b"nothing")
        create_image_text(f"open_clip/tiny-clip/{tmp_path / 'bad.pt'}")
    with pytest.raises(ValueError, match=r"other\.pt.*'tiny-clip'"):
        torch.save({"weight": torch.ones(3)}, tmp_path / "other.pt")
        create_image_text(f"open_clip/tiny-clip/{tmp_path / 'other.pt'}")


def test_openai_weights_come_with_quick_gelu(monkeypatch: pytest.MonkeyPatch) -> None:
    """open_clip itself only warns, and every number is quietly wrong."""
    open_clip = pytest.importorskip("open_clip", reason="needs: pip install 'cenote[clip]'")
    seen: list[dict[str, Any]] = []

    def create(model: str, **options: Any) -> None:
        seen.append({"model": model, **options})
        raise OSError("no network")

    monkeypatch.setattr(open_clip, "create_model", create)
    monkeypatch.setattr("cenote.backbones.weights.hub_answers", lambda: False)
    for model, tag, quick in (
        ("ViT-L-14", "openai", True), ("ViT-L-14-quickgelu", "openai", True), ("ViT-B-32", "laion2b_s34b_b79k", False)
    ):  # fmt: skip
        with pytest.raises(OSError, match=f"'open_clip/{model}/{tag}'"):
            create_image_text(f"open_clip/{model}/{tag}")
        assert seen[-1]["force_quick_gelu"] is quick


def test_a_mismatch_that_open_clip_warns_of_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    open_clip = pytest.importorskip("open_clip", reason="needs: pip install 'cenote[clip]'")

    def create(model: str, **_: Any) -> None:
        warnings.warn(
            "QuickGELU mismatch between final model config and pretrained tag",
            UserWarning,
            stacklevel=1,
        )

    monkeypatch.setattr(open_clip, "create_model", create)
    monkeypatch.setattr("cenote.backbones.weights.hub_answers", lambda: False)
    with pytest.raises(ValueError, match=r"'ViT-B-32'.*'openai'.*QuickGELU"):
        create_image_text("open_clip/ViT-B-32/openai")


@pytest.mark.parametrize(
    ("name", "options", "values"),
    [
        ("textspace", {}, "'textspace'.*'text-space'"),
        ("text-space", {"versions": 1}, "'versions'.*'version'"),
        ("text-space", {"version": 3}, "version must be one of 1, 2, got 3"),
        ("text-space/vit_micro", {}, "'vit_micro'"),
        ("open_clip/ViT-L-14", {}, "'open_clip/ViT-L-14'.*open_clip/MODEL/TAG"),
        ("open_clip/ViT-B-322/openai", {}, "'ViT-B-322'.*'ViT-B-32'"),
        ("open_clip/ViT-L-14/opnai", {}, "'opnai'.*'openai'"),
    ],
)
def test_wrong_names_and_options_are_refused(
    name: str, options: dict[str, Any], values: str
) -> None:
    if name.startswith("open_clip"):
        pytest.importorskip("open_clip", reason="needs: pip install 'cenote[clip]'")
    with pytest.raises(ValueError, match=values):
        create_image_text(name, **options)


def test_wrong_texts_are_refused(text_space: TextSpace, models: dict[str, Any]) -> None:
    model = models["clip"]
    for encoder in (text_space, model):
        with pytest.raises(ValueError, match="'  '"):
            encoder.embed_texts(["dog", "  "])
    for template, values in (
        ("a photo", "'a photo'"),
        ("$ and $", r"'\$ and \$'"),
        ("far " * 40 + "$", "far far"),
    ):
        with pytest.raises(ValueError, match=values):
            model.embed_with_word(template, torch.zeros(1, 32))
    assert not isinstance(text_space, Invertible)


def test_words_that_were_never_read_are_told() -> None:
    words = Words.of(["a photo of a cat"])
    assert words.unknown("a cat") == words.unknown("cats") == []
    assert words.unknown("a Dog, zx") == ["dog", "zx"]


def test_a_hypernym_counts_the_probability_of_all_its_classes(text_space: TextSpace) -> None:
    """A cat that may be many things is in the middle of the dogs, but less likely one of them."""
    dogs, cats = torch.arange(151, 269), torch.arange(281, 286)
    certain = torch.zeros(len(dogs), 1000)
    certain[torch.arange(len(dogs)), dogs] = 20.0  # one breed each
    uncertain = torch.zeros(1, 1000)
    uncertain[0, dogs[::5]], uncertain[0, cats] = 10.0, 13.0  # 0.51 dog
    images = text_space.embed_output(torch.cat([certain, uncertain]))
    for text in ("dog", "dogs", "a photo of a dog"):
        scores = images @ text_space.embed_texts([text])[0]
        assert scores[:-1].quantile(0.1) > scores[-1], text
    described = images @ text_space.text_encoder.describe_texts(["dog"])[0]  # type: ignore[operator]
    assert described[:-1].median() < described[-1]
    (cat,) = text_space.embed_texts(["cat"])
    assert (images @ cat).argmax() == len(dogs)


def test_a_hypernym_is_the_least_squares_solution_for_its_kinds(text_space: TextSpace) -> None:
    """The first 398 classes are animals, but most animals of ImageNet-21k are not classes."""
    encoder, animals = text_space.text_encoder, torch.arange(1000) < 398
    assert isinstance(encoder, SynsetVectors)
    (synset,) = encoder.synsets.named("animal")
    described = (encoder.describe([synset]) @ encoder.projection)[0]
    scores = encoder.classes @ described
    targets = (scores / scores.max()).clamp(min=0).where(~animals, torch.tensor(1.0))
    solution = torch.linalg.lstsq(encoder.classes.double(), targets.double() - 0.2).solution
    (animal,) = text_space.embed_texts(["animal"])
    solution = torch.nn.functional.normalize(solution, dim=0).float()
    torch.testing.assert_close(animal, solution, rtol=1e-3, atol=1e-4)

    def area(vector: torch.Tensor) -> torch.Tensor:  # share of pairs in which the animal has more
        values = encoder.classes @ vector
        return (values[animals][:, None] > values[~animals]).float().mean()

    assert area(animal) > 0.99 > area(described)


def test_version_1_has_no_sums_of_classes(first_version: TextSpace) -> None:
    assert first_version.cosine_scale("dog") == 1
