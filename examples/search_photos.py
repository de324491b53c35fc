"""Search photographs by text, and by image and text.

    python examples/search_photos.py [FOLDER] [--text dog] [-o OUT]

FOLDER has photographs; without it, a small synthetic data set is drawn. The same in Python as
`cenote index FOLDER -o OUT/index` and `cenote search OUT/index --text dog`, with a model that needs
no download. A second run embeds only new images.
"""

import argparse
from pathlib import Path

import cenote

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="world/tiny")
parser.add_argument("--text", default="dog")
parser.add_argument("-o", "--out", type=Path, default=Path("searched"))
args = parser.parse_args()

index = cenote.Index(args.out / "index")
report = index.add(args.folder)
print(f"{index}, {report.embedded} of them new")

by_text = index.search(args.text)
composed = index.search("snow", image=by_text[0])  # the first one, but in snow
for name, results in (("text", by_text), ("composed", composed)):
    print(f"\n{name}, by {results.answer.method}:\n{results}")
    results.sheet().save(args.out / f"{name}.jpg", quality=90)
print(f"\nLook at {args.out / 'text.jpg'} and {args.out / 'composed.jpg'}")
