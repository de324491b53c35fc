"""CLIP's loss, where a text may be true of several images of a batch."""

from __future__ import annotations

from torch import Tensor


def contrastive_loss(images: Tensor, texts: Tensor, truth: Tensor, scale: Tensor) -> Tensor:
    """`images` (B, D), distinct `texts` (U, D), unit rows; `truth` (B, U): what is true of what.

    The symmetric InfoNCE. All texts that are true of an image share its target equally, all images that a text is true
    of share that text's: equal captions, and a caption that fits a neighbour too, are not each other's negatives. With
    one true text for each image and one image for each text it is CLIP's loss.
    """
    logits = scale * images @ texts.T  # (B, U)
    wanted = truth.to(logits.dtype)
    of_images = -(logits.log_softmax(1) * wanted).sum(1) / wanted.sum(1)
    of_texts = -(logits.log_softmax(0) * wanted).sum(0) / wanted.sum(0)
    return (of_images.mean() + of_texts.mean()) / 2
