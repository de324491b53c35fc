"""Every model of open_clip (CLIP, RemoteCLIP, SigLIP, ...), with weights by tag or from a file."""

from __future__ import annotations

import copy
import os
import warnings
import zipfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...backbones import Backbone, Preprocessing
from ...backbones.preprocessing import Transform, scaled_side
from ...backbones.weights import read_weights, without_retries
from ...extras import require
from ...options import suggest
from ...unit import unit
from ..pooled import PooledModel, assemble
from .interface import Box, Embed, EmbedTexts, encode_texts, encode_with_word, identity_of

ELSEWHERE = ("hf-hub:", "local-dir:")  # such a name says where its weights are, too


class VectorsAndMap(nn.Module):
    """An image encoder of open_clip that also returns the map of its last block (B, D, h, w)."""

    def __init__(self, visual: Any) -> None:
        super().__init__()
        self.visual = visual

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        output = self.visual.forward_intermediates(pixels, indices=1, normalize_intermediates=True)
        return output["image_features"], output["image_intermediates"][0]


class OpenClip(nn.Module):
    """`weights`: a tag of open_clip's, or a file. Frozen, float32."""

    def __init__(self, model: str, weights: str | Path = "") -> None:
        super().__init__()
        open_clip: Any = require("open_clip", extra="clip")
        self.clip = _create(open_clip, model, str(weights))
        self.clip.eval().requires_grad_(False)
        self.tokenizer = _tokenizer(open_clip, model)
        self.preprocess = dict(self.clip.visual.preprocess_cfg)
        self.name = f"open_clip/{model}/{weights}".rstrip("/")
        self.identity = identity_of(
            f"open_clip/{model}", self.clip, sorted(self.preprocess.items(), key=str)
        )
        self._words = _input_embedding(self.clip)
        if self._words is not None:  # otherwise it takes no made-up word, and is not Invertible
            self.word_dim = self._words.embedding_dim
        self.dim = self.embed_texts(["x"]).shape[1]
        if hasattr(self.clip.visual, "forward_intermediates"):  # else not a LocalNetwork
            self.local_network = VectorsAndMap(self.clip.visual).eval()

    def transform(self, scaled_decoding: bool = False) -> Transform:
        transforms: Any = require("open_clip.transform", extra="clip")
        settings = transforms.PreprocessCfg(**self.preprocess)
        min_side = scaled_side(*settings.input_size[1:]) if scaled_decoding else None
        return Transform(transforms.image_transform_v2(settings, is_train=False), min_side)

    @torch.no_grad()
    def embed_images(self, pixels: Tensor) -> Tensor:
        return self.embed_output(self.image_network(pixels))

    @property
    def image_network(self) -> nn.Module:
        network: nn.Module = self.clip.visual
        return network

    def embed_output(self, output: Any) -> Tensor:
        if isinstance(output, tuple):  # CoCa also returns tokens
            output = output[0]
        return unit(output)

    def embed_local_output(self, output: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        vectors, features = output
        return self.embed_output(vectors), features

    def visible_box(self, width: int, height: int) -> Box:
        if self.preprocess["resize_mode"] == "squash":
            return 0, 0, width, height
        transforms: Any = require("open_clip.transform", extra="clip")
        down, across = transforms.PreprocessCfg(**self.preprocess).input_size[1:]
        choose = min if self.preprocess["resize_mode"] == "longest" else max
        scale = choose(across / width, down / height)
        left, top = (width - across / scale) / 2, (height - down / scale) / 2
        return left, top, width - left, height - top

    @torch.no_grad()
    def position_encoder(self) -> tuple[PooledModel, Embed, EmbedTexts]:
        """Return a copy of the image encoder as a model of timm's, which takes images of any size.

        It is compared with the original on one image.
        """
        visual: Any = self.clip.visual
        network = _as_timm(visual)
        if network is None:
            raise ValueError(
                f"'{self.name}' has an image encoder of {type(visual).__name__}, whose positions"
                " have no vectors: maps of a text need a ViT of CLIP's form, a timm encoder"
                " (SigLIP, EVA, ...), text-space, or a folder that `cenote clip` wrote"
            )
        project = getattr(visual, "head", nn.Identity())  # behind a timm encoder
        settings = self.preprocess
        preprocessing = Preprocessing(
            size=visual.image_size[0],
            crop=1.0,
            interpolation=settings["interpolation"],
            mean=settings["mean"],
            std=settings["std"],
        )
        backbone = Backbone(network, self.name, preprocessing)
        model = assemble(backbone, "own").eval().requires_grad_(False)
        image = torch.zeros(1, 3, *visual.image_size, device=self.clip.logit_scale.device)

        def vectors(output: Tensor) -> Tensor:
            return self.embed_output(project(output))

        if not torch.allclose(vectors(model(image)), self.embed_images(image), atol=1e-3):
            raise ValueError(
                f"the image encoder of '{self.name}' differs from timm's, in which maps of a text"
                " are computed: use another CLIP"
            )
        return model, vectors, self.embed_texts

    @torch.no_grad()
    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        device = self.clip.logit_scale.device
        return encode_texts(
            lambda batch: self.clip.encode_text(self.tokenizer(batch).to(device)),
            texts,
            lambda: torch.empty(0, self.dim, device=device),
        )

    def embed_with_word(self, template: str, word: Tensor) -> Tensor:
        assert self._words is not None, "not Invertible"
        return encode_with_word(self.clip.encode_text, self.tokenizer, self._words, template, word)


def _as_timm(visual: Any) -> nn.Module | None:
    """Return a copy of an open_clip image encoder as a timm model, None if timm has none."""
    if hasattr(visual, "trunk"):
        trunk: nn.Module = copy.deepcopy(visual.trunk)
        return trunk
    if getattr(visual, "pool_type", None) != "tok" or visual.attn_pool is not None:
        return None
    block = visual.transformer.resblocks[0]
    if not isinstance(block.attn, nn.MultiheadAttention) or hasattr(block.ls_1, "gamma"):
        return None
    from timm.models.vision_transformer import VisionTransformer, checkpoint_filter_fn

    network = VisionTransformer(
        img_size=visual.image_size,
        patch_size=visual.patch_size,
        num_classes=visual.output_dim,
        embed_dim=visual.transformer.width,
        depth=visual.transformer.layers,
        num_heads=block.attn.num_heads,
        mlp_ratio=block.mlp.c_fc.out_features / visual.transformer.width,
        pre_norm=not isinstance(visual.ln_pre, nn.Identity),
        norm_layer=type(visual.ln_post),
        act_layer=type(block.mlp.gelu),
        dynamic_img_size=True,
    )
    state = {f"visual.{name}": value for name, value in visual.state_dict().items()}
    network.load_state_dict(checkpoint_filter_fn(state, network))
    return network.to(visual.proj.device)


def _input_embedding(model: Any) -> nn.Embedding | None:
    """Where a model of open_clip looks its words up."""
    tower = getattr(model, "text", model)
    embedding = getattr(tower, "token_embedding", None)
    transformer: Any = getattr(tower, "transformer", None)
    if embedding is None and hasattr(transformer, "get_input_embeddings"):  # Hugging Face's
        embedding = transformer.get_input_embeddings()
    if not isinstance(embedding, nn.Embedding):
        return None
    return embedding


def _create(open_clip: Any, model: str, weights: str) -> Any:
    options = {}
    if not model.startswith(ELSEWHERE):
        _check_weights(open_clip, model, weights)
        tag = open_clip.get_pretrained_cfg(model, weights)
        # Since 2.29 open_clip only warns where the weights were trained with QuickGELU: every
        # number is quietly wrong.
        options = {"pretrained": weights, "force_quick_gelu": bool(tag.get("quick_gelu"))}
    is_file = os.path.isfile(weights)
    try:
        with warnings.catch_warnings(), nullcontext() if is_file else without_retries():
            warnings.filterwarnings("error", message="QuickGELU mismatch")
            return open_clip.create_model(model, require_pretrained=True, **options)
    except UserWarning as mismatch:
        raise ValueError(
            f"'{model}' does not go with the weights '{weights}': {mismatch}"
        ) from mismatch
    except Exception as error:  # whatever damaged or foreign files and networks make it raise
        if is_file:
            read_weights(Path(weights))  # says what is wrong with the file itself
        reason = " ".join(line.strip() for line in str(error).splitlines()[:3])[:300]
        reason = reason or type(error).__name__
        if is_file or model.startswith("local-dir:"):
            raise ValueError(
                f"{weights or model} does not fit open_clip's '{model}': {reason}"
            ) from error
        name = f"open_clip/{model}/{weights}".rstrip("/")
        raise OSError(
            f"the weights of '{name}' could not be had ({reason}): without network give a local "
            "file (open_clip/MODEL/FILE), or use text-space"
        ) from error


def _check_weights(open_clip: Any, model: str, weights: str) -> None:
    models = open_clip.list_models()
    if model not in models:
        raise ValueError(f"open_clip has no model '{model}'{suggest(model, models)}")
    tags = open_clip.list_pretrained_tags_by_model(model)
    has = f"it has {', '.join(tags) or 'none'}"
    if not weights:
        raise ValueError(f"which weights of open_clip's '{model}'? A tag ({has}), or a file")
    if os.path.isfile(weights):
        quick = f"{model}-quickgelu"
        if quick in models and is_script(weights):
            raise ValueError(
                f"{weights} is a TorchScript archive as OpenAI publishes, trained with QuickGELU: "
                f"write open_clip/{quick}/{weights}"
            )
    elif not open_clip.get_pretrained_cfg(model, weights):
        raise ValueError(
            f"'{weights}' is neither a file nor weights of open_clip's '{model}'"
            f"{suggest(weights, tags)} ({has})"
        )


def is_script(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any("/code/" in name for name in archive.namelist())
    except (zipfile.BadZipFile, OSError):
        return False


def _tokenizer(open_clip: Any, model: str) -> Any:
    try:
        with without_retries():
            return open_clip.get_tokenizer(model)
    except ImportError as error:  # of SigLIP's tokenizer, and of other text encoders
        raise ValueError(
            f"the tokenizer of '{model}' needs the package '{error.name}': pip install {error.name}"
        ) from None
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise OSError(f"the tokenizer of '{model}' could not be had: {reason}") from error
