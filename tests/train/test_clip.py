"""`cenote clip`: the loss by loops, no negative is the text of another image, and a resumed run ends the same.

ImageTexts are drawn by seed, epoch and image alone; judging counts every text that is true of an image.
"""

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cenote.cli import main
from cenote.data import Dataset, Record, open_dataset, pack
from cenote.data.image_texts import ImageTexts, as_phrase, text_groups
from cenote.evaluate.validators import selection_score, zero_shot
from cenote.models import load
from cenote.models.image_text import create_image_text
from cenote.models.image_text.text_encoder import Words
from cenote.train.build import build_frozen
from cenote.train.clip import (
    ClipModule,
    build_clip,
    clip_splits,
    contrastive_loss,
    train_clip,
)
from cenote.train.config import RunConfig
from cenote.train.configure import configure
from cenote.train.engine import Examples
from cenote.train.reports import ClipReport
from cenote.unit import unit
from tests.synthetic import squares

from .running import stopped_after

SIZES = {"size": 32, "dim": 16, "width": 16, "layers": 1, "heads": 2}


def small(**given: Any) -> RunConfig:
    given = {"epochs": 2, "batch": 8, "settings": {"warmup": 0.0}, **SIZES, **given}
    return configure("clip", **given)


def test_the_loss_by_loops() -> None:
    torch.manual_seed(0)
    x, t = unit(torch.randn(4, 6)).requires_grad_(), unit(torch.randn(3, 6)).requires_grad_()
    truth = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 1, 1]]).bool()
    scale = torch.tensor(5.0, requires_grad=True)

    def slow() -> torch.Tensor:
        s = [[scale * (x[i] * t[j]).sum() for j in range(3)] for i in range(4)]
        images, texts = torch.zeros(()), torch.zeros(())
        for i in range(4):
            own = [j for j in range(3) if truth[i, j]]
            for j in own:
                images = (
                    images - (s[i][j] - sum(s[i][k].exp() for k in range(3)).log()) / len(own) / 4
                )
        for j in range(3):
            own = [i for i in range(4) if truth[i, j]]
            for i in own:
                texts = (
                    texts - (s[i][j] - sum(s[k][j].exp() for k in range(4)).log()) / len(own) / 3
                )
        return (images + texts) / 2

    loss = contrastive_loss(x, t, truth, scale)
    torch.testing.assert_close(loss, slow(), rtol=1e-5, atol=1e-6)
    for a, b in zip(
        torch.autograd.grad(loss, (x, t, scale)),
        torch.autograd.grad(slow(), (x, t, scale)),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_where_all_texts_are_different_it_is_clips_loss() -> None:
    x, t = unit(torch.randn(5, 6)), unit(torch.randn(5, 6))
    logits, own = 7 * x @ t.T, torch.arange(5)
    cross = torch.nn.functional.cross_entropy
    found = contrastive_loss(x, t, torch.eye(5).bool(), torch.tensor(7.0))
    torch.testing.assert_close(
        found, (cross(logits, own) + cross(logits.T, own)) / 2, rtol=1e-5, atol=1e-6
    )


RECORD = Record(
    "x.png",
    "bird/crested",
    domain="pencil_sketch",
    attributes={"colour": "red"},
    caption="a bird\ntwo",
)


def test_what_is_said_of_an_image() -> None:
    assert (
        as_phrase("art_painting") == "art painting" and as_phrase("bird/crested") == "crested bird"
    )
    captions, kinds, again, about = text_groups(RECORD)
    assert kinds == again  # drawn twice as often
    assert captions == ["a pencil sketch of a bird", "a pencil sketch of two", "a bird", "two"]
    assert kinds == [
        "crested bird", "pencil sketch", "crested bird pencil sketch", "a pencil sketch of a crested bird",
    ]  # fmt: skip
    assert about == ["red crested bird", "red"]
    assert text_groups(RECORD, "captions") == [captions] and text_groups(RECORD, "templates") == [
        kinds,
        kinds,
        about,
    ]
    assert (
        text_groups(Record("x.png", "owl", domain="photo"), "captions")[0][-1]
        == "a photo of an owl"
    )
    assert (
        text_groups(Record("x.png", "dog")) == [["dog"]] * 2 and text_groups(Record("x.png")) == []
    )


def animals() -> Dataset:
    records = [
        Record("0.png", "cat", domain="sketch"), Record("1.png", "cat", domain="photo"),
        Record("2.png", "dog", domain="sketch"), Record("3.png", caption="something else"),
    ]  # fmt: skip
    return pack(records, Path("."), "animals")


def test_a_text_is_true_of_every_image_it_could_be_said_of() -> None:
    texts = ImageTexts(animals())
    asked = ["cat", "sketch", "cat sketch", "something else"]
    found = texts.truth(range(4), [texts.ids[text] for text in asked])
    assert found.int().tolist() == [[1, 1, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    assert (
        texts.digest
        == ImageTexts(animals()).digest
        != ImageTexts(animals().select([0, 1, 3])).digest
    )


def test_what_is_drawn_depends_on_seed_epoch_and_image_alone() -> None:
    texts = ImageTexts(animals())
    drawn = [[texts.draw(i, 0, epoch) for epoch in range(200)] for i in range(4)]
    assert drawn == [[texts.draw(i, 0, epoch) for epoch in range(200)] for i in range(4)]
    assert all(set(some) == texts.true[i] for i, some in enumerate(drawn))  # each has its turn
    assert drawn[0] != [texts.draw(0, 1, epoch) for epoch in range(200)]


def test_a_step_compares_images_with_the_distinct_texts() -> None:
    dataset = open_dataset("world/tiny", "train")
    texts = ImageTexts(dataset)
    module = ClipModule(build_clip(small(), Words.of(texts.all)), texts, seed=0).eval()
    positions = list(range(12))
    images = torch.rand(12, 3, 32, 32)
    module.epoch = next(  # two images with one text
        epoch for epoch in range(999) if len({texts.draw(i, 0, epoch) for i in positions}) < 12
    )
    module.texts = texts
    drawn = list(dict.fromkeys(texts.draw(i, 0, module.epoch) for i in positions))
    seen: list[Any] = []
    encode = module.model.words.encode
    module.model.words.encode = lambda said, spelled=None: (
        seen.append((said, spelled)) or encode(said)
    )  # type: ignore
    found = module(
        Examples(images, torch.tensor(positions))
    )  # nothing is spelled: as embed_texts reads them
    said = [text for some, _ in seen for text in some]
    assert sorted(said) == sorted(texts.all[i] for i in drawn) and len(drawn) < 12
    assert all(len(set(spelled)) == 1 for _, spelled in seen)  # long ones by themselves
    t = module.model.embed_texts([texts.all[i] for i in drawn])
    x = module.model.embed_images(images)
    want = contrastive_loss(x, t, texts.truth(positions, drawn), torch.tensor(1 / 0.07))
    torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-5)


def test_every_weight_learns() -> None:
    texts = ImageTexts(open_dataset("world/tiny", "train"))
    module = ClipModule(build_clip(small(), Words.of(texts.all)), texts, seed=0)
    module(Examples(torch.rand(8, 3, 32, 32), torch.arange(8))).backward()
    moved = {
        name: p.grad is not None and bool(p.grad.abs().sum() > 0)
        for name, p in module.named_parameters()
    }
    # timm's residual blocks begin as nothing: what stands inside of them waits for one step
    assert all(moved[name] for name in moved if ".backbone." not in name) and moved["model.scale"]
    assert all(p.grad is not None for p in module.parameters())
    assert {"model.text.position", "model.text.embedding.weight"} <= module.no_weight_decay()


def learnt(
    folder: Path, config: RunConfig | None = None, data: Dataset | None = None, resume: bool = False
) -> ClipReport:
    data = open_dataset("world/tiny") if data is None else data
    return train_clip(data, folder, config or small(), resume=resume)


def test_stopped_and_resumed_it_ends_the_same(tmp_path: Path) -> None:
    whole = learnt(tmp_path / "whole")
    with stopped_after(10):  # in the second epoch
        learnt(tmp_path / "cut")
    resumed = learnt(tmp_path / "cut", resume=True)
    for name in ("model.safetensors", "text.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert replace(whole, seconds={}) == replace(resumed, seconds={})
    assert create_image_text(str(tmp_path / "cut")).identity == whole.identity
    assert load(tmp_path / "cut").vector_dim == 16
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "cut"))):
        learnt(tmp_path / "cut")
    with pytest.raises(ValueError, match=r"\btexts\b.*'both'.*'captions'"):
        learnt(tmp_path / "cut", small(texts="captions"), resume=True)


