"""An image-text model of two processes is that of one: their images and texts are compared with each other's."""

from pathlib import Path

from safetensors.torch import load_file

from .processes import by_one_and_by_two, same_weights

SCRIPT = """
import sys
from dataclasses import replace
from pathlib import Path
from cenote.train.clip_choices import DEFAULTS, ClipChoices
from cenote.train.clip_fit import learn_clip
from tests.train.conftest import squares

settings = replace(DEFAULTS, epochs=2, batch=6, warmup=0.0, optimizer="sgd", lr=0.05)  # Adam makes steps of noise
asked = ClipChoices("test_vit", scratch=True, size=32, dim=8, width=16, layers=1, heads=2, settings=settings)
learn_clip(squares(24), Path(sys.argv[1]), asked, say=lambda sentence: None)
"""


def test_two_processes_train_what_one_trains(tmp_path: Path) -> None:
    alone, together = by_one_and_by_two(SCRIPT, tmp_path)
    for file in ("model.safetensors", "text.safetensors"):
        same_weights(load_file, (alone / file, together / file), rtol=1e-3, atol=2e-5)
