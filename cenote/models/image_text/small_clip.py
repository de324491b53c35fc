"""A small CLIP of our own: any backbone with any pool, and a small text transformer.

In a folder, config.json and model.safetensors are the image model's: `cenote.load` and
`cenote attend` read it, too. text.json and text.safetensors are the text encoder's; text.json has
the digests of both files of weights. Nothing is pickled.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...backbones.sources import sha256
from ...data.files import write_atomically
from ...unit import unit
from ..pooled import PooledModel, load
from ..saving import WEIGHTS, read_checked, save_model
from .image_only import ImageEncoder
from .interface import Embed, EmbedTexts, encode_texts, encode_with_word, identity_of
from .synsets import content_words
from .text_encoder import TextTower, Words

FORMAT = 1
TEXT, TEXT_WEIGHTS = "text.json", "text.safetensors"
KEYS = {"format", "text", "words", "things", "image", "sha256"}
SIZES = {"context", "width", "layers", "heads"}
LARGEST = 1 << 16  # beyond any width of a small text encoder


class SmallClip(ImageEncoder):
    """`image` has an embedding of as many numbers as `text` gives. `cenote clip` trains it.

    `things`: what the things of its training images are called, the words by which FreeDom can
    describe an image.
    """

    def __init__(
        self,
        image: PooledModel,
        text: TextTower,
        words: Words,
        name: str = "clip",
        things: Sequence[str] = (),
    ) -> None:
        super().__init__(image, name)
        self.text, self.words, self.things = text, words, list(things)
        # Of similarities in training, as CLIP's begins.
        self.scale = nn.Parameter(torch.tensor(1 / 0.07).log())
        self.word_dim = text.embedding.embedding_dim

    @property
    def identity(self) -> str:
        name = f"clip/{self.image.config['backbone']}/{self.image.config['pool']}"
        return identity_of(
            name, self.image, self.text, self.words.vocabulary, self.image.backbone.preprocessing
        )

    def position_encoder(self) -> tuple[PooledModel, Embed, EmbedTexts]:
        return self.image, unit, self.embed_texts

    @torch.no_grad()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        device = self.scale.device
        return encode_texts(
            lambda batch: self.text(self.words.encode(batch).to(device)),
            texts,
            lambda: torch.empty(0, self.dim, device=device),
        )

    def unknown(self, text: str) -> list[str]:
        """What training never said of an image: its answers to that are guesses."""
        return self.words.unknown(text)

    @property
    def known_names(self) -> list[str]:
        return self.things or self.words.vocabulary

    @property
    def spellings(self) -> list[str]:
        return self.words.vocabulary

    def familiarity(self, text: str) -> float:
        """The share of its words that training said of an image, without "a photo of"."""
        words = content_words(text) or [text]
        return sum(not self.unknown(word) for word in words) / max(len(words), 1)

    def unknown_words(self, text: str) -> list[str]:
        return [word for word in dict.fromkeys(content_words(text)) if self.unknown(word)]

    def embed_with_word(self, template: str, word: Tensor) -> Tensor:
        return encode_with_word(self.text, self.words.encode, self.text.embedding, template, word)


def save_image_text(model: SmallClip, folder: str | Path) -> None:
    """text.json comes last: a folder without it, or with that of another model, is refused."""
    folder = Path(folder)
    save_model(model.image, folder)
    tensors = {**model.text.state_dict(), "scale": model.scale}
    tensors = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    with write_atomically(folder / TEXT_WEIGHTS) as temporary:
        save_file(tensors, temporary)
    config = {
        "format": FORMAT,
        "text": model.text.options,
        "words": model.words.vocabulary,
        "things": model.things,
        "image": sha256(folder / WEIGHTS),
        "sha256": sha256(folder / TEXT_WEIGHTS),
    }
    with write_atomically(folder / TEXT) as temporary:
        temporary.write_text(json.dumps(config, ensure_ascii=False) + "\n", encoding="utf-8")


def load_image_text(folder: str | Path) -> SmallClip:
    """Load what `save_image_text` wrote, frozen and in evaluation mode."""
    folder = Path(folder)
    if not (folder / TEXT).is_file():
        raise ValueError(
            f"{folder} is not an image-text model: it has no {TEXT} (cenote clip writes one)"
        )
    config = read_checked(folder / TEXT, _problems)
    for file, key in ((WEIGHTS, "image"), (TEXT_WEIGHTS, "sha256")):
        if not (folder / file).is_file() or sha256(folder / file) != config[key]:
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


def _problems(config: Any) -> Iterator[str]:
    """Yield what is wrong; only the first counts, later checks rely on the earlier ones."""
    if not isinstance(config, dict) or set(config) != KEYS:
        yield f"the file of a text encoder has exactly the keys {', '.join(sorted(KEYS))}"
    if config["format"] != FORMAT:
        yield f"format {config['format']!r:.80}, this Cenote reads {FORMAT}"
    for key in ("words", "things"):
        if not isinstance(config[key], list) or not all(isinstance(w, str) for w in config[key]):
            yield f"{key} is a list of words"
    sizes = config["text"]
    if (
        not isinstance(sizes, dict)
        or set(sizes) != SIZES
        or not all(type(size) is int and 0 < size <= LARGEST for size in sizes.values())
        or sizes["layers"] > 1024
    ):
        yield f"text has the numbers {', '.join(sorted(SIZES))}, got {sizes!r:.80}"
