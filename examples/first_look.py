"""A ViT's tokens and a ResNet's map through the same pool, and the maps they came from (seconds, no download)."""

import timm
import torch

import cenote

torch.manual_seed(0)
images = torch.randn(2, 3, 224, 224)

with torch.no_grad():
    vit = timm.create_model("vit_small_patch16_224").eval()
    tokens = vit.forward_features(images)[:, 1:]  # (2, 196, 384), without the CLS token
    pool = cenote.create_pool("simpool", dim=384, gamma=1.25)
    u, a = pool.attend(tokens, grid=(14, 14))
    print(f"ViT-S tokens    {tuple(tokens.shape)} -> vectors {tuple(u.shape)}, maps {tuple(a.shape)}")

    resnet = timm.create_model("resnet18").eval()
    features = resnet.forward_features(images)  # (2, 512, 7, 7)
    pool = cenote.create_pool("simpool", dim=512, gamma=2.0)
    u, a = pool.attend_on_map(features)
    print(f"ResNet-18 map   {tuple(features.shape)} -> vectors {tuple(u.shape)}, maps {tuple(a.shape)}")

print("The networks above are untrained, so the maps mean nothing yet: this release is the pooling layers themselves.")
