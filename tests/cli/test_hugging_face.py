"""The commands with a model of transformers, by its name alone."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cenote.cli import main

transformers = pytest.importorskip("transformers")


def test_attend_and_fit_with_cached_features(tmp_path: Path) -> None:
    config = transformers.DINOv3ViTConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
    )
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "model")
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    photos, backbone = str(tmp_path / "photos"), ["--backbone", f"hf:{tmp_path / 'model'}"]
    image = f"{photos}/cat/0.png"
    attend = ["attend", image, *backbone, "--map", "cls", "-o", str(tmp_path / "maps")]
    assert main(attend) == 0
    assert (tmp_path / "maps" / "attention.npz").is_file()
    fit = ["fit", photos, "--freeze", "--epochs", "1", *backbone]
    assert main([*fit, "-o", str(tmp_path / "run")]) == 0
    assert main(["attend", image, "--model", str(tmp_path / "run"), "-o", str(tmp_path / "o")]) == 0
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
