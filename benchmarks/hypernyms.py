"""Write cenote/models/image_text/hypernyms.txt from WordNet 3.0.

    apt-get download wordnet-base && dpkg -x wordnet-base_*.deb wn
    python benchmarks/hypernyms.py wn/usr/share/wordnet wn/usr/share/doc/wordnet-base/copyright

Takes a few seconds. The synsets are those of ImageNet-21k and all that they are kinds of.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from timm.data.imagenet_info import ImageNetInfo

from cenote.models.image_text.synsets import HYPERNYMS, SUBSETS

HEADER = """\
Hypernyms of the synsets of ImageNet-21k: facts of WordNet 3.0, written by benchmarks/hypernyms.py.
A line is a synset, its hypernyms and, where timm has no names of it, its names.
"""


def main() -> None:
    wordnet, notice = Path(sys.argv[1]), Path(sys.argv[2])
    names, hypernyms = read_nouns(wordnet)
    imagenet = {synset for subset in SUBSETS for synset in ImageNetInfo(subset).label_names()}
    synsets, queue = set(imagenet), list(imagenet)
    while queue:
        new = set(hypernyms[queue.pop()]) - synsets
        synsets |= new
        queue += new
    lines = [f"# {line}".rstrip() for line in [*HEADER.splitlines(), "", *licence(notice)]]
    for synset in sorted(synsets):
        columns = [synset, " ".join(hypernyms[synset])]
        lines.append("\t".join(columns + [", ".join(names[synset])] * (synset not in imagenet)))
    HYPERNYMS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{HYPERNYMS}: {len(synsets)} synsets")


def licence(notice: Path) -> Iterator[str]:
    """Yield the lines of WordNet's licence, which asks to appear on all copies."""
    paragraph = notice.read_text(encoding="utf-8").partition("License: WordNet3.0\n")[2]
    for line in paragraph.partition("\n\n")[0].splitlines():
        yield line.strip().removeprefix(".").rstrip()


def read_nouns(wordnet: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return names and hypernyms of each synset of data.noun; wndb(5WN) describes the format."""
    names, hypernyms = dict[str, list[str]](), dict[str, list[str]]()
    for line in (wordnet / "data.noun").read_text(encoding="latin-1").splitlines():
        if line.startswith("  "):  # the licence
            continue
        fields = line.partition(" | ")[0].split()
        synset, count = f"n{fields[0]}", int(fields[3], 16)
        names[synset] = [name.replace("_", " ") for name in fields[4 : 4 + 2 * count : 2]]
        pointers = fields[5 + 2 * count :]
        hypernyms[synset] = [
            f"n{target}"
            for symbol, target in zip(pointers[::4], pointers[1::4], strict=False)
            if symbol in ("@", "@i")  # of a class, of an instance
        ]
    return names, hypernyms


if __name__ == "__main__":
    main()
