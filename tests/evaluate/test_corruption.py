"""Accuracies by corruption are those of images corrupted one by one, and mCE is the metric's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.backbones import Features
from cenote.data import Record, open_dataset, pack
from cenote.data.corruptions import CORRUPTIONS, corrupt
from cenote.data.samplers import mix_seed
from cenote.evaluate.corruption import corrupt_for, corruption
from cenote.evaluate.imagenet_a import among_own_classes
from cenote.evaluate.per_image_correct import best_of_known
from cenote.metrics.robustness import corruption_error
from cenote.predict.embedding import Loading
from cenote.predict.progress_file import FinishedPasses
from tests.synthetic import CLASS_COLOURS, coloured_images
from tests.toy_models import PixelClassifier


def faint(folder: Path, images: int = 30) -> Any:
    """Classes that differ little: noise hides them now and then."""
    dataset = coloured_images(folder, images)
    for i in range(images):
        colour = np.array(CLASS_COLOURS[i % 3]) * 0.15 + 90
        Image.new("RGB", (32, 32), tuple(colour.astype(int).tolist())).save(folder / f"{i}.png")
    return dataset


def test_accuracies_are_those_of_single_images(tmp_path: Path) -> None:
    dataset, model = faint(tmp_path), PixelClassifier((16, 16))
    steps: list[int] = []
    report = corruption(
        model,
        dataset,
        ["gaussian_noise", "contrast"],
        (1, 5),
        seed=7,
        loading=Loading(progress=steps.append),
    )  # type: ignore[arg-type]
    assert report.clean == 100 and sum(steps) == 30 * 5 and report.mce is None
    assert "15" in report.notes[0]
    for level in (1, 5):
        right = tied = 0
        for i in range(30):
            pixels = corrupt(np.asarray(dataset.image(i)), "gaussian_noise", level, mix_seed(7, i))
            red_green_blue = [int(value) for value in pixels[16, 16]]
            others = [value for channel, value in enumerate(red_green_blue) if channel != i % 3]
            right += red_green_blue[i % 3] > max(others)
            tied += red_green_blue[i % 3] == max(others)  # rounding decides
        accuracy = report.accuracy["gaussian_noise"][str(level)]
        assert 100 * right / 30 - 1e-3 < accuracy < 100 * (right + tied) / 30 + 1e-3
    assert report.accuracy["gaussian_noise"]["5"] < report.accuracy["gaussian_noise"]["1"]
    assert report.mean_accuracy == pytest.approx(
        np.mean([share for by in report.accuracy.values() for share in by.values()])
    )


def test_mce_is_the_metrics(tmp_path: Path) -> None:
    file = tmp_path / "passes.json"
    dataset, model = faint(tmp_path, 6), PixelClassifier((16, 16))
    report = corruption(model, dataset, finished=FinishedPasses(file))  # type: ignore[arg-type]
    errors = {name: [1 - s / 100 for s in by.values()] for name, by in report.accuracy.items()}
    expected = corruption_error(errors, 1 - report.clean / 100)  # type: ignore[operator]
    assert report.mce == pytest.approx(100 * expected.mce)
    assert report.relative_mce == pytest.approx(100 * expected.relative_mce)  # type: ignore[operator]
    for word in ("AlexNet", "frost"):
        assert any(word in note for note in report.notes)
    finished = FinishedPasses(file)
    assert len(finished.results) == 76
    del finished.results["fog/2"]
    forwards: list[int] = []
    model.backbone.register_forward_hook(lambda module, images, out: forwards.append(len(out[0])))
    again = corruption(model, dataset, finished=finished)  # type: ignore[arg-type]
    assert again == report and forwards == [6]  # one pass
    json.dumps(report.to_json())


def test_a_sixteenth_corruption_does_not_change_mce(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cenote.data.corruptions import registry

    def inverted(pixels: Any, severity: int, rng: Any) -> Any:
        return 255 - pixels

    entry = registry.RegisteredCorruption(16, "inverted", "digital", inverted)
    monkeypatch.setitem(registry._registry, "inverted", entry)
    dataset, model = faint(tmp_path, 3), PixelClassifier((16, 16))
    published = corruption(model, dataset)  # type: ignore[arg-type]
    monkeypatch.setitem(CORRUPTIONS, "inverted", inverted)
    report = corruption(model, dataset)  # type: ignore[arg-type]
    assert report.mce == published.mce and set(report.accuracy["inverted"]) == set("12345")


def test_what_cannot_be_read_counts_nowhere(tmp_path: Path) -> None:
    dataset = faint(tmp_path, 6)
    (tmp_path / "2.png").write_bytes(b"")
    records = [*dataset, Record("0.png"), Record("0.png", "zebra")]
    report = corruption(
        PixelClassifier((16, 16)), pack(records, tmp_path, "made"), ["contrast"], [1]
    )  # type: ignore[arg-type]
    assert report.images == 5 and report.left_out == {"no_class": 1, "unknown_class": 1}
    assert len(report.unreadable) == 1 and "2.png" in report.unreadable[0]


def test_images_are_those_of_every_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracies are of images that were read in all passes, and so is their number."""
    from cenote.data import BadImage
    from cenote.data.corruptions.registry import CorruptedPixels

    plain = CorruptedPixels.image

    def fails(self: CorruptedPixels, row: int) -> Image.Image:
        if (self.name, row) in {("fog", 0), ("contrast", 1)}:
            raise BadImage(f"{row}.png", "it is gone")
        return plain(self, row)

    monkeypatch.setattr(CorruptedPixels, "image", fails)
    report = corruption(PixelClassifier((16, 16)), faint(tmp_path, 6), ["fog", "contrast"], [1])  # type: ignore[arg-type]
    assert report.images == 4 and len(report.unreadable) == 2


