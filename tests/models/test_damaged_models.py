"""A file that is not a model gets a sentence and runs nothing."""

import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import cenote
from tests.models.bomb import MARK, Bomb
from tests.models.small import small


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small().save(tmp_path / "m")
    return tmp_path / "m"


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    replaced = change(config)
    path.write_text(json.dumps(config if replaced is None else replaced))


CONFIG_FAULTS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda c: [1], "no 'format'"),
    (lambda c: c.update(format=99), "format 99, made by a newer Cenote"),
    (lambda c: c.update(format="1"), "format is a number"),
    (lambda c: c.update(code="x"), "unknown key 'code'"),
    (lambda c: c.pop("model") and None, "lacks 'model'"),
    (lambda c: c.update(model=[]), "arguments of create_model"),
    (lambda c: c["model"].update(pool="simpool9"), "has no pool 'simpool9'"),
    (lambda c: c["model"].update(pool="../gap"), "pool is a name"),
    (lambda c: c["model"].update(backbone="resnet18x"), "no backbone 'resnet18x'"),
    (lambda c: c["model"].update(backbone="hf-hub:timm/resnet18"), "backbone is a name"),
    (lambda c: c["model"].update(backbone="local-dir:/etc"), "backbone is a name"),
    (lambda c: c["model"].update(weights="/etc/passwd"), "no argument 'weights'"),
    (lambda c: c["model"].update(checkpoint_path="x"), "no argument 'checkpoint_path'"),
    (lambda c: c["model"].update(pretrained=True), "no argument 'pretrained'"),
    (lambda c: c["model"].update(pretrained_cfg_overlay={"file": "x"}), "no argument 'pretrained_cfg_overlay'"),
    (lambda c: c["model"].update({"__class__": 1}), "no argument '__class__'"),
    (lambda c: c["model"].update(wibble=1), "wibble"),
    (lambda c: c["model"].update(act_layer="../../relu"), "act_layer is"),
    (lambda c: c["model"].update(depth=10**5), "depth is 100000"),
    (lambda c: c["model"].update(num_classes=10**12), "num_classes is 10"),
    (lambda c: c["model"].update(pool_options={"gama": 2}), "no option 'gama'; did you mean 'gamma'"),
    (lambda c: c["model"].update(pool_options=[]), "pool_options is a table"),
    (lambda c: c.update(class_names=["a"]), "names 1 classes, the model has 3"),
    (lambda c: c.update(class_names=[1, 2, 3]), "list of names"),
    (lambda c: c["preprocessing"].update(std=[1, 2]), "preprocessing.std"),
    (lambda c: c["preprocessing"].update(file="x"), "preprocessing has exactly"),
    (lambda c: c.update(sha256="../../x"), "sha256 is 64"),
    (lambda c: c.update(sha256="0" * 64), "digests differ"),
    (lambda c: c["model"].update(num_classes=4), "other shapes head.linear.bias, head.linear.weight"),
    (lambda c: c["model"].update(pool="gap", pool_options={}), "has besides pool.norm.bias"),
    (lambda c: c["model"].update(backbone="resnet26"), "does not fit 'resnet26'"),
]


@pytest.mark.parametrize(("change", "reason"), CONFIG_FAULTS, ids=[reason for _, reason in CONFIG_FAULTS])
def test_a_tampered_config_is_one_sentence(change: Any, reason: str, folder: Path) -> None:
    edit(folder, change)
    with pytest.raises(ValueError, match=r"(config\.json|model\.safetensors)") as caught:
        cenote.load(folder)
    assert reason in str(caught.value) and "\n" not in str(caught.value)


def drop_digest(folder: Path) -> None:
    edit(folder, lambda c: c.pop("sha256") and None)


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


WEIGHT_FAULTS: list[tuple[Callable[[Path], Any], str]] = [
    (lambda f: os.truncate(f / "model.safetensors", 10_000), "not a whole safetensors file"),
    (lambda f: os.truncate(f / "model.safetensors", 0), "not a whole safetensors file"),
    (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 5000), "not a whole safetensors file"),
    (lambda f: (f / "model.safetensors").write_bytes(pickle.dumps(Bomb())), "not a whole safetensors file"),
    (lambda f: torch.save({"a": Bomb()}, f / "model.safetensors"), "not a whole safetensors file"),
    (lambda f: rewrite(f, lambda t: t.pop("pool.wq.weight")), "lacks pool.wq.weight"),
    (lambda f: rewrite(f, lambda t: t.update(extra=torch.zeros(2))), "has besides extra"),
    (lambda f: rewrite(f, lambda t: t.update({"pool.norm.bias": torch.zeros(3)})), "other shapes pool.norm.bias"),
    (
        lambda f: rewrite(f, lambda t: t.update({"pool.norm.bias": torch.zeros(64, dtype=torch.int8)})),
        "'pool.norm.bias' holds torch.int8",
    ),
]


@pytest.mark.parametrize("digest", [True, False], ids=["with digest", "without"])
@pytest.mark.parametrize(("damage", "reason"), WEIGHT_FAULTS, ids=[str(i) for i in range(len(WEIGHT_FAULTS))])
def test_damaged_weights_are_one_sentence(damage: Any, reason: str, digest: bool, folder: Path) -> None:
    damage(folder)
    if not digest:
        drop_digest(folder)
    with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
        cenote.load(folder)
    assert "\n" not in str(caught.value) and not os.path.exists(MARK)
    assert reason in str(caught.value) or (digest and "digests differ" in str(caught.value))


def test_one_changed_byte_is_noticed(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"\x01")
    with pytest.raises(ValueError, match="digests differ"):
        cenote.load(folder)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00", '{"format": NaN}'])
def test_bad_json_is_one_sentence(text: str, folder: Path) -> None:
    (folder / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json"):
        cenote.load(folder)


def test_missing_files_are_named(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        cenote.load(folder)
    assert caught.value.filename == str(folder / "model.safetensors")
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        cenote.load(folder)
    assert caught.value.filename == str(folder / "config.json")
    with pytest.raises(FileNotFoundError):
        cenote.load(folder / "nowhere")
