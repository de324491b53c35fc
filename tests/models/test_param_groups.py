"""What timm's optimizers ask a model: which weights are not decayed, and to which layer each
belongs.
"""

from typing import Any

import pytest
from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]

from cenote.models import create_model
from cenote.train.config import OptimizationConfig
from cenote.train.state import TrainState
from tests.toy_models import NARROW


def test_position_embeddings_are_not_decayed() -> None:
    model = create_model("vit_micro", "simpool", 3)
    assert "backbone.model.pos_embed" in model.no_weight_decay()
    names = {id(p): n for n, p in model.named_parameters()}
    decayed = {names[id(p)] for g in create_optimizer_v2(model, "adamw", 1e-3, 0.1).param_groups
               if g["weight_decay"] for p in g["params"]}  # fmt: skip
    assert "backbone.model.pos_embed" not in decayed and "pool.wq.weight" in decayed
    assert not any(name.endswith(".bias") for name in decayed)


SMALL: dict[str, dict[str, Any]] = {
    "vit_tiny_patch16_224": {"embed_dim": 24, "num_heads": 1, "img_size": 32},
    "resnet18": NARROW,
    "test_convnext": {},
}


@pytest.mark.parametrize("backbone", SMALL)
def test_rates_fall_from_the_head_to_the_input(backbone: str) -> None:
    model = create_model(backbone, "simpool", 3, **SMALL[backbone])
    state = TrainState("m", model, OptimizationConfig(lr=1.0, layer_decay=0.5))
    names = {id(p): n for n, p in model.named_parameters()}
    rate = {names[id(p)]: r for g, r in zip(state.optimizer.param_groups, state.base_lrs, strict=True)
            for p in g["params"]}  # fmt: skip
    assert rate["head.linear.weight"] == rate["pool.wq.weight"] == 1.0
    if backbone == "vit_tiny_patch16_224":
        blocks = [rate[f"backbone.model.blocks.{b}.attn.qkv.weight"] for b in range(12)]
        assert all(blocks[b + 1] == 2 * blocks[b] for b in range(11))
        assert rate["backbone.model.patch_embed.proj.weight"] == blocks[0] / 2
    first = next(n for n, _ in model.named_parameters() if n.startswith("backbone.") and n in rate)
    assert rate[first] < 0.3


def test_the_matrices_of_the_pool_and_a_learned_gamma_have_other_learning_rates() -> None:
    options = {"learn_gamma": True, "gamma_lr_factor": 0.1}
    model = create_model("test_convnext", "simpool", 3, pool_options=options)
    state = TrainState("m", model, OptimizationConfig(lr=1.0, pool_lr_factor=0.01))
    rate = {id(p): r for g, r in zip(state.optimizer.param_groups, state.base_lrs, strict=True)
            for p in g["params"]}  # fmt: skip
    names = {name: rate[id(p)] for name, p in model.named_parameters()}
    assert names["pool.wq.weight"] == names["pool.wk.weight"] == 0.01
    assert names["pool.gamma"] == 0.1
    assert {
        names[n] for n in names if n not in ("pool.wq.weight", "pool.wk.weight", "pool.gamma")
    } == {1.0}