def test_a_frozen_backbone_stays(tmp_path: Path) -> None:
    config = small(backbone="lite0", freeze=True)
    report = learnt(tmp_path, config)
    model = create_image_text(str(tmp_path))
    before, after = (
        build_frozen(config, torch.device("cpu")).backbone.state_dict(),
        model.image.backbone.state_dict(),
    )  # type: ignore
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert report.pool == "gap" and report.val["images"] == 12
    with pytest.raises(ValueError, match="--weights"):
        small(freeze=True)


def test_it_learns_classes_by_their_names(tmp_path: Path) -> None:
    """Squares of three colours whose only text is the class: a third of the answers are right by chance."""
    config = small(epochs=12, batch=16, lr=3e-3, settings={"warmup": 1.0})
    report = learnt(tmp_path, config, squares(64))
    assert report.val["zero_shot_class"] > 60 and "zero_shot_domain" not in report.val
    assert create_image_text(str(tmp_path)).things == sorted(squares(64).classes)  # type: ignore[attr-defined]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 12 and "text_recall@1" in lines[0]["results"]["clip"]


def test_broken_images_and_silent_ones_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = squares(40, bad=(2, 7))
    learnt(tmp_path / "run", small(batch=10), data)
    assert len((tmp_path / "run" / "unreadable.txt").read_text().splitlines()) == 2
    records = [r if i % 4 else r._replace(label=None) for i, r in enumerate(data)]
    silent = pack(records, Path("squares"), "squares")
    silent.pixels = squares(40).pixels
    caplog.set_level("INFO")
    learnt(tmp_path / "silent", data=silent)
    assert any(line.startswith("10 of 30 ") and "train" in line for line in caplog.messages)
    nothing = pack([Record(f"{i}.png") for i in range(30)], Path("."), "nothing")
    with pytest.raises(ValueError, match=r"\bnothing\b"):
        learnt(tmp_path / "nothing", data=nothing)


