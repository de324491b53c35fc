"""A saved model comes back as it was; a file that is not one gets a sentence and runs nothing."""

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import cenote
from cenote.models import PooledModel, create_model, replace_pool, save_model
from cenote.pooling import create_pool
from cenote.pooling.gap import GAP
from cenote.pooling.simpool import SimPool

NARROW: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (8, 16, 32, 64)}  # small files, quickly written


def small(pool: Any = "simpool", **options: Any) -> PooledModel:
    torch.manual_seed(0)
    return create_model("resnet18", pool, **{"num_classes": 3, **NARROW, **options}).eval()


def images(size: int = 64) -> Tensor:
    return torch.rand(2, 3, size, size, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_same(model: PooledModel, other: PooledModel, size: int = 64) -> None:
    assert torch.equal(model.eval()(images(size)), other(images(size)))
    assert other.config == model.config and not other.training


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    small().save(tmp_path / "m")
    return tmp_path / "m"


def test_everything_travels(tmp_path: Path) -> None:
    model = small(pool_options={"gamma": 2.0})
    model.class_names = ["cat", "dog", "λ"]
    model.save(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    back = cenote.load(tmp_path / "b")
    assert_same(model, back)
    assert back.class_names == model.class_names and back.backbone.preprocessing == model.backbone.preprocessing
    versions = json.loads((tmp_path / "b" / "config.json").read_text())["versions"]
    assert versions == {"cenote": cenote.__version__, "torch": torch.__version__, "timm": timm.__version__}
    assert sorted(os.listdir(tmp_path / "b")) == ["config.json", "model.safetensors"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: small(create_pool("simpool", 64, gamma=1.25, heads=2)),
        lambda: small(SimPool(64, gamma=2.0, floor="channel")),
        lambda: small("gap", head_norm="batch"),
        lambda: replace_pool(timm.create_model("resnet18", drop_path_rate=0.1), "gem", 4),
        lambda: small().to(torch.float64),
        lambda: small(num_classes=0),
        lambda: small(create_pool("ep", 64, out_dim=2048)),
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
            assert torch.equal(model(images()), back(images()))


def test_a_vit_with_cls_and_one_without(tmp_path: Path) -> None:
    for pool in ("cls", "simpool"):
        model = create_model(
            "vit_tiny_patch16_224", pool, num_classes=3, depth=-10, norm="after" if pool != "cls" else "auto"
        )
        model.save(tmp_path)  # the second over the first
        assert_same(model, cenote.load(tmp_path), 224)


def test_tied_tensors_are_saved(tmp_path: Path) -> None:
    model = small()
    assert (
        isinstance(model.pool, SimPool)
        and isinstance(model.pool.wq, nn.Linear)
        and isinstance(model.pool.wk, nn.Linear)
    )
    model.pool.wk.weight = model.pool.wq.weight
    model.save(tmp_path)
    assert_same(model, cenote.load(tmp_path))


def test_saving_leaves_the_random_numbers_alone(tmp_path: Path) -> None:
    model = small()
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    model.save(tmp_path)
    assert torch.equal(torch.rand(3), wanted)


def test_what_no_file_can_describe_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    class Mine(GAP):
        pass

    changed = small(create_pool("simpool", 64, heads=2))
    assert isinstance(changed.pool, SimPool)
    changed.pool.steps = 3
    refused: list[tuple[PooledModel, str]] = [
        (small(Mine(64)), "Mine is not a registered pool"),
        (changed, "settings it cannot name"),
        (replace_pool(timm.create_model("resnet18", act_layer="silu"), "gap", 3), "SiLU"),
        (replace_pool(timm.create_model("resnet18", in_chans=1), "gap", 3), r"conv1.weight is \(64, 1, 7, 7\)"),
    ]
    for model, reason in refused:
        with pytest.raises(ValueError, match=reason):
            model.save(tmp_path / "m")
    assert not (tmp_path / "m").exists()


def edit(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text())
    replaced = change(config)
    path.write_text(json.dumps(config if replaced is None else replaced))


MARK = os.path.join(tempfile.gettempdir(), "cenote-must-not-exist")


class Bomb:
    def __reduce__(self) -> Any:
        return os.system, (f"touch {MARK}",)


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


SAVES_FOR_EVER = """
import sys, torch
from cenote.models import create_model
from cenote.models.saving import save_model
from cenote.models import saving
model = create_model("resnet18", "gap", num_classes=3, layers=(1, 1, 1, 1), channels=(64, 64, 128, 256))
arguments = saving.arguments_of(model)
saving.arguments_of = lambda model: arguments  # the writing is what is killed here, again and again
for value in range(int(sys.argv[2]), 10**6):
    for tensor in model.state_dict().values():
        tensor.fill_(value)
    model.class_names = [str(value)] * 3
    save_model(model, sys.argv[1])
    print(value, flush=True)
"""


@pytest.mark.slow
def test_a_kill_leaves_the_old_model_or_the_new(tmp_path: Path) -> None:
    """Three processes killed with SIGKILL in the middle of their work, at moments that differ."""
    last = 0
    for delay in (0.0, 0.013, 0.029):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVES_FOR_EVER, str(tmp_path / "m"), str(last)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        first = int(process.stdout.readline())
        for _ in range(3):
            process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        saved = [first, *map(int, process.stdout.read().split())][-1]
        process.wait()
        model = cenote.load(tmp_path / "m")
        assert model.class_names is not None and len(set(model.class_names)) == 1
        last = int(model.class_names[0])
        assert last >= saved
        assert all((tensor == last).all() for tensor in model.state_dict().values())
    small().save(tmp_path / "m")
    assert sorted(os.listdir(tmp_path / "m")) == ["config.json", "model.safetensors"]


def test_every_single_step_of_a_save_can_be_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies before the n-th rename, sync or deletion, for every n: a sure version of the race above."""
    old, new = small("gap"), small("gap")
    with torch.no_grad():
        old.head.linear.bias.fill_(1.0)  # type: ignore[union-attr]
        new.head.linear.bias.fill_(2.0)  # type: ignore[union-attr]
    seen = set()
    for step in range(40):
        folder = tmp_path / str(step)
        old.save(folder)
        child = os.fork()
        if child == 0:
            count = 0

            def dying(real: Any, step: int = step) -> Any:
                def call(*args: Any, **kwargs: Any) -> Any:
                    nonlocal count
                    if count == step:
                        os._exit(9)
                    count += 1
                    return real(*args, **kwargs)

                return call

            os.replace, os.fsync, Path.unlink = dying(os.replace), dying(os.fsync), dying(Path.unlink)  # type: ignore[method-assign]
            try:
                new.save(folder)
            finally:
                os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        back = cenote.load(folder)
        bias = back.head.linear.bias[0].item()  # type: ignore[union-attr]
        assert bias in (1.0, 2.0)
        seen.add(bias)
        new.save(folder)  # and the next save cleans up
        assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]
        if code == 0:
            break
    assert seen == {1.0, 2.0} and step >= 6


def test_a_failed_save_leaves_the_old_one_and_no_litter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (folder / "config.json").read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr("cenote.models.saving.save_file", full)
    with pytest.raises(OSError, match="No space left"):
        small("gap").save(folder)
    assert sorted(os.listdir(folder)) == ["config.json", "model.safetensors"]
    assert (folder / "config.json").read_bytes() == before and cenote.load(folder).config["pool"] == "simpool"


def test_the_hub_s_verbs_use_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("the network was asked"))
    model = small()
    model.save_pretrained(tmp_path / "m")
    assert sorted(os.listdir(tmp_path / "m")) == ["README.md", "config.json", "model.safetensors"]
    assert "library_name: cenote" in (tmp_path / "m" / "README.md").read_text()
    assert_same(model, PooledModel.from_pretrained(tmp_path / "m"))
    assert_same(model, cenote.load(tmp_path / "m"))
    (tmp_path / "m" / "config.json").write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
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
        assert (repo_id, revision) == ("me/model", "v1") and set(allow_patterns) == {"config.json", "model.safetensors"}
        return str(tmp_path / "hub")

    monkeypatch.setattr("huggingface_hub.hub_mixin.HfApi", Api)
    monkeypatch.setattr("cenote.models.hub.snapshot_download", snapshot)
    model = small()
    assert model.push_to_hub("me/model") == "pushed"
    assert_same(model, PooledModel.from_pretrained("me/model", revision="v1"))
