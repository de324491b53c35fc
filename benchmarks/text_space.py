"""How well the text-space model finds images by the names of their classes, and its doubt.

    python benchmarks/text_space.py DATA                        # precision at ten, AP: versions 1, 2
    python benchmarks/text_space.py DATA --settings             # of version 2: weights, classes
    python benchmarks/text_space.py DATA --calibrate            # the curve of ShareCalibration
    python benchmarks/text_space.py DATA --hypernyms            # dogs and cats among six breeds
    python benchmarks/text_space.py DATA --absent               # known words that no image shows
    python benchmarks/text_space.py DATA --doubt WORDNET WORDS...   # texts that are known or not

DATA is shared/data; the images are classified once, in 3 minutes on one core, and their logits kept
in the folder --cache. Everything else takes seconds. The query is the name of a class. "union" is
all photographs as one database, where a Siamese is a cat, too, and every image of cub a bird.
Settings were chosen on every second class (the even ones, and all of pacs) and on the nearest
classes of the names of Caltech-101; the odd classes and rsscn7 test them.

WORDNET is the folder of Debian's wordnet-base (usr/share/wordnet), WORDS are files of words of other
languages, such as those of Debian's wngerman, wfrench and wspanish (usr/share/dict).
"""

import argparse
import difflib
import itertools
import random
import string
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir

import numpy as np
import torch
from hypernyms import read_nouns
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from cenote.allocator import keep_memory
from cenote.data import Dataset, open_dataset
from cenote.metrics.rankings import average_precision
from cenote.models.image_text import text_space
from cenote.models.image_text.synsets import MIN_FAMILIARITY, imagenet_synsets, plain
from cenote.models.image_text.text_space import SynsetVectors, TextSpace, WordVectors
from cenote.search.doubt import (
    MIN_LIKENESS,
    SPELLING,
    ShareCalibration,
    cosine_scale,
    likeness,
    unrelated_scores,
)

SETS = ("pacs", "coco", "pets", "cub", "rsscn7", "weizmann_horse")
MIN_IMAGES = 3  # of a class that is queried
SHOWN = 20  # results of a query that the curve is fitted to
FITTED_ON = ("coco", "pets", "union")
ABSENT = """accordion stapler wrench umbrella violin tractor submarine toaster wallet trombone pizza
volcano espresso lighthouse helicopter scissors drum binoculars cannon castle mosque hammer banana
strawberry sunglasses teapot candle piano"""  # in pets, cub and rsscn7
# Names of Caltech-101 that none of pacs (photographs), pets, cub and rsscn7 shows.
CALTECH = """accordion,airplane,anchor,ant,barrel,beaver,binocular,bonsai,brain,brontosaurus,
butterfly,camera,cannon,ceiling fan,cellphone,chandelier,crab,crayfish,crocodile,dolphin,dragonfly,
euphonium,gramophone,grand piano,hawksbill,headphone,hedgehog,helicopter,joshua tree,kangaroo,ketch,
lamp,lobster,lotus,menorah,metronome,minaret,nautilus,octopus,okapi,pagoda,panda,platypus,pyramid,
revolver,rhino,saxophone,schooner,scorpion,seahorse,stapler,starfish,stegosaurus,strawberry,
sunflower,tick,trilobite,watch,water lily,wheelchair,wrench"""
TABLES = [("pacs photo", None), ("pacs", None), ("coco", 0), ("pets", 0), ("cub", 0), ("union", 0)]
TABLES += [("coco", 1), ("pets", 1), ("cub", 1), ("rsscn7", None), ("union", 1)]
CHOSEN_ON = 6  # of these tables


