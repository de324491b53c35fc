"""Search by text without an image-text model: ConSE (Norouzi et al., 2014), the convex combination
of class names.

An ImageNet classifier says what an image may be; the image's vector is the mean of those classes'
texts, weighted by their probabilities. What a class is called and how many of them count:
examples/search/text_space.py measures it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ...backbones import create_backbone
from ...backbones.preprocessing import Transform
from ...options import check_number
from ...unit import unit
from .interface import identity_of
from .word_vectors import WordVectors

CLASS_TEXTS = ("first name", "names", "names and definitions")


class TextSpace(nn.Module):
    """`top` classes of the softmax at this `temperature`; classes told by `class_texts`."""

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
        self.preprocessing, self.classifier = (
            encoder.preprocessing,
            encoder.model.eval().requires_grad_(False),
        )
        outputs = getattr(self.classifier, "num_classes", 0)
        if outputs != len(classes):
            problem = f"'{backbone}' has {outputs}"
            raise ValueError(
                f"text-space needs a classifier of ImageNet's {len(classes)} classes, {problem}"
            )
        self.name = f"text-space/{backbone}"
        self.identity = identity_of(
            self.name, self.classifier, self.words, class_texts, top, temperature
        )

    def transform(self) -> Transform:
        return self.preprocessing.transform()

    @torch.no_grad()
    def embed_images(self, pixels: Tensor) -> Tensor:
        return self.embed_logits(self.classifier(pixels))

    def embed_logits(self, logits: Tensor) -> Tensor:
        """(B, 1000) -> (B, dim): the sum over the likeliest classes of p_c t_c, made of length
        one.
        """
        best, which = (logits.float() / self.temperature).topk(self.top)  # (B, top)
        assert isinstance(self.classes, Tensor)
        return unit(torch.einsum("bt,btd->bd", best.softmax(1), self.classes[which]))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        vectors: Tensor = self.words(texts)
        return vectors


def class_vectors(words: WordVectors, texts: str = "names and definitions") -> Tensor:
    """(1000, dim) of ImageNet's classes: WordNet's first name, all names alike, or these and its
    definition by half.
    """
    from timm.data.imagenet_info import ImageNetInfo

    if texts not in CLASS_TEXTS:
        raise ValueError(f"class_texts is one of {', '.join(CLASS_TEXTS)}, got '{texts}'")
    descriptions = [
        text.partition(": ") for text in ImageNetInfo().label_descriptions(detailed=True)
    ]
    names = [all_names.split(", ") for all_names, _, _ in descriptions]
    if texts == "first name":
        first: Tensor = words([synonyms[0] for synonyms in names])
        return first
    each = words([name for synonyms in names for name in synonyms])
    named = unit(
        torch.stack(
            [of_class.mean(0) for of_class in each.split([len(synonyms) for synonyms in names])]
        )
    )
    return (
        named
        if texts == "names"
        else unit(named + words([definition for _, _, definition in descriptions]))
    )
