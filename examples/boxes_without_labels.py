"""Where are the objects? No labels, no training: `python examples/boxes_without_labels.py [FOLDER] [-o OUT]`

FOLDER has photographs; without one, a small world is drawn, whose true boxes say how often the answer was right. In
Python what `cenote discover FOLDER --size 448 -o OUT` does: TokenCut splits the patches of every photograph in two, by
how alike a trained network finds them, and the half that stands out is the object.
"""

import argparse
from pathlib import Path

import cenote
from cenote.allocator import keep_memory
from cenote.data.sources import open_photographs
from cenote.evaluate.discover import discover
from cenote.predict.discovery import DiscoveryResult
from cenote.report.maps import draw_box
from cenote.report.sheet import Entry, contact_sheet

SHOWN = 24  # photographs on the sheet
SIZE = 448  # pixels of the short side as the network sees it: 14 x 14 patches, however small the photograph is

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="world/tiny")
parser.add_argument("-o", "--out", type=Path, default=Path("boxes"))
asked = parser.parse_args()

keep_memory()
photographs = open_photographs([asked.folder])
model = cenote.create_model(
    "lite0", pretrained=True
).eval()  # EfficientNet-Lite0; its weights came with pip
entries: list[Entry] = []


def show(result: DiscoveryResult) -> None:
    """Print the box of each photograph, draw the first ones."""
    name = Path(photographs[result.position].image).name
    for box in result.objects["tokencut"].boxes.round().astype(int).tolist():
        print(name, *box)
        if len(entries) < SHOWN:
            entries.append(Entry([draw_box(photographs.image(result.position), box)], name))


report = discover(model, photographs, ["tokencut"], on_result=show, size=SIZE)
for message in report.unreadable:
    print(f"left out: {message}")
asked.out.mkdir(parents=True, exist_ok=True)
contact_sheet(entries, "TokenCut on lite0").save(asked.out / "boxes.jpg", quality=90)
if report.images:
    right = {name: score.corloc for name, score in report.methods.items()}
    print(
        f"right (IoU at least 0.5): {right['tokencut']:.1f}%, a box in the middle {right['centre']:.1f}%"
    )
print(f"Look at {asked.out / 'boxes.jpg'}")
