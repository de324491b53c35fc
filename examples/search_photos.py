"""Search photographs by text, and by image and text.

    python examples/search_photos.py [FOLDER] [--text dog] [-o OUT]

FOLDER has photographs; without it, a small synthetic data set is drawn. The same in Python as
`cenote index FOLDER -o OUT/index` and `cenote search OUT/index --text dog`, with a model that needs
no download. A second run embeds only new images.
"""

import argparse
from pathlib import Path

from cenote.allocator import keep_memory
from cenote.models.image_text import create_image_text
from cenote.report.retrieval import FoundImage, found_sheet
from cenote.search import SearchRequest, ask, load_words, open_store, remember_words, update_index
from cenote.search.index import EntryImages, open_images, source_of
from cenote.search.store import IndexDescription

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="world/tiny")
parser.add_argument("--text", default="dog")
parser.add_argument("-o", "--out", type=Path, default=Path("searched"))
args = parser.parse_args()

keep_memory()
model = create_image_text("text-space")  # embeds images and texts in one space
words = remember_words(model, load_words())  # the vocabulary of FreeDom
index = args.out / "index"
store = open_store(index, IndexDescription.create("text-space", model, words))
photographs = open_images([args.folder], skip=[args.out])
report = update_index(store, photographs, model, words, source=source_of([args.folder]))
print(f"{len(store)} images in {index}, {report.embedded} of them new")

by_text = ask(SearchRequest(texts=(args.text,)), store, model, words)
best = by_text.results[0]
composed = ask(
    SearchRequest(images=(best.row,), texts=("snow",)), store, model, words
)  # this one, but in snow
pictures = EntryImages()
for name, answer, text, images in (
    ("text", by_text, args.text, []),
    ("composed", composed, "snow", [pictures(best.entry)]),
):
    print(f"\n{name}: {text}, by {answer.method}")
    for result in answer.results[:5]:
        print(f"  {result.score:.3f}  {result.entry.path}")
    pictures_found = [
        FoundImage(pictures(r.entry), Path(r.entry.path).name, r.score) for r in answer.results
    ]
    found_sheet(pictures_found, text, images, answer.method).save(
        args.out / f"{name}.jpg", quality=90
    )
print(f"\nLook at {args.out / 'text.jpg'} and {args.out / 'composed.jpg'}")
