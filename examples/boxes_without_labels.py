"""Find objects without labels or training: `python examples/boxes_without_labels.py [FOLDER] [-o OUT]`

FOLDER has photographs; without it, a small synthetic data set is drawn, whose true boxes show how
often the result is correct. The same in Python as `cenote discover FOLDER -o OUT`: the object map
separates what the photographs have in common from their backgrounds, by the patches of a pretrained
network.
"""

import argparse
from pathlib import Path

import cenote
from cenote.allocator import keep_memory
from cenote.data.sources import open_photographs
from cenote.evaluate.discover import discover
from cenote.predict.discovery import DiscoveryResult
from cenote.report.maps import draw_box
from cenote.report.sheet import SheetEntry, contact_sheet

MAX_PHOTOS = 24  # on the contact sheet

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="world/tiny")
parser.add_argument("-o", "--out", type=Path, default=Path("boxes"))
args = parser.parse_args()

keep_memory()
photographs = open_photographs([args.folder])
# EfficientNet-Lite0; its weights were installed by pip.
model = cenote.create_model("lite0", pretrained=True).eval()
entries: list[SheetEntry] = []


def show(result: DiscoveryResult) -> None:
    """Print the box of each photograph, draw the first ones."""
    name = Path(photographs[result.position].image).name
    for box in result.objects["object"].boxes.round().astype(int).tolist():
        print(name, *box)
        if len(entries) < MAX_PHOTOS:
            entries.append(SheetEntry([draw_box(photographs.image(result.position), box)], name))


report = discover(model, photographs, on_result=show)
for message in report.unreadable:
    print(f"skipped: {message}")
args.out.mkdir(parents=True, exist_ok=True)
contact_sheet(entries, "object maps of lite0").save(args.out / "boxes.jpg", quality=90)
if report.images_with_boxes:
    corloc = {name: score.corloc for name, score in report.methods.items()}
    print(
        f"right (IoU at least 0.5): {corloc['object']:.1f}%, a centred box {corloc['centre']:.1f}%"
    )
print(f"Look at {args.out / 'boxes.jpg'}")
