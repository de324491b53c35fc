"""A file that is not a model gets a sentence and runs nothing."""

import json
import os
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import cenote
from tests.models.bomb import MARK, Bomb
from tests.toy_models import narrow_resnet


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "m"
    narrow_resnet().save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "m")


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    replaced = change(config)
    path.write_text(json.dumps(config if replaced is None else replaced))


CONFIG_FAULTS: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda c: [1], "'format'"),
    (lambda c: c.update(format=99), r"format\b.*\b99\b.*\b1\b"),
    (lambda c: c.update(format="1"), r"format\b.*'1'"),
    (lambda c: c.update(code="x"), "'code'"),
    (lambda c: c.pop("model") and None, "'model'"),
    (lambda c: c.update(model=[]), r"'model'.*\[\]"),
    (lambda c: c["model"].update(pool="simpool9"), "'simpool9'"),
    (lambda c: c["model"].update(pool="../gap"), r"pool\b.*'\.\./gap'"),
    (lambda c: c["model"].update(backbone="resnet18x"), "'resnet18x'.*'resnet18'"),
    (
        lambda c: c["model"].update(backbone="hf-hub:timm/resnet18"),
        "backbone.*'hf-hub:timm/resnet18'",
    ),
    (lambda c: c["model"].update(backbone="local-dir:/etc"), "backbone.*'local-dir:/etc'"),
    (lambda c: c["model"].update(weights="/etc/passwd"), "'weights'"),
    (lambda c: c["model"].update(checkpoint_path="x"), "'checkpoint_path'"),
    (lambda c: c["model"].update(pretrained=True), "'pretrained'"),
    (lambda c: c["model"].update(pretrained_cfg_overlay={"file": "x"}), "'pretrained_cfg_overlay'"),
    (lambda c: c["model"].update({"__class__": 1}), "'__class__'"),
    (lambda c: c["model"].update(wibble=1), "'wibble'"),
    (lambda c: c["model"].update(act_layer="../../relu"), r"act_layer.*'\.\./\.\./relu'"),
    (lambda c: c["model"].update(depth=10**5), r"depth\b.*\b100000\b"),
    (lambda c: c["model"].update(num_classes=10**12), r"num_classes\b.*\b1000000000000\b"),
    (lambda c: c["model"].update(pool_options={"gama": 2}), "'simpool'.*'gama'.*'gamma'"),
    (lambda c: c["model"].update(pool_options=[]), r"pool_options\b.*\[\]"),
    (lambda c: c.update(class_names=["a"]), r"\b1\b.*\b3\b"),
    (lambda c: c.update(class_names=[1, 2, 3]), "class_names"),
    (lambda c: c["preprocessing"].update(std=[1, 2]), r"preprocessing\.std\b.*\[1, 2\]"),
    (
        lambda c: c["preprocessing"].update(file="x"),
        r"preprocessing\b.*crop, interpolation, mean, size, std",
    ),
    (lambda c: c.update(sha256="../../x"), r"sha256\b.*\b64\b.*'\.\./\.\./x'"),
    (lambda c: c.update(sha256="0" * 64), r"model\.safetensors.*config\.json"),
    (lambda c: c["model"].update(num_classes=4), r"head\.linear\.weight.*head\.linear\.bias"),
    (lambda c: c["model"].update(pool="gap", pool_options={}), r"'gap'.*pool\.norm\.bias"),
    (lambda c: c["model"].update(backbone="resnet26"), "'resnet26'"),
]


@pytest.mark.parametrize(
    ("change", "values"), CONFIG_FAULTS, ids=[values for _, values in CONFIG_FAULTS]
)
def test_a_tampered_config_is_refused(change: Any, values: str, folder: Path) -> None:
    edit(folder, change)
    with pytest.raises(ValueError, match=r"(config\.json|model\.safetensors)") as caught:
        cenote.load(folder)
    message = str(caught.value).replace(str(folder), "")
    assert re.search(values, message) and "\n" not in message, message


def drop_digest(folder: Path) -> None:
    edit(folder, lambda c: c.pop("sha256") and None)


def rewrite(folder: Path, change: Callable[[dict[str, Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


WEIGHT_FAULTS: list[tuple[Callable[[Path], Any], str]] = [
    (lambda f: os.truncate(f / "model.safetensors", 10_000), ""),
    (lambda f: os.truncate(f / "model.safetensors", 0), ""),
    (lambda f: (f / "model.safetensors").write_bytes(b"\xff" * 5000), ""),
    (lambda f: (f / "model.safetensors").write_bytes(pickle.dumps(Bomb())), ""),
    (lambda f: torch.save({"a": Bomb()}, f / "model.safetensors"), ""),
    (lambda f: rewrite(f, lambda t: t.pop("pool.wq.weight")), r"pool\.wq\.weight"),
    (lambda f: rewrite(f, lambda t: t.update(extra=torch.zeros(2))), "extra"),
    (
        lambda f: rewrite(f, lambda t: t.update({"pool.norm.bias": torch.zeros(3)})),
        r"pool\.norm\.bias",
    ),
    (
        lambda f: rewrite(
            f, lambda t: t.update({"pool.norm.bias": torch.zeros(64, dtype=torch.int8)})
        ),
        r"pool\.norm\.bias.*torch\.int8",
    ),
]


@pytest.mark.parametrize("digest", [True, False], ids=["with digest", "without"])
@pytest.mark.parametrize(
    ("damage", "values"), WEIGHT_FAULTS, ids=[str(i) for i in range(len(WEIGHT_FAULTS))]
)
def test_damaged_weights_are_refused(damage: Any, values: str, digest: bool, folder: Path) -> None:
    damage(folder)
    if not digest:
        drop_digest(folder)
    with pytest.raises(ValueError, match=r"model\.safetensors") as caught:
        cenote.load(folder)
    assert "\n" not in str(caught.value) and not os.path.exists(MARK)
    expected = (
        r"config\.json" if digest and values else values
    )  # of a readable file, the digest differs first
    assert re.search(expected, str(caught.value))


def test_one_changed_byte_is_noticed(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(-5, os.SEEK_END)
        file.write(b"\x01")
    with pytest.raises(ValueError, match=r"model\.safetensors.*config\.json"):
        cenote.load(folder)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "\x00", '{"format": NaN}'])
def test_bad_json_is_refused(text: str, folder: Path) -> None:
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


def test_a_model_that_is_larger_than_its_weights(tmp_path: Path) -> None:
    """The configuration asks for a billion parameters, and is refused before they are built."""
    narrow_resnet("gap").save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    config["model"] = {**config["model"], "backbone": "vit_giant_patch14_224"}
    for name in ("layers", "channels"):
        config["model"].pop(name, None)
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="more parameters than"):
        cenote.load(tmp_path / "m")


@pytest.mark.parametrize(("key", "value"), [("interpolation", "magic"), ("size", 65536)])
def test_preprocessing_that_no_model_has(key: str, value: object, tmp_path: Path) -> None:
    narrow_resnet("gap").save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    config = json.loads(path.read_text())
    config["preprocessing"][key] = value
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"preprocessing.{key}"):
        cenote.load(tmp_path / "m")