def test_a_validation_split_is_made_where_there_is_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    data = pack([Record(f"{i}.png", caption="x") for i in range(50)], Path("."), "x")
    parts = clip_splits(data)
    names = {name: {record.image for record in part} for name, part in parts.items()}
    assert len(names["val"]) == 5 and not names["val"] & names["train"] and "test" not in parts
    assert len(caplog.messages) == 1 and " 5 " in caplog.messages[0]


def test_zero_shot_is_among_names_that_occur() -> None:
    class Fixed:
        def embed_texts(self, texts: list[str]) -> torch.Tensor:
            return torch.eye(3)[[["cat", "dog", "red fox"].index(text) for text in texts]]

    codes = torch.tensor([0, 2, 2, -1]).numpy()
    vectors = torch.tensor(
        [[1.0, 2, 0], [0, 0, 1], [1, 0, 0.5], [1, 0, 0]]
    )  # the dog is not there to be chosen
    found = zero_shot(Fixed(), vectors, codes, ["cat", "dog", "red_fox"], "class")  # type: ignore[arg-type]
    assert math.isclose(found["zero_shot_class"], 200 / 3, rel_tol=1e-6)
    assert zero_shot(Fixed(), vectors, codes[:1], ["cat"], "class") == {}  # type: ignore[arg-type]
    assert (
        selection_score({"zero_shot_class": 50.0, "zero_shot_domain": 70.0, "text_recall@1": 1.0})
        == 60
    )
    assert selection_score({"text_recall@1": 1.0, "text_recall@5": 9.0, "image_recall@1": 3.0}) == 2


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = [
        "--backbone",
        "resnet_micro",
        "--size",
        "32",
        "--dim",
        "8",
        "--width",
        "16",
        "--layers",
        "1",
    ]
    quick = ["--epochs", "1", "--batch", "16"]
    main(["clip", "world/tiny", "-o", str(tmp_path / "run"), *small, *quick])
    out = capsys.readouterr().out  # the one test of the sentences of this command
    assert "test, " in out and "zero shot class" in out and f"saved in {tmp_path / 'run'}" in out
    report = json.loads((tmp_path / "run" / "results.json").read_text())
    assert report["test"]["images"] > 0 and "zero_shot_class" in report["test"]


@pytest.mark.parametrize(
    ("given", "cause"),
    [
        ({"texts": "x"}, r"\btexts\b.*'x'"),
        ({"pool_options": {"gama": 2}, "pool": "simpool"}, "'gama'.*'gamma'"),
        ({"heads": 3}, r"\b3 heads\b.*\b16\b"),
        ({"dim": 0}, r"\bdim\b.*\b0\b"),
        ({"crop": 0.0}, r"--crop\b.*\b0\b"),
        ({"batch": 1}, r"\bbatch\b.*\b1\b"),
        ({"settings": {"accumulate": 2}}, r"\baccumulate\b"),
        ({"settings": {"mixup": 0.2}}, r"\bmixup\b"),
        ({"scratch": True, "weights": Path(__file__)}, "--scratch.*--weights"),
    ],
)
def test_bad_input_is_refused_before_images_are_read(given: dict[str, Any], cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        small(**given)
