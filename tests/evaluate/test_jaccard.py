"""The attention Jaccard protocol: heads' masks in patches at 480 pixels, the best head per class, images averaged."""

from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from PIL import Image

from cenote.backbones import Backbone
from cenote.data import Dataset, Record, pack
from cenote.evaluate.jaccard import jaccard
from cenote.models.attention_maps import cls_attention
from tests.toy_models import narrow_resnet


def segmented(folder: Path, count: int = 3) -> Dataset:
    """Noise with class maps: two classes, void between them."""
    draw = np.random.default_rng(0)
    records = []
    for i in range(count):
        Image.fromarray(draw.integers(0, 255, (60 + 20 * i, 90, 3), np.uint8)).save(
            folder / f"{i}.png"
        )
        mask = np.zeros((60 + 20 * i, 90), np.uint8)
        mask[10:40, 5:30], mask[10:40, 30:35], mask[20:50, 50:85] = 3, 255, 7
        Image.fromarray(mask).save(folder / f"{i}.mask.png")
        records.append(Record(f"{i}.png", masks=(f"{i}.mask.png",)))
    return pack(records, folder, "segmented", mask_codes="classes")


def vit() -> Backbone:
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", depth=2, embed_dim=48, dynamic_img_size=True)
    torch.nn.init.normal_(model.blocks[-1].attn.qkv.weight, std=0.3)
    return Backbone(model.eval(), "vit")


def by_hand(backbone: Backbone, dataset: Dataset, size: int, compat: bool) -> float:
    scores = []
    for i in range(len(dataset)):
        with torch.no_grad():
            maps = cls_attention(
                backbone,
                backbone.preprocessing.whole((size, size))(dataset.image(i))[None],
                heads="all",
            )
        raw = np.asarray(Image.open(dataset.root / f"{i}.mask.png"))
        target = np.zeros((size, size), int)
        for y in range(size):
            for x in range(size):
                target[y, x] = raw[y * raw.shape[0] // size, x * raw.shape[1] // size]
        per_class = []
        for value in (3, 7):
            best = 0.0
            for head in maps[0].double().numpy():
                order = sorted(np.ndindex(head.shape), key=lambda place: -head[place])
                mask, held = np.zeros(head.shape, bool), 0.0
                for place in order:
                    if held >= 0.6 * head.sum():
                        break
                    mask[place], held = True, held + head[place]
                wide = np.kron(mask, np.ones((16, 16))).astype(bool)
                own, counted = target == value, (target != 255) | compat
                best = max(best, (wide & own).sum() / ((wide | own) & counted).sum())
            per_class.append(best)
        scores.append(np.mean(per_class))
    return 100 * float(np.mean(scores))


def test_equal_to_the_protocol_by_hand(tmp_path: Path) -> None:
    backbone, dataset = vit(), segmented(tmp_path)
    report = jaccard(backbone, dataset, size=96)
    for value, compat in ((report.jaccard, False), (report.jaccard_compat, True)):
        assert value == pytest.approx(by_hand(backbone, dataset, 96, compat), abs=1e-9)
    assert (report.images, report.without_object, report.unreadable) == (3, 0, [])


def test_images_without_object_and_bad_ones_are_left_out_and_told(tmp_path: Path) -> None:
    dataset = segmented(tmp_path)
    expected = jaccard(vit(), dataset.select([2]), size=96).jaccard
    Image.fromarray(np.zeros((60, 90), np.uint8)).save(tmp_path / "0.mask.png")
    (tmp_path / "1.png").write_bytes(b"no picture")
    found = jaccard(vit(), dataset, size=96)
    assert (found.images, found.without_object) == (1, 1)
    assert found.jaccard == pytest.approx(expected)
    assert len(found.unreadable) == 1 and "1.png" in found.unreadable[0]
    with pytest.raises(ValueError, match="segmented"):
        jaccard(vit(), dataset.select([0]), size=96)


def test_a_model_s_own_map_counts_where_its_pool_attends(tmp_path: Path) -> None:
    found = jaccard(narrow_resnet(num_classes=0), segmented(tmp_path), size=128)
    assert 0 < found.jaccard < 100 and found.images == 3


def test_a_data_set_without_masks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bare"):
        jaccard(vit(), pack([Record("a.png")], tmp_path, "bare"))
