"""Search by text without an image-text model: ConSE (Norouzi et al., 2014), the convex combination
of class names.

An ImageNet classifier says what an image may be; the image's vector is the mean of those classes'
texts, weighted by their probabilities. What a class is called and how many of them count:
benchmarks/text_space.py measures it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ...backbones import create_backbone
from ...backbones.preprocessing import Transform
from ...extras import MissingExtra
from ...options import check_choice, check_number
from ...unit import unit
from .interface import encode_texts, identity_of

CLASS_TEXTS = ("first name", "names", "names and definitions")
WEIGHTS = Path("weights") / "l2_supercat_256.safetensors"
TOKENIZER = Path("tokenizers") / "l2_supercat_tokenizer_config.json"


class WordVectors(nn.Module):
    """`words(texts)` -> (N, 256): the mean of WordLlama's vectors of their tokens, which are in its
    wheel. Nothing is downloaded, ever.

    The files are read without importing the package, which would set up logging.
    """

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        spec = find_spec("wordllama")
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtra(
                "the text-space model needs the word vectors of 'wordllama': pip install wordllama"
            )
        folder = Path(spec.submodule_search_locations[0])
        from tokenizers import Tokenizer

        self.tokenizer: Any = Tokenizer.from_file(str(folder / TOKENIZER))
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.register_buffer("table", load_file(folder / WEIGHTS)["embedding.weight"].float())
        self.dim = int(self.table.shape[1])

    @torch.no_grad()
    def forward(self, texts: Sequence[str]) -> Tensor:
        return encode_texts(
            self._means, texts, lambda: torch.empty(0, self.dim, device=self.table.device)
        )

    def _means(self, texts: list[str]) -> Tensor:
        encoded = self.tokenizer.encode_batch(texts, add_special_tokens=False)
        ids = [torch.tensor(text.ids, dtype=torch.long) for text in encoded]
        lengths = torch.tensor([len(tokens) for tokens in ids])
        starts, device = lengths.cumsum(0) - lengths, self.table.device
        return nn.functional.embedding_bag(
            torch.cat(ids).to(device), self.table, starts.to(device), mode="mean"
        )


class TextSpace(nn.Module):
    """`top` classes of the softmax at this `temperature`; `class_texts` describes the classes."""

    classes: Tensor

    def __init__(
        self,
        backbone: str = "lite0",
        class_texts: str = "names and definitions",
        top: int = 20,
        temperature: float = 3.0,
    ) -> None:
        super().__init__()
        check_number("temperature", temperature, above=0)
        self.words = WordVectors()
        self.dim = self.words.dim
        classes = class_vectors(self.words, class_texts)
        check_number("top", top, whole=True, least=1, most=len(classes))
        self.top, self.temperature = top, temperature
        self.register_buffer("classes", classes, persistent=False)
        encoder = create_backbone(backbone, pretrained=True)
        self.preprocessing = encoder.preprocessing
        self.classifier = encoder.model.eval().requires_grad_(False)
        outputs = getattr(self.classifier, "num_classes", 0)
        if outputs != len(classes):
            raise ValueError(
                f"text-space needs a classifier of ImageNet's {len(classes)} classes, '{backbone}' "
                f"has {outputs}"
            )
        self.name = f"text-space/{backbone}"
        self.identity = identity_of(
            self.name, self.classifier, self.words, class_texts, top, temperature
        )

    def transform(self, scaled_decoding: bool = False) -> Transform:
        return replace(self.preprocessing, scaled_decoding=scaled_decoding).transform()

    @torch.no_grad()
    def embed_images(self, pixels: Tensor) -> Tensor:
        return self.embed_output(self.image_network(pixels))

    @property
    def image_network(self) -> nn.Module:
        return self.classifier

    def embed_output(self, logits: Tensor) -> Tensor:
        """(B, 1000) -> (B, dim): the sum over the likeliest classes of p_c t_c, of length one."""
        best, which = (logits.float() / self.temperature).topk(self.top)  # (B, top)
        return unit(torch.einsum("bt,btd->bd", best.softmax(1), self.classes[which]))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        vectors: Tensor = self.words(texts)
        return vectors


def class_vectors(words: WordVectors, texts: str = "names and definitions") -> Tensor:
    """(1000, dim) of ImageNet's classes: the first name, all names, or names and definition."""
    from timm.data.imagenet_info import ImageNetInfo

    check_choice("class_texts", texts, CLASS_TEXTS)
    described = [line.partition(": ") for line in ImageNetInfo().label_descriptions(detailed=True)]
    names = [all_names.split(", ") for all_names, _, _ in described]
    if texts == "first name":
        names = [synonyms[:1] for synonyms in names]
    each = words([name for synonyms in names for name in synonyms])
    means = [vectors.mean(0) for vectors in each.split([len(synonyms) for synonyms in names])]
    named = unit(torch.stack(means))
    if texts != "names and definitions":
        return named
    return unit(named + words([definition for _, _, definition in described]))
