"""Search by text without an image-text model: ConSE (Norouzi et al., 2014), the convex combination
of class names.

An ImageNet classifier says what an image may be; the image's vector is the mean of those classes'
vectors, weighted by their probabilities. A class is described by the word vectors of its names and
definition and by what WordNet says it is a kind of. A text is described in the same way by the
synsets of ImageNet-21k that it names: a dolphin is near the killer whale, though no class is called
dolphin. benchmarks/text_space.py measures the choices.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from ...backbones import Backbone, create_backbone
from ...backbones.preprocessing import Transform
from ...extras import MissingExtra
from ...options import check_choice
from ...unit import unit
from ..pooled import PooledModel, assemble
from .interface import Box, Embed, EmbedTexts, encode_texts, identity_of
from .synsets import POWER, imagenet_synsets

DIM = 256
HYPERNYM_WEIGHT = 0.5  # of the similarity in WordNet, beside that of word vectors
WORDING_WEIGHT = 0.5  # of the text's words, beside the synsets that it names
MIN_COVERAGE = 0.2  # of a synset that is far from all classes: its weight is not zero
# Subtracted from the target scores of the classes: if most kinds of a synset are classes, if not.
MARGINS = (0.5, 0.2)
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


class SynsetVectors(nn.Module):
    """`vectors(texts)` -> (N, 256) by the synsets that the texts name; `classes` are (1000, 256).

    A synset has the word vectors of its names and definition, and the features of its hypernyms;
    both are projected on the principal components of the 1,000 classes. A synset with several
    kinds among the classes ("dog", "animal") has a vector q near which all kinds are alike, the
    least-squares solution of q . t_c = y_c - margin: y_c = 1 for its kinds; for other classes 0 if
    most of its kinds in ImageNet-21k are classes, else the score that they have by description. An
    image, the mean of t_c of length one, then has the score (sum of p_c y_c - margin) / |mean|.
    """

    projection: Tensor
    classes: Tensor
    inverse: Tensor

    def __init__(self, words: WordVectors) -> None:
        super().__init__()
        self.words, self.synsets, self.dim = words, imagenet_synsets(), DIM
        classes = self.describe(self.synsets.classes)  # (1000, F)
        # Float64, and the largest entry positive: another machine finds the same components.
        values, components = torch.linalg.eigh(classes.double() @ classes.double().T)
        values, components = values[-DIM:], components[:, -DIM:]
        largest = components.gather(0, components.abs().argmax(0, keepdim=True))
        projection = classes.double().T @ (components * largest.sign() / values.sqrt())
        self.register_buffer("projection", projection.float(), persistent=False)  # (F, 256)
        self.register_buffer("classes", classes @ self.projection, persistent=False)
        # (1000, 256): the transposed pseudoinverse of the classes, whose columns are orthogonal
        self.register_buffer("inverse", self.classes / values.float(), persistent=False)

    def describe(self, synsets: Sequence[int]) -> Tensor:
        """Return (N, F), rows of length one or less: word vectors, then features of hypernyms."""
        names = [self.synsets.names[synset] for synset in synsets]
        definitions = [self.synsets.definitions[synset] or "-" for synset in synsets]
        each = self.words([name.lower() for synonyms in names for name in synonyms])
        named = [vectors.mean(0) for vectors in each.split([len(synonyms) for synonyms in names])]
        words = unit(unit(torch.stack(named)) + self.words(definitions))
        hypernyms = self.synsets.features(synsets).to(words)
        return self._join(words, hypernyms)

    def _join(self, words: Tensor, hypernyms: Tensor) -> Tensor:
        weights = torch.tensor([1 - HYPERNYM_WEIGHT, HYPERNYM_WEIGHT]).sqrt().tolist()
        return torch.cat([words * weights[0], hypernyms * weights[1]], 1)

    @torch.no_grad()
    def forward(self, texts: Sequence[str]) -> Tensor:
        device = self.projection.device
        return encode_texts(self._encode, texts, lambda: torch.empty(0, self.dim, device=device))

    def _encode(self, texts: list[str], equal_kinds: bool = True) -> Tensor:
        """Weigh senses by coverage^6, phrases by coverage^3 of their best sense.

        Near the classes a sense is likelier to be meant, and a phrase easier to find.
        """
        weights = [self._weights(text) for text in texts]
        synsets = sorted({synset for senses in weights for synset in senses})
        mix = torch.zeros(len(texts), len(synsets))
        columns = {synset: column for column, synset in enumerate(synsets)}
        for row, senses in zip(mix, weights, strict=True):
            row[[columns[synset] for synset in senses]] = torch.tensor(list(senses.values()))
        words = self.words([text.lower() for text in texts])
        nothing = words.new_zeros(len(texts), len(self.projection) - self.words.dim)
        vectors = unit(self._join(words, nothing) @ self.projection)
        if synsets:
            described = self.describe(synsets) @ self.projection
            lengths = (mix.to(words) @ described).norm(dim=1, keepdim=True).clamp(min=1e-6)
            wording = [WORDING_WEIGHT] * len(texts)
            if equal_kinds:
                described = self._equalize_kinds(synsets, described)
                wording = [self._wording_weight(*pair) for pair in zip(texts, weights, strict=True)]
            named = mix.to(words) @ described / lengths
            vectors = named + vectors.new_tensor(wording)[:, None] * vectors
        return vectors

    def _equalize_kinds(self, synsets: Sequence[int], vectors: Tensor) -> Tensor:
        """Replace the vectors (N, 256) of hypernyms of classes; their best class keeps its score."""
        return torch.stack(
            [
                self._vector_of_kinds(synset, vector)
                if synset in self.synsets.hypernyms
                else vector
                for synset, vector in zip(synsets, vectors, strict=True)
            ]
        )

    def _vector_of_kinds(self, synset: int, vector: Tensor) -> Tensor:
        scores = self.classes @ vector  # (1000,)
        best = scores.amax()
        if synset in self.synsets.covered:
            margin, targets = MARGINS[0], torch.zeros_like(scores)
        else:
            margin, targets = MARGINS[1], (scores / best).clamp(min=0)
        targets[self.synsets.kinds[synset]] = 1
        solution = (targets - margin) @ self.inverse
        return solution * best / (self.classes @ solution).amax()

    @torch.no_grad()
    def describe_texts(self, texts: Sequence[str]) -> Tensor:
        """Return (N, 256), rows of length one, by names, definitions and hypernyms alone."""
        return unit(self._encode(list(texts), equal_kinds=False))

    def names_hypernym(self, text: str) -> bool:
        return not self.synsets.hypernyms.isdisjoint(self._weights(text))

    def _wording_weight(self, text: str, weights: dict[int, float]) -> float:
        """Return the weight of the text's words beside the synsets: none for hypernyms of classes.

        A word that is not a name, such as "small", is in the wording alone.
        """
        if any(not phrase.synsets for phrase in self.synsets.phrases(text)):
            return WORDING_WEIGHT
        hypernyms = sum(weights[synset] for synset in weights if synset in self.synsets.hypernyms)
        return WORDING_WEIGHT * (1 - hypernyms / max(sum(weights.values()), 1e-9))

    def _weights(self, text: str) -> dict[int, float]:
        weights = dict[int, float]()
        for phrase in self.synsets.phrases(text):
            senses = {i: max(self.synsets.coverage(i), MIN_COVERAGE) for i in phrase.synsets}
            total = sum(coverage**POWER for coverage in senses.values())
            for synset, coverage in senses.items():
                share = coverage**POWER / total * max(senses.values()) ** (POWER / 2)
                weights[synset] = weights.get(synset, 0) + share
        return weights


class LogitsAndMap(nn.Module):
    """A timm classifier that also returns the map of its last block: (B, 1000), (B, D, h, w)."""

    def __init__(self, classifier: Any) -> None:
        super().__init__()
        self.classifier = classifier

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        output, (features,) = self.classifier.forward_intermediates(pixels, indices=1, norm=True)
        return self.classifier.forward_head(output), features


class TextSpace(nn.Module):
    """Version 1 describes classes and texts by word vectors alone, as earlier releases did."""

    classes: Tensor
    class_directions: Tensor

    def __init__(self, backbone: str = "lite0", version: int = 2) -> None:
        super().__init__()
        check_choice("version", version, (1, 2))
        words = WordVectors()
        if version == 1:
            self.text_encoder: WordVectors | SynsetVectors = words
            self.top, self.temperature, classes = 20, 3.0, class_vectors(words)
            settings: tuple[Any, ...] = ("names and definitions", self.top, self.temperature)
        else:
            self.text_encoder = SynsetVectors(words)
            self.top, self.temperature, classes = 50, 2.0, self.text_encoder.classes
            settings = (POWER, HYPERNYM_WEIGHT, WORDING_WEIGHT, MIN_COVERAGE)
            settings += (self.top, self.temperature)
        self.dim = self.text_encoder.dim
        self.register_buffer("classes", classes, persistent=False)
        self.register_buffer("class_directions", unit(classes), persistent=False)
        encoder = create_backbone(backbone, pretrained=True)
        self.preprocessing = encoder.preprocessing
        self.classifier = encoder.model.eval().requires_grad_(False)
        if hasattr(self.classifier, "forward_intermediates"):  # else not a LocalNetwork
            self.local_network = LogitsAndMap(self.classifier).eval()
        outputs = getattr(self.classifier, "num_classes", 0)
        if outputs != len(classes):
            raise ValueError(
                f"text-space needs a classifier of ImageNet's {len(classes)} classes, '{backbone}' "
                f"has {outputs}"
            )
        self.name = f"text-space/{backbone}"
        # An index of version 1 is recognized by the name in its identity.
        name = self.name if version == 1 else f"text-space-{version}/{backbone}"
        self.identity = identity_of(name, self.classifier, words, *settings)

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

    def embed_local_output(self, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        logits, features = output
        return self.embed_output(logits), features

    def visible_box(self, width: int, height: int) -> Box:
        return self.preprocessing.visible_box(width, height)

    def position_encoder(self) -> tuple[PooledModel, Embed, EmbedTexts]:
        """The texts are by names and definitions alone: a hypernym's margin suits whole images."""
        name = self.name.removeprefix("text-space/")
        backbone = Backbone(copy.deepcopy(self.classifier), name, self.preprocessing)
        texts: EmbedTexts = self.embed_texts
        if isinstance(self.text_encoder, SynsetVectors):
            texts = self.text_encoder.describe_texts
        return assemble(backbone, "own").eval(), self.embed_position, texts

    def embed_position(self, logits: Tensor) -> Tensor:
        """(B, 1000) -> (B, dim): as of an image, times how far the best logit is above the mean.

        All positions have some likeliest class, also those that show nothing.
        """
        strength = logits.amax(1, keepdim=True) - logits.mean(1, keepdim=True)
        return strength * self.embed_output(logits)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        vectors: Tensor = self.text_encoder(texts)
        return vectors

    @property
    def known_names(self) -> list[str]:
        return imagenet_synsets().class_names

    @property
    def spellings(self) -> list[str]:
        return imagenet_synsets().known_names

    def highest_cosine(self, text: Tensor) -> float:
        return float((self.class_directions @ text.to(self.class_directions)).max())

    def cosine_scale(self, text: str) -> float:
        encoder = self.text_encoder
        if not isinstance(encoder, SynsetVectors) or not encoder.names_hypernym(text):
            return 1.0
        described = self.highest_cosine(encoder.describe_texts([text])[0])
        return described / max(self.highest_cosine(self.embed_texts([text])[0]), 1e-6)

    def familiarity(self, text: str) -> float:
        return imagenet_synsets().familiarity(text)

    def unknown_words(self, text: str) -> Sequence[str]:
        return imagenet_synsets().unknown_words(text)


def class_vectors(words: WordVectors) -> Tensor:
    """(1000, dim) of ImageNet's classes: the sum of their names and of their definition."""
    from timm.data.imagenet_info import ImageNetInfo

    described = [line.partition(": ") for line in ImageNetInfo().label_descriptions(detailed=True)]
    names = [all_names.split(", ") for all_names, _, _ in described]
    each = words([name for synonyms in names for name in synonyms])
    means = [vectors.mean(0) for vectors in each.split([len(synonyms) for synonyms in names])]
    named = unit(torch.stack(means))
    return unit(named + words([definition for _, _, definition in described]))