def test_images_are_resized_as_the_model_resizes(tmp_path: Path) -> None:
    import dataclasses

    from cenote.data.corruptions import with_corruption

    model: Any = PixelClassifier((16, 16))
    own = dataclasses.replace(model.backbone.preprocessing, size=20, interpolation="nearest")
    model.backbone.preprocessing = own
    dataset = coloured_images(tmp_path, 1)
    Image.effect_noise((32, 32), 90).convert("RGB").save(tmp_path / "0.png")
    found = corrupt_for(model, dataset, 3, "contrast", 1).image(0)
    wanted = with_corruption(dataset, "contrast", 1, 3, 20, interpolation="nearest").image(0)
    other = with_corruption(dataset, "contrast", 1, 3, 20, interpolation="bicubic").image(0)
    assert np.array_equal(np.asarray(found), np.asarray(wanted))
    assert not np.array_equal(np.asarray(found), np.asarray(other))


def wordnet() -> list[str]:
    """Three of ImageNet's ids, the last three of the thousand."""
    from timm.data.imagenet_info import ImageNetInfo

    return list(ImageNetInfo("imagenet-1k").label_names())[-3:]


class Thousand(PixelClassifier):
    """ImageNet's head: the three colours are its last classes, the first class is said with force."""

    def __init__(self, force: float = 0.0) -> None:
        super().__init__((16, 16), None)
        self.head.classes, self.force = 1000, force

    def classify(self, features: Features) -> torch.Tensor:
        logits = torch.nn.functional.pad(super().classify(features), (997, 0))
        logits[:, 0] = self.force
        return logits


def test_imagenet_c_as_published(tmp_path: Path) -> None:
    for level in ("1", "3"):
        for k, wnid in enumerate(wordnet()):
            folder = tmp_path / "noise" / "shot_noise" / level / wnid
            folder.mkdir(parents=True)
            for i in range(2):
                wrong = level == "3" and i == 0
                Image.new("RGB", (32, 32), CLASS_COLOURS[(k + wrong) % 3]).save(
                    folder / f"{i}.JPEG"
                )
    model: Any = Thousand()
    dataset = open_dataset(f"imagenet-c:{tmp_path}")
    report = corruption(model, dataset, severities=(1, 3))
    assert report.accuracy == {"shot_noise": {"1": 100, "3": 50}}  # all that is there
    assert report.clean is None and report.images == 6 and report.seed is None
    with pytest.raises(ValueError, match=r"shot_noise\b.*\b2\b"):
        corruption(model, dataset)
    with pytest.raises(ValueError, match=r"\bfog\b.*\b1\b"):
        corruption(model, dataset, ["fog"])


def test_imagenet_a_is_asked_for_its_own_classes(tmp_path: Path) -> None:
    for k, wnid in enumerate(wordnet()):
        (tmp_path / wnid).mkdir()
        for i in range(2):
            Image.new("RGB", (32, 32), CLASS_COLOURS[(k + (i == 1 and k == 0)) % 3]).save(
                tmp_path / wnid / f"{i}.jpg"
            )
    dataset = open_dataset(f"imagenet-a:{tmp_path}")
    model: Any = Thousand(force=9.0)  # would always say class 0, which is none of the three
    report = among_own_classes(model, dataset)
    assert report.accuracy == pytest.approx(100 * 5 / 6)
    assert (report.classes, report.images) == (3, 6)
    logits, own = (
        torch.randn(40, 10, generator=torch.Generator().manual_seed(1)),
        torch.tensor([3, 9, 4]),
    )
    labels = torch.arange(40) % 3
    right = (best_of_known(own, torch.arange(3))(logits) == labels).float().mean()
    assert right == (logits[:, own].argmax(1) == labels).float().mean()


def test_refusals(tmp_path: Path) -> None:
    dataset: Any = faint(tmp_path, 3)
    model: Any = PixelClassifier((16, 16))
    with pytest.raises(ValueError, match=r"'rain'.*fog"):
        corruption(model, dataset, ["rain"])
    with pytest.raises(ValueError, match=r"severity.*\b0\b"):
        corruption(model, dataset, list(CORRUPTIONS), [0])
    model.head = None
    with pytest.raises(ValueError, match="head"):
        corruption(model, dataset)