class Database:
    """Logits (N, 1000) of images, and which of them have each class."""

    def __init__(self, logits: Tensor, labels: list[set[str]]) -> None:
        self.logits, self.labels = logits, labels
        names = sorted(set().union(*labels))
        relevant = {name: np.array([name in label for label in labels]) for name in names}
        self.truth = {name: rows for name, rows in relevant.items() if rows.sum() >= MIN_IMAGES}

    def without(self, *names: str) -> "Database":
        return Database(self.logits, [labels - set(names) for labels in self.labels])

    def queries(self, half: int | None) -> list[str]:
        return list(self.truth) if half is None else list(self.truth)[half::2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--cache", type=Path, default=Path(gettempdir()) / "text-space")
    parser.add_argument("--settings", action="store_true")
    parser.add_argument("--calibrate", action="store_true")
    parser.add_argument("--absent", action="store_true")
    parser.add_argument("--hypernyms", action="store_true")
    parser.add_argument("--doubt", nargs="+", type=Path, metavar="FILE")
    args = parser.parse_args()
    keep_memory()
    if args.doubt:
        doubt(args.data, args.doubt[0], args.doubt[1:])
        return
    model = TextSpace()
    databases = read(args.data, args.cache, model)
    if args.calibrate:
        calibrate(model, databases)
        return
    if args.absent:
        absent(model, databases)
        return
    if args.hypernyms:
        hypernyms(model, databases["pets"])
        return
    print(f"| | {' | '.join(name(table) for table in TABLES)} | chosen on | tested on |")
    print(f"|---|{'---|' * (len(TABLES) + 2)}")
    if args.settings:
        for weight, wording in itertools.product((0.3, 0.5, 0.7), (0.25, 0.5, 1.0)):
            text_space.HYPERNYM_WEIGHT, text_space.WORDING_WEIGHT = weight, wording
            model.text_encoder = SynsetVectors(WordVectors())
            model.classes = model.text_encoder.classes
            report(f"hypernyms {weight:g}, wording {wording:g}", model, databases)
        return
    report("version 1", TextSpace(version=1), databases)
    report("version 2", model, databases)
    for model.top, model.temperature in itertools.product((20, 50, 100), (1.0, 2.0, 3.0)):
        report(f"top {model.top}, temperature {model.temperature:g}", model, databases)


def name(table: tuple[str, int | None]) -> str:
    return table[0] + {None: "", 0: " even", 1: " odd"}[table[1]]


def read(folder: Path, cache: Path, model: TextSpace) -> dict[str, Database]:
    databases = dict[str, Database]()
    for data_set in SETS:
        data, file = open_dataset(str(folder / data_set)), cache / f"{data_set}.pt"
        if not file.exists():
            cache.mkdir(parents=True, exist_ok=True)
            torch.save(classify(model, data), file)
        logits, labels = torch.load(file), [labels_of(data_set, record) for record in data]
        databases[data_set] = Database(logits, labels)
        if data_set == "pacs":
            rows = [i for i, record in enumerate(data) if record.domain == "photo"]
            databases["pacs photo"] = Database(logits[rows], [labels[i] for i in rows])
    photographs = [databases[data_set] for data_set in ("pacs photo", *SETS[1:])]
    labels = [label for database in photographs for label in database.labels]
    databases["union"] = Database(torch.cat([d.logits for d in photographs]), labels)
    for data_set in ("pets", "cub"):  # all images of cub are birds
        databases[data_set] = databases[data_set].without("cat", "dog", "bird")
    return databases


@torch.no_grad()
def classify(model: TextSpace, data: Dataset, batch: int = 32) -> Tensor:
    """Return the logits (N, 1000)."""
    transform, starts = model.transform(), range(0, len(data), batch)
    batches = (
        [transform(data.image(i)) for i in range(s, min(s + batch, len(data)))] for s in starts
    )
    return torch.cat([model.classifier(torch.stack(images)) for images in batches])


def labels_of(data_set: str, record: object) -> set[str]:
    """Return the names of what an image shows: its class, the classes of its boxes, the kind."""
    label = record.label or ""  # type: ignore[attr-defined]
    labels = {box.label for box in record.boxes} - {None}  # type: ignore[attr-defined]
    if data_set == "pets":
        labels.add("cat" if label[0].isupper() else "dog")
    labels |= {"cub": {"bird"}, "weizmann_horse": {"horse"}}.get(data_set, set())
    number, _, remainder = label.partition(".")
    text = remainder if number.isdigit() else label
    return labels | ({text.replace("_", " ")} if text else set())


def embed(model: TextSpace, database: Database) -> Tensor:
    return torch.cat([model.embed_output(logits) for logits in database.logits.split(256)])


def report(title: str, model: TextSpace, databases: dict[str, Database]) -> None:
    """Print precision at ten and average precision, and their means over both kinds of tables."""
    images = {data_set: embed(model, databases[data_set]) for data_set, _ in TABLES}
    rows = list[np.ndarray]()
    for data_set, half in TABLES:
        truth, queries = databases[data_set].truth, databases[data_set].queries(half)
        orders = (model.embed_texts(queries) @ images[data_set].T).argsort(
            descending=True, stable=True, dim=1
        )
        ranked = [truth[q][order] for q, order in zip(queries, orders.numpy(), strict=True)]
        tens = [row[:10].sum() / min(10, row.sum()) for row in ranked]
        rows.append(np.array([np.mean(tens), np.mean([average_precision(row) for row in ranked])]))
    rows += [np.mean(rows[:CHOSEN_ON], 0), np.mean(rows[CHOSEN_ON:], 0)]
    print(f"| {title} | {' | '.join(f'{ten:.3f} / {ap:.3f}' for ten, ap in rows)} |", flush=True)


def hypernyms(model: TextSpace, pets: Database) -> None:
    """Print precision at ten and AP in 60 random sets of three breeds of cats and three of dogs.

    "described" is the vector of the text by names, definitions and hypernyms alone.
    """
    images, breeds = embed(model, pets), [min(labels) for labels in pets.labels]
    print("| breeds | text | described: P@10 / AP | search |\n|---|---|---|---|")
    for half in (0, 1):
        rng, names = random.Random(half), sorted(set(breeds))[half::2]
        cats = [breed for breed in names if breed[0].isupper()]
        dogs = [breed for breed in names if breed[0].islower()]
        draws = [{*rng.sample(cats, 3), *rng.sample(dogs, 3)} for _ in range(60)]
        for text in ("dog", "a photo of a dog", "black dog", "small dog", "cat"):
            cells = []
            for vector in (
                model.text_encoder.describe_texts([text])[0],  # type: ignore[operator]
                model.embed_texts([text])[0],
            ):
                order = (images @ vector).argsort(descending=True, stable=True).tolist()
                values = list[tuple[float, float]]()
                for draw in draws:
                    rows = [breeds[i] for i in order if breeds[i] in draw]
                    right = np.array([breed[0].isupper() == (text == "cat") for breed in rows])
                    values.append((right[:10].mean(), average_precision(right)))
                cells.append("{:.3f} / {:.3f}".format(*np.mean(values, 0)))
            print(f"| {('even', 'odd')[half]} | {text} | {' | '.join(cells)} |", flush=True)


def calibrate(model: TextSpace, databases: dict[str, Database]) -> None:
    """Fit the curve on even classes of some sets, each with the same weight; test on odd ones."""
    curve, names = ShareCalibration(), list(dict.fromkeys(data_set for data_set, _ in TABLES))
    samples = dict[tuple[str, int], tuple[Tensor, Tensor]]()
    chance = dict[str, list[tuple[float, bool]]]()
    for data_set in names:
        database = databases[data_set]
        images = embed(model, database)
        null = unrelated_scores(model, images)
        for half in (0, 1):
            texts = database.queries(half)
            absent = ABSENT.split()[half::2] if data_set in ("pets", "cub", "rsscn7") else []
            standardized, right = list[Tensor](), list[Tensor]()
            for text, vector in zip(
                [*texts, *absent], model.embed_texts([*texts, *absent]), strict=True
            ):
                scores = cosine_scale(model, [text]) * (images @ vector)
                best = scores.topk(SHOWN).indices
                relevant = torch.from_numpy(database.truth.get(text, np.zeros(len(images), bool)))
                standardized.append(curve.standardize(scores[best], null))
                right.append(relevant[best].float())
                share = float(relevant[best[:10]].sum() / relevant.sum().clamp(1, 10))
                chance.setdefault(data_set, []).append((share, curve.is_chance(scores, null)))
            samples[data_set, half] = torch.cat(standardized), torch.cat(right)
    slope, intercept = fit([samples[data_set, 0] for data_set in FITTED_ON])
    print(f"ShareCalibration(slope={slope:.2f}, intercept={intercept:.2f})\n")
    print("| | right | ECE, odd classes | said to be chance: P@10 of at least 0.5 | at most 0.1 |")
    print("|---|---|---|---|---|")
    for data_set in names:
        test = samples[data_set, 1]
        columns = [f"{float(test[1].mean()):.2f}", f"{error(test, slope, intercept):.3f}"]
        for is_kind in (lambda share: share >= 0.5, lambda share: share <= 0.1):
            said = [is_chance for share, is_chance in chance[data_set] if is_kind(share)]
            columns.append(f"{sum(said)} of {len(said)}")
        print(f"| {data_set} | {' | '.join(columns)} |")


LIKENESSES = (0.1, 0.2, 0.3, 0.4)
ABSENT_TABLES = [("pacs", None), ("coco", 0), ("pets", 0)]  # on which MIN_LIKENESS was chosen
ABSENT_TABLES += [("coco", 1), ("pets", 1), ("cub", None), ("rsscn7", None), ("pacs photo", None)]


def absent(model: TextSpace, databases: dict[str, Database]) -> None:
    """Print of how many known words the best image is below a likeness, by kind.

    well found  classes of which half of the first ten images are right
    removed     classes whose images were removed: related ones remain, as giraffes for the zebra
    unrelated   words of ABSENT
    caltech     names of Caltech-101, of which only their relatives are there, if anything

    The last column counts the words whose best score, an estimated share, is below one half.
    """
    print(
        f"| | kind | words | {' | '.join(f'below {t:g}' for t in LIKENESSES)} | score below 0.5 |"
    )
    print(f"|---|---|---|{'---|' * (len(LIKENESSES) + 1)}")
    curve = ShareCalibration()

    def judge(vector: Tensor, images: Tensor, null: Tensor, scale: float) -> tuple[float, float]:
        """Return the likeness and the score of the best image."""
        scores = images @ vector
        best = float(curve.shares(scores, null).max())
        return likeness(model, vector, scores, null, scale), best

    for data_set, half in ABSENT_TABLES:
        database, values = databases[data_set], dict[str, list[tuple[float, float]]]()
        images = embed(model, database)
        null = unrelated_scores(model, images)
        for text in database.queries(half):
            if model.familiarity(text) < MIN_FAMILIARITY:
                continue
            vector, relevant = model.embed_texts([text])[0], torch.from_numpy(database.truth[text])
            scores, scale = images @ vector, cosine_scale(model, [text])
            right = relevant[scores.topk(10).indices].sum()
            if 2 * right >= relevant.sum().clamp(max=10):
                values.setdefault("well found", []).append(judge(vector, images, null, scale))
            others = images[~relevant]
            null_of_others = unrelated_scores(model, others)
            values.setdefault("removed", []).append(judge(vector, others, null_of_others, scale))
        step = slice(half or 0, None, 1 if half is None else 2)
        words = dict[str, list[str]]()
        if data_set in ("pets", "cub", "rsscn7"):
            words["unrelated"] = ABSENT.split()[step]
        if data_set in ("pets", "cub", "rsscn7", "pacs photo"):
            names = " ".join(CALTECH.split()).replace(", ", ",").split(",")[step]
            words["caltech"] = [w for w in names if model.familiarity(w) >= MIN_FAMILIARITY]
        for kind, texts in words.items():
            values[kind] = []
            for text in texts:
                vector, scale = model.embed_texts([text])[0], cosine_scale(model, [text])
                values[kind].append(judge(vector, images, null, scale))
        for kind, numbers in values.items():
            counts = [sum(like < t for like, _ in numbers) for t in LIKENESSES]
            counts.append(sum(best < 0.5 for _, best in numbers))
            cells = " | ".join(map(str, counts))
            print(f"| {name((data_set, half))} | {kind} | {len(numbers)} | {cells} |", flush=True)
    print(f"\nMIN_LIKENESS is {MIN_LIKENESS:g}")


def fit(samples: list[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """Return slope and intercept of the logistic regression with equal weight for every set."""
    curve = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.LBFGS([curve], max_iter=100)

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = torch.stack(
            [binary_cross_entropy_with_logits(curve[0] * x + curve[1], y) for x, y in samples]
        ).mean()
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    slope, intercept = curve.tolist()
    return slope, intercept


def error(sample: tuple[Tensor, Tensor], slope: float, intercept: float) -> float:
    """Return the expected calibration error in ten bins."""
    shares, right = (slope * sample[0] + intercept).sigmoid(), sample[1]
    bins = (10 * shares).long().clamp(max=9)
    total = sum((shares[bins == b].sum() - right[bins == b].sum()).abs() for b in range(10))
    return float(total) / len(shares)


def doubt(folder: Path, wordnet: Path, languages: list[Path]) -> None:
    """Print how many known and unknown texts are said to be unknown, by threshold."""
    synsets = imagenet_synsets()
    print(f"| | texts | {' | '.join(f'below {t:g}' for t in THRESHOLDS)} | the odd half, below "
          f"{MIN_FAMILIARITY:g} |\n|---|---|{'---|' * (len(THRESHOLDS) + 1)}")  # fmt: skip
    for title, texts in (known_texts(folder) | unknown_texts(folder, wordnet, languages)).items():
        scores = np.array([synsets.familiarity(text) for text in texts])
        shares = [f"{100 * (scores[::2] < t).mean():.1f}%" for t in THRESHOLDS]
        test = f"{100 * (scores[1::2] < MIN_FAMILIARITY).mean():.1f}%"
        print(f"| {title} | {len(texts)} | {' | '.join(shares)} | {test} |")
    suggest(synsets.known_names)


def suggest(names: list[str]) -> None:
    """Print how often a name with one wrong letter is suggested, and how often nonsense gets one."""
    rng = random.Random(0)

    def nearest(text: str) -> list[str]:
        return difflib.get_close_matches(text, names, 2, SPELLING)

    def misspell(name: str) -> str:
        i = rng.randrange(1, len(name) - 1)
        letter = rng.choice(["", name[i + 1] + name[i], rng.choice(string.ascii_lowercase)])
        return name[:i] + letter + name[i + max(len(letter), 1) :]

    chosen = rng.sample([name for name in names if 4 <= len(name) <= 15], 200)
    typos = sum(name in nearest(misspell(name)) for name in chosen)
    letters = string.ascii_lowercase
    nonsense = ["".join(rng.choices(letters, k=rng.randint(4, 12))) for _ in range(200)]
    print(f"\nsuggested: {typos} of 200 names with one error, "
          f"something for {sum(map(bool, map(nearest, nonsense)))} of 200 made-up words")  # fmt: skip


THRESHOLDS = (0.4, 0.5, 0.6, 0.7)
PHRASES = ("a photo of a {}", "two {}s on a {}", "red {}", "a small {} near the {}",
           "{} in the snow", "a woman with a {}", "old {} standing in front of a {}")  # fmt: skip


def known_texts(folder: Path) -> dict[str, list[str]]:
    synsets, rng = imagenet_synsets(), random.Random(0)
    names = [synsets.names[synset] for synset in synsets.classes]
    first = [synonyms[0] for synonyms in names]
    truth = Database(torch.empty(0), [
        labels_of("coco", record) for record in open_dataset(str(folder / "coco"))
    ]).truth  # fmt: skip
    return {
        "names of classes": [name for synonyms in names for name in synonyms],
        "their plurals": [plural(name) for name in first],
        "phrases": [p.format(*rng.sample(first, 2)) for p in PHRASES for _ in range(60)],
        "classes of COCO": list(truth),
    }


def plural(name: str) -> str:
    if name.endswith(("ss", "us", "x", "ch", "sh")):
        return f"{name}es"
    return name if name.endswith("s") else f"{name}s"


def unknown_texts(folder: Path, wordnet: Path, languages: list[Path]) -> dict[str, list[str]]:
    rng = random.Random(0)
    names, hypernyms = read_nouns(wordnet)
    senses = dict[str, list[str]]()
    for synset, synonyms in names.items():
        for synonym in synonyms:
            senses.setdefault(plain(synonym), []).append(synset)

    def is_physical(synset: str) -> bool:
        return synset == "n00001930" or any(map(is_physical, hypernyms[synset]))

    def letters(first: str, last: str) -> Callable[[], str]:
        return lambda: "".join(
            chr(rng.randint(ord(first), ord(last))) for _ in range(rng.randint(2, 12))
        )

    vocabulary = (folder / "vocabulary" / "open_images_v7.csv").read_text(encoding="utf-8")
    words = [plain(line) for line in vocabulary.splitlines()]
    abstract = [w for w in words if w in senses and not any(map(is_physical, senses[w]))]
    groups = {
        "abstract words of Open Images": sorted(set(abstract)),
        "random letters": [letters("a", "z")() for _ in range(500)],
        "one letter": list(string.ascii_lowercase),
        "Greek, Cyrillic, Hebrew, Chinese letters": [
            make() for make in map(letters, "αаא一", "ωяת龥") for _ in range(100)
        ],
    }
    for file in languages:
        foreign = [w.strip() for w in file.read_text(encoding="utf-8", errors="ignore").split()]
        foreign = [w for w in foreign if w.isalpha() and w.islower() and len(w) > 3]
        groups[file.name] = rng.sample([w for w in foreign if w not in senses], 300)
    return groups


if __name__ == "__main__":
    main()
