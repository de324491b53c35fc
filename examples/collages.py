"""Where a pool looks in collages: `python examples/collages.py RUN DATA [-o OUT]`

RUN is a folder of `cenote metric`, DATA its collages (`collage:PHOTOS`, `world/collage`). Prints the
share of the maps on the tile of the class, a quarter for the average, and for GSP the MAP@R if mu is
changed at evaluation [GSP Fig. 6]; collages.jpg shows maps [GSP Fig. 3b].
"""

import argparse
from pathlib import Path

import numpy as np
import torch

import cenote
from cenote.data import open_dataset
from cenote.data.loading import load
from cenote.data.splits import class_splits
from cenote.metrics import retrieval_scores
from cenote.predict.embedding import embed_dataset
from cenote.report import SheetEntry, contact_sheet, draw_box, overlay

MUS = (0.1, 0.3, 0.5, 0.7, 0.9)
MAX_COLLAGES = 8  # on the contact sheet

parser = argparse.ArgumentParser()
parser.add_argument("run")
parser.add_argument("data")
parser.add_argument("-o", "--out", type=Path, default=Path("collages"))
parser.add_argument("--images", type=int, default=400)
args = parser.parse_args()

model, collages = cenote.load(args.run).eval(), class_splits(open_dataset(args.data)).test
rows = np.random.default_rng(0).permutation(len(collages))[: args.images]
collages, shares, entries = collages.select(np.sort(rows)), [], []
for batch in load(collages, model.backbone.preprocessing.whole(), 32):
    with torch.inference_mode():
        maps = model.attend(batch.images).mean(1).numpy()  # (B, H, W)
    for position, a in zip(batch.indices.tolist(), maps, strict=True):
        photo, box = collages.image(position), collages[position].boxes[0]
        width, height = photo.width // 2, photo.height // 2
        x, y = width * (box.x1 + box.x2 > photo.width), height * (box.y1 + box.y2 > photo.height)
        pixels = cenote.data.images.stretch(a, photo.size)
        shares.append(pixels[y : y + height, x : x + width].sum() / pixels.sum())
        if len(entries) < MAX_COLLAGES:
            picture = draw_box(overlay(photo, a), (x, y, x + width, y + height))
            entries.append(SheetEntry([photo, picture], collages[position].label or ""))
print(f"{100 * np.mean(shares):.1f}% of the maps on the tile of the class")
if model.config["pool"] == "gsp":
    for model.pool.mu in MUS:
        vectors = embed_dataset(model, collages)
        scores = retrieval_scores(vectors.vectors, vectors.labels(collages))
        print(f"mu {model.pool.mu}: MAP@R {100 * scores['map@r']:.1f}")
args.out.mkdir(parents=True, exist_ok=True)
contact_sheet(entries, f"collages, and the maps of {args.run}").save(args.out / "collages.jpg")
print(f"Look at {args.out / 'collages.jpg'}")
