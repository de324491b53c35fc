"""A slow copy of a network: DINO's teacher, MoCo's momentum encoder."""

from __future__ import annotations

import copy
from typing import TypeVar

import torch
from timm.layers.drop import DropPath
from timm.layers.patch_dropout import PatchDropout
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def teacher_of(student: Network) -> Network:
    """A copy without gradients, dropout and dropped paths: it trains along, but its answers are whole."""
    teacher = copy.deepcopy(student).requires_grad_(False)
    for module in teacher.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, DropPath):
            module.drop_prob = 0.0
        elif isinstance(module, PatchDropout):
            module.prob = 0.0
    return teacher


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, momentum: float) -> None:
    """The teacher takes a step towards the student. The statistics of its BatchNorm are its own."""
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - momentum)
