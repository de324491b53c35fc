"""A small CLIP in a folder: the image model as any other, with its text encoder beside it. Nothing
is pickled.

config.json and model.safetensors are the image model's: `cenote.load` and `cenote attend` read the
folder, too. text.json and text.safetensors are the text encoder's; text.json has the digests of
both files of weights.
"""

from __future__ import annotations

import json
from hashlib import file_digest
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from ...data.files import write_atomically
from ..saving import WEIGHTS, load, save_model
from .small import SmallClip
from .text_tower import TextTower
from .words import Words

FORMAT = 1
TEXT, TEXT_WEIGHTS = "text.json", "text.safetensors"
KEYS = {"format", "text", "words", "things", "image", "sha256"}
LARGEST = 1 << 16  # beyond any width of a small text encoder


def save_image_text(model: SmallClip, folder: str | Path) -> None:
    """text.json comes last: a folder without it, or with that of another model, is refused."""
    folder = Path(folder)
    save_model(model.image, folder)
    tensors: dict[str, Tensor] = {**model.text.state_dict(), "scale": model.scale.detach()}
    with write_atomically(folder / TEXT_WEIGHTS) as temporary:
        save_file(
            {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, temporary
        )
    config = {"format": FORMAT, "text": model.text.options, "words": model.words.vocabulary}
    config["things"] = model.things
    config |= {"image": _digest(folder / WEIGHTS), "sha256": _digest(folder / TEXT_WEIGHTS)}
    with write_atomically(folder / TEXT) as temporary:
        temporary.write_text(json.dumps(config, ensure_ascii=False) + "\n", encoding="utf-8")


def load_image_text(folder: str | Path) -> SmallClip:
    """What `save_image_text` wrote, frozen and in evaluation mode. Whatever is wrong is one
    sentence.
    """
    folder = Path(folder)
    config = _read(folder / TEXT)
    for file, key in ((WEIGHTS, "image"), (TEXT_WEIGHTS, "sha256")):
        if not (folder / file).is_file() or _digest(folder / file) != config[key]:
            raise ValueError(
                f"{folder / file} is not the one that {TEXT} names: resume the run that was to write it"
            )
    image = load(folder)
    options = config["text"]
    words = Words(config["words"], options["context"])
    state = load_file(folder / TEXT_WEIGHTS)
    try:
        text = TextTower(len(words), image.vector_dim, **options)
        model = SmallClip(image, text, words, folder.resolve().name, config["things"])
        model.scale.data.copy_(state.pop("scale"))
        model.text.load_state_dict(state)
    except (RuntimeError, KeyError, TypeError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise ValueError(f"{folder / TEXT} does not fit {TEXT_WEIGHTS}: {first[:200]}") from error
    return model.eval().requires_grad_(False)


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(
            f"{path.parent} is no image-text model: it has no {TEXT} (cenote clip writes one)"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(config, dict) or set(config) != KEYS:
        raise ValueError(
            f"{path} is not a Cenote text encoder's: it has exactly the keys {', '.join(sorted(KEYS))}"
        )
    if config["format"] != FORMAT:
        raise ValueError(f"{path} has format {config['format']!r:.80}: this Cenote reads {FORMAT}")
    options = config["text"]
    for key in ("words", "things"):
        if not isinstance(config[key], list) or not all(
            isinstance(word, str) for word in config[key]
        ):
            raise ValueError(f"{path}: {key} is a list of words")
    names = {"context", "width", "layers", "heads"}
    numbers = isinstance(options, dict) and all(
        type(v) is int and 0 < v <= LARGEST for v in options.values()
    )
    if not numbers or set(options) != names or options["layers"] > 1024:
        raise ValueError(
            f"{path}: text has the numbers {', '.join(sorted(names))}, got {options!r:.80}"
        )
    return config


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
