"""Models that see the object alone, or the background alone, have the scores that this must give."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from cenote.backbones import Features
from cenote.data import Record, open_dataset, pack
from cenote.data.backgrounds import VARIANTS, with_background
from cenote.evaluate.background import background, coarse_classifier
from cenote.predict.embedding import Loading
from cenote.predict.progress_file import FinishedPasses
from tests.synthetic import CLASS_COLOURS, coloured_images
from tests.toy_models import PixelClassifier


def test_what_is_seen_is_what_counts(tmp_path: Path) -> None:
    dataset = coloured_images(tmp_path)
    steps: list[int] = []
    object_alone = background(
        PixelClassifier((16, 16)), dataset, loading=Loading(5, progress=steps.append)
    )  # type: ignore[arg-type]
    found = object_alone.accuracy
    assert list(found) == list(VARIANTS) and object_alone.images == 12 and object_alone.gap == 0
    assert all(
        found[v] == 100
        for v in ("original", "only_fg", "mixed_same", "mixed_rand", "mixed_next", "only_bg_t")
    )
    assert sum(steps) == 12 * 8 and object_alone.gap_interval == [0, 0]
    seen_beside = background(PixelClassifier((2, 2)), dataset)  # type: ignore[arg-type]
    low, high = seen_beside.gap_interval
    assert 0 < low < seen_beside.gap < high <= 100
    beside = seen_beside.accuracy
    assert all(
        beside[v] == 100 for v in ("original", "no_fg", "only_bg_b", "only_bg_t", "mixed_same")
    )
    assert beside["mixed_next"] == 0
    taken = [
        np.asarray(with_background(dataset, "mixed_rand").image(i))[2, 2].argmax()
        for i in range(12)
    ]
    assert beside["mixed_rand"] == pytest.approx(
        100 * np.mean([t == i % 3 for i, t in enumerate(taken)])
    )


def test_all_variants_are_judged_on_the_same_images(tmp_path: Path) -> None:
    """One object fills its image, one file is no image, one has no mask, one a class that the model does not know."""
    dataset = coloured_images(tmp_path, 9)
    Image.fromarray(np.ones((32, 32), np.uint8)).save(tmp_path / "4-mask.png")
    (tmp_path / "7.png").write_bytes(b"no image")
    records = [*dataset, Record("0.png", "a"), Record("1.png", "zebra", masks=("1-mask.png",))]
    report = background(PixelClassifier((2, 2)), pack(records, tmp_path, "made"), seed=1)  # type: ignore[arg-type]
    assert report.left_out == {"no_class": 0, "unknown_class": 1, "no_mask": 1}
    messages = " ".join(report.unreadable)
    assert "4.png" in messages and "7.png" in messages and report.images + report.dropped == 9
    (broken,) = (line for line in report.unreadable if "7.png" in line)  # one line for one file
    assert "8" in broken.partition("7.png")[2]  # in all eight variants
    assert report.dropped >= 2  # and those that were to get the background of one of the two
    assert report.accuracy["original"] == 100  # not 8 of 9
    for name in ["a", "b", "c"]:
        (tmp_path / f"{name}.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"empty.*a\.png"):
        empty = [Record(f"{n}.png", n, masks=("0-mask.png",)) for n in ["a", "b", "c"]]
        background(PixelClassifier((2, 2)), pack(empty, tmp_path, "empty"))  # type: ignore[arg-type]


def test_a_killed_run_resumes(tmp_path: Path) -> None:
    dataset, file = coloured_images(tmp_path), tmp_path / "passes.json"

    class Interrupted(FinishedPasses):
        def save(self, name: str, result: dict[str, Any]) -> None:
            super().save(name, result)
            if len(self.results) == 3:
                raise KeyboardInterrupt

    model: Any = PixelClassifier((2, 2))
    with pytest.raises(KeyboardInterrupt):
        background(model, dataset, finished=Interrupted(file, "run"))
    finished = FinishedPasses(file, "run")
    assert list(finished.results) == list(VARIANTS[:3])
    steps: list[int] = []
    resumed = background(
        model, dataset, loading=Loading(4, progress=steps.append), finished=finished
    )
    assert resumed == background(model, dataset)
    assert steps == [0] + [12] * 3 + [4] * 3 * 5  # three passes are read from the file
    assert FinishedPasses(file, "another run").results == {}
    json.dumps(resumed.to_json())


def test_imagenet_9_itself(tmp_path: Path) -> None:
    """1000 classes are mapped to nine as the metric maps them; a class of none of the nine is wrong."""
    for variant, shift in (("original", 0), ("mixed_same", 0), ("mixed_rand", 1)):
        for k, name in enumerate(("00_dog", "01_bird")):
            folder = tmp_path / variant / "val" / name
            folder.mkdir(parents=True)
            for i in range(4):
                Image.new("RGB", (32, 32), CLASS_COLOURS[(k + (shift if i == 0 else 0)) % 3]).save(
                    folder / f"{i}.JPEG"
                )
    dataset = open_dataset(f"imagenet-9:{tmp_path}")

    class Thousand(PixelClassifier):
        def __init__(self) -> None:
            super().__init__((2, 2), None)
            self.head.classes = 1000

        def classify(self, features: Features) -> torch.Tensor:
            return torch.nn.functional.pad(super().classify(features), (0, 997))

    model: Any = Thousand()
    with pytest.raises(ValueError, match=r"in_to_in9\.json.*backgrounds_challenge"):
        background(model, dataset)
    (tmp_path / "in_to_in9.json").write_text('{"0": 0}')
    with pytest.raises(ValueError, match=r"in_to_in9\.json.*\b999\b"):
        background(model, dataset)
    mapping = [0, 1, *[-1] * 998]
    (tmp_path / "in_to_in9.json").write_text(json.dumps({str(i): c for i, c in enumerate(mapping)}))
    report = background(model, dataset)
    assert (
        report.accuracy == {"original": 100, "mixed_same": 100, "mixed_rand": 75}
        and report.gap == 25
    )
    assert report.images["original"] == 8 and not report.same_images
    logits = torch.randn(50, 1000, generator=torch.Generator().manual_seed(0))
    logits[:, 2:] -= 3
    labels = torch.arange(50) % 2
    right = (coarse_classifier(model, dataset)(logits) == labels).float().mean()
    assert right == (torch.tensor(mapping)[logits.argmax(1)] == labels).float().mean()


def test_the_embedded_world_has_all_variants() -> None:
    world = open_dataset("world/tiny").select(range(12))
    model = PixelClassifier((2, 2), world.classes[:3])
    assert set(world.classes[:3]) & {record.label for record in world}
    report = background(model, world)  # type: ignore[arg-type]
    assert report.images > 0 and not report.unreadable


def test_refusals(tmp_path: Path) -> None:
    dataset = coloured_images(tmp_path)
    with pytest.raises(ValueError, match=r"'blue'.*original"):
        background(PixelClassifier((2, 2)), dataset, variants=("blue",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\bbare\b"):
        background(PixelClassifier((2, 2)), pack([Record("0.png", "a")], tmp_path, "bare"))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"made.*x, y, z"):
        background(PixelClassifier((2, 2), ["x", "y", "z"]), dataset)  # type: ignore[arg-type]
    assert background(PixelClassifier((2, 2)), dataset, variants=("original",)).gap is None  # type: ignore[arg-type]
