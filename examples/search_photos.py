"""Find photographs by text, and by image and text: `python examples/search_photos.py [FOLDER] [--text dog] [-o OUT]`

FOLDER has photographs; without one, a small world is drawn. In Python what `cenote index FOLDER -o OUT/index` and
`cenote search OUT/index --text dog` do, with a model that needs no download. Run again, it embeds only what is new.
"""

import argparse
from pathlib import Path

from cenote.allocator import keep_memory
from cenote.models.image_text import create_image_text
from cenote.report.found import FoundImage, found_sheet
from cenote.search import SearchRequest, ask, load_words, open_store, remember_words, update_index
from cenote.search.images import EntryImages
from cenote.search.index import open_images, source_of
from cenote.search.store import IndexDescription

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="world/tiny")
parser.add_argument("--text", default="dog")
parser.add_argument("-o", "--out", type=Path, default=Path("searched"))
asked = parser.parse_args()

keep_memory()
model = create_image_text("text-space")  # images and texts as vectors of one space
words = remember_words(model, load_words())  # what FreeDom may call an image
index = asked.out / "index"
store = open_store(index, IndexDescription.create("text-space", model, words))
photographs = open_images([asked.folder], skip=[asked.out])
report = update_index(store, photographs, model, words, source=source_of([asked.folder]))
print(f"{len(store)} images in {index}, {report.embedded} of them new")

first = ask(SearchRequest(texts=(asked.text,)), store, model, words)
best = first.results[0]
second = ask(
    SearchRequest(images=(best.row,), texts=("snow",)), store, model, words
)  # this one, but in snow
pictures = EntryImages()
for name, answer, text, images in (
    ("text", first, asked.text, []),
    ("composed", second, "snow", [pictures(best.entry)]),
):
    print(f"\n{name}: {text}, by {answer.method}")
    for result in answer.results[:5]:
        print(f"  {result.score:.3f}  {result.entry.path}")
    shown = [
        FoundImage(pictures(r.entry), Path(r.entry.path).name, r.score) for r in answer.results
    ]
    found_sheet(shown, text, images, answer.method).save(asked.out / f"{name}.jpg", quality=90)
print(f"\nLook at {asked.out / 'text.jpg'} and {asked.out / 'composed.jpg'}")
