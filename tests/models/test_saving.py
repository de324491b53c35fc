"""A saved model comes back as it was, also by way of the hub."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from torch import nn

import cenote
from cenote.models import PooledModel, create_model, replace_pool, save_model
from cenote.pooling import create_pool
from cenote.pooling.gap import GAP
from cenote.pooling.simpool import SimPool
from tests.toy_models import assert_same_model, images, narrow_resnet


def test_everything_travels(tmp_path: Path) -> None:
    model = narrow_resnet(pool_options={"gamma": 2.0})
    model.class_names = ["cat", "dog", "λ"]
    model.save(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    back = cenote.load(tmp_path / "b")
    assert_same_model(model, back)
    assert (
        back.class_names == model.class_names
        and back.backbone.preprocessing == model.backbone.preprocessing
    )
    versions = json.loads((tmp_path / "b" / "config.json").read_text())["versions"]
    assert versions == {
        "cenote": cenote.__version__,
        "torch": torch.__version__,
        "timm": timm.__version__,
    }
    assert sorted(os.listdir(tmp_path / "b")) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: narrow_resnet(create_pool("simpool", 64, gamma=1.25, heads=2)),
        lambda: narrow_resnet(SimPool(64, gamma=2.0, floor="channel")),
        lambda: narrow_resnet("gap", head_norm="batch"),
        lambda: replace_pool(timm.create_model("test_resnet", drop_path_rate=0.1), "gem", 4),
        lambda: narrow_resnet().to(torch.float64),
        lambda: narrow_resnet(num_classes=0),
        lambda: narrow_resnet(create_pool("ep", 64, out_dim=2048)),
    ],
    ids=["pool object", "pool class", "batch norm", "replace_pool", "float64", "no head", "wide"],
)
def test_comes_back_the_same(make: Callable[[], PooledModel], tmp_path: Path) -> None:
    model = make().eval()
    save_model(model, tmp_path)
    back = cenote.load(tmp_path)
    wanted = model.state_dict()
    assert all(
        torch.equal(value, wanted[name]) and value.dtype == wanted[name].dtype
        for name, value in back.state_dict().items()
    )
    if next(model.parameters()).dtype == torch.float32:
        with torch.no_grad():
            torch.testing.assert_close(back(images()), model(images()))


def test_the_first_map_and_its_size(tmp_path: Path) -> None:
    model = narrow_resnet()
    assert model.map_kinds()[:2] == ["pool", "cam"]
    model.map_size = 448
    model.save(tmp_path)
    back = cenote.load(tmp_path)
    assert back.map_side("auto") == back.map_side("pool") == 448
    assert back.map_side("cam") == back.backbone.preprocessing.size  # another map than the first
    model.map_kind = "cam"
    model.save(tmp_path)
    back = cenote.load(tmp_path)
    assert back.map_kinds()[:2] == ["cam", "pool"] and back.map_side("cam") == 448
    config = json.loads((tmp_path / "config.json").read_text())
    for wrong in ({"map_size": -1}, {"map_kind": "x"}):
        (tmp_path / "config.json").write_text(json.dumps(config | wrong))
        with pytest.raises(ValueError, match=next(iter(wrong))):
            cenote.load(tmp_path)


def test_a_vit_with_cls_and_one_without(tmp_path: Path) -> None:
    for pool in ("cls", "simpool"):
        model = create_model(
            "vit_micro", pool, num_classes=3, norm="after" if pool != "cls" else "auto"
        )
        model.save(tmp_path)  # the second over the first
        assert_same_model(model, cenote.load(tmp_path))


def test_tied_tensors_are_saved(tmp_path: Path) -> None:
    model = narrow_resnet()
    assert (
        isinstance(model.pool, SimPool)
        and isinstance(model.pool.wq, nn.Linear)
        and isinstance(model.pool.wk, nn.Linear)
    )
    model.pool.wk.weight = model.pool.wq.weight
    model.save(tmp_path)
    assert_same_model(model, cenote.load(tmp_path))


def test_saving_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    model = narrow_resnet()
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    model.save(tmp_path)
    assert torch.equal(torch.rand(3), wanted)


def test_what_no_file_can_describe_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Mine(GAP):
        pass

    changed = narrow_resnet(create_pool("simpool", 64, heads=2))
    assert isinstance(changed.pool, SimPool)
    changed.pool.steps = 3
    refused: list[tuple[PooledModel, str]] = [
        (narrow_resnet(Mine(64)), "Mine"),
        (changed, "'simpool'"),
        (replace_pool(timm.create_model("test_resnet", act_layer="silu"), "gap", 3), "SiLU"),
        (
            replace_pool(timm.create_model("test_resnet", in_chans=1), "gap", 3),
            r"conv1.*weight.* 1, 3, 3\)",
        ),
    ]
    for model, reason in refused:
        with pytest.raises(ValueError, match=reason):
            model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_the_hub_s_verbs_use_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was asked"))
    model = narrow_resnet()
    model.save_pretrained(tmp_path / "m")
    assert sorted(os.listdir(tmp_path / "m")) == ["README.md", "config.json", "model.safetensors"]
    assert "library_name: cenote" in (tmp_path / "m" / "README.md").read_text()
    assert_same_model(model, PooledModel.from_pretrained(tmp_path / "m"))
    assert_same_model(model, cenote.load(tmp_path / "m"))
    (tmp_path / "m" / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json"):
        PooledModel.from_pretrained(str(tmp_path / "m"))


def test_push_and_pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub made of a folder: what is pushed is what `from_pretrained` asks for."""
    import shutil

    class Api:
        def __init__(self, token: Any = None) -> None: ...

        def create_repo(self, repo_id: str, **_: Any) -> Any:
            return type("Repo", (), {"repo_id": repo_id})

        def upload_folder(self, folder_path: Path, **_: Any) -> str:
            shutil.copytree(folder_path, tmp_path / "hub")
            return "pushed"

    def snapshot(repo_id: str, allow_patterns: list[str], revision: str) -> str:
        assert (repo_id, revision) == ("me/model", "v1") and set(allow_patterns) == {
            "config.json",
            "model.safetensors",
        }
        return str(tmp_path / "hub")

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    monkeypatch.setattr("cenote.models.saving.snapshot_download", snapshot)
    model = narrow_resnet()
    assert model.push_to_hub("me/model") == "pushed"
    assert_same_model(model, PooledModel.from_pretrained("me/model", revision="v1"))


@pytest.mark.parametrize(("backbone", "gamma"), [("vit_micro", 1.25), ("resnet_micro", 2.0)])
def test_simpool_has_the_papers_exponent(backbone: str, gamma: float, tmp_path: Path) -> None:
    model = create_model(backbone, "simpool", 3)
    save_model(model, tmp_path)
    loaded = cenote.load(tmp_path).pool
    assert loaded is not None and loaded.gamma == gamma
    assert loaded.label == f"simpool (gamma {gamma:g})"
    released = create_model(backbone, "simpool", 3, pool_options={"gamma": None}).pool
    assert released is not None and released.label == "simpool (no gamma)"


def test_a_model_of_an_earlier_version_has_no_exponent(tmp_path: Path) -> None:
    save_model(create_model("vit_micro", "simpool", 3, pool_options={"gamma": None}), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    config["model"]["pool_options"] = {}
    path.write_text(json.dumps(config))
    model = cenote.load(tmp_path)
    assert model.pool is not None and model.pool.gamma is None
    save_model(model, tmp_path / "again")
    assert cenote.load(tmp_path / "again").pool.gamma is None  # type: ignore[union-attr]
