"""SEARLE and Pic2Word: steps equal to slow ones written from the papers; the model stays as it is.

An image's word does not depend on the images beside it, and the composed sentence is the template's.
"""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cenote.data import Record, pack
from cenote.models import create_model
from cenote.models.image_text.small_clip import SmallClip
from cenote.models.image_text.text_encoder import TextTower, Words
from cenote.search import ComposedQuery, MatrixDatabase, WordMemory, compose, compose_all
from cenote.search.evaluation import TaskEvaluator
from cenote.search.inversion import (
    INITIAL_STD,
    PHRASES,
    WordMapping,
    fit_words,
    mapping_loss,
    train_mapping,
)
from cenote.search.methods import MethodSpec
from cenote.search.protocols import domain_conversion
from cenote.unit import unit
from tests.toy_models import WordSumModel, image_vectors

WORDS = ["cat", "bird", "red", "house", "sketch", "meadow"]


@pytest.fixture
def model() -> SmallClip:
    torch.manual_seed(0)
    words = Words.of([*WORDS, "a photo of"], context=12)
    image = create_model("resnet_micro", "gap", 0, embedding_dim=24)
    made = SmallClip(
        image, TextTower(len(words), 24, 12, width=16, layers=1, heads=2), words
    ).eval()
    for p in made.text.parameters():
        p.data.mul_(1.5)
    return made


def memory(model: SmallClip) -> WordMemory:
    return WordMemory(WORDS, model.embed_texts(WORDS))


def slow(
    model: SmallClip, image: Tensor, words: WordMemory, steps: int, lr: float, concepts: int
) -> Tensor:
    """One image: AdamW and the moving average by hand."""
    draw = torch.Generator().manual_seed(0)
    v = INITIAL_STD * torch.randn(1, 16, generator=draw)
    mean, first, second = v.clone(), torch.zeros_like(v), torch.zeros_like(v)
    near = sorted(range(len(words.words)), key=lambda i: -float(words.vectors[i] @ image))[
        :concepts
    ]
    for step in range(1, steps + 1):
        v = v.detach().requires_grad_()
        phrase = PHRASES[int(torch.randint(len(PHRASES), (), generator=draw))]
        concept = words.words[near[int(torch.randint(concepts, (), generator=draw))]]
        matched = 1 - F.cosine_similarity(model.embed_with_word("a photo of $", v)[0], image, dim=0)
        real = model.embed_texts([phrase.replace("$", concept)])[0]
        kept = 1 - F.cosine_similarity(model.embed_with_word(phrase, v)[0], real, dim=0)
        ((matched + 0.5 * kept) / 1.5).backward()
        first = 0.9 * first + 0.1 * v.grad
        second = 0.999 * second + 0.001 * v.grad**2
        update = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        v = v.detach() * (1 - lr * 0.01) - lr * update
        mean = 0.99 * mean + 0.01 * v
    return mean[0]


def test_a_word_is_optimised_as_by_hand(model: SmallClip) -> None:
    images = image_vectors(3)
    found = fit_words(model, images, memory(model), steps=6, lr=0.02, concepts=3)
    for image, word in zip(images, found, strict=True):
        torch.testing.assert_close(
            word, slow(model, image, memory(model), 6, 0.02, 3), atol=1e-4, rtol=1e-3
        )


def test_an_image_s_word_does_not_depend_on_the_others(model: SmallClip) -> None:
    images = image_vectors(4)
    together = fit_words(model, images, memory(model), steps=5)
    alone = fit_words(model, images[2:3], memory(model), steps=5)
    torch.testing.assert_close(together[2:3], alone, atol=1e-4, rtol=1e-3)


def test_the_word_comes_to_mean_the_image(model: SmallClip) -> None:
    images = model.embed_texts(["a photo of cat", "a photo of house"])
    before = model.embed_with_word(
        "a photo of $", fit_words(model, images, None, steps=0, regularisation=0)
    )
    after = model.embed_with_word(
        "a photo of $", fit_words(model, images, None, steps=120, lr=0.05, regularisation=0)
    )
    assert ((after * images).sum(1) > 0.9).all() and (
        (after * images).sum(1) > (before * images).sum(1)
    ).all()


def test_concepts_pull(model: SmallClip) -> None:
    """With much regularisation the word behaves as the nearest concept in other sentences."""
    images, words = image_vectors(1, seed=4), memory(model)
    concept = words.words[int(words.nearest(images, 1)[0, 0])]
    real = model.embed_texts([PHRASES[1].replace("$", concept)])

    def likeness(regularisation: float) -> float:
        word = fit_words(
            model, images, words, steps=40, lr=0.05, concepts=1, regularisation=regularisation
        )
        return float((model.embed_with_word(PHRASES[1], word).detach() * real).sum())

    assert likeness(20.0) > likeness(0.0)


def test_the_model_does_not_change(model: SmallClip) -> None:
    before = copy.deepcopy(model.state_dict())
    fit_words(model, image_vectors(2), memory(model), steps=2)
    train_mapping(model, image_vectors(20), steps=3, batch=8)
    assert all(p.grad is None for p in model.parameters())  # though they ask for gradients
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_mapping_s_loss_is_the_papers(model: SmallClip) -> None:
    torch.manual_seed(1)
    images, mapping = image_vectors(5), WordMapping(24, 16, hidden=8).eval()
    total = 0.0
    with torch.no_grad():
        texts = torch.cat(
            [model.embed_with_word("a photo of $", mapping(image[None])) for image in images]
        )
        for i in range(5):
            to_texts = [float((10 * images[i] @ texts[j]).exp()) for j in range(5)]
            to_images = [float((10 * images[j] @ texts[i]).exp()) for j in range(5)]
            for row in (to_texts, to_images):
                total -= float(torch.tensor(row[i] / sum(row)).log()) / 10
    torch.testing.assert_close(
        mapping_loss(model, mapping, images, 10.0), torch.tensor(total), atol=1e-5, rtol=1e-5
    )


def test_a_mapping_learns_and_is_the_same_again(model: SmallClip) -> None:
    images = image_vectors(32, shift=0.0)
    torch.manual_seed(5)
    state = torch.get_rng_state()
    short, long = (train_mapping(model, images, steps, batch=16, dropout=0.0) for steps in (1, 40))
    assert torch.equal(torch.get_rng_state(), state)  # what others draw is not changed
    with torch.no_grad():
        assert mapping_loss(model, long, images) < 0.8 * mapping_loss(model, short, images)
    again = train_mapping(model, images, 40, batch=16, dropout=0.0)
    assert all(
        torch.equal(a, b) for a, b in zip(long.parameters(), again.parameters(), strict=True)
    )


def test_the_composed_query_is_the_sentence(model: SmallClip) -> None:
    database, images = MatrixDatabase(image_vectors(12)), image_vectors(2, seed=3)
    mapping = WordMapping(24, 16, hidden=8).eval()
    queries = [
        ComposedQuery(images[0], ("sketch",)),
        ComposedQuery(images[1], ("red", "house"), (1.0, -0.5)),
    ]
    with torch.no_grad():
        words = mapping(images)
        want = [
            model.embed_with_word("a sketch of $", words[:1])[0],
            unit(
                model.embed_with_word("a red of $", words[1:])[0]
                - 0.5 * model.embed_texts(["house"])[0]
            ),
        ]
    for plan, vector in zip(
        compose_all("pic2word", queries, database, model, mapping=mapping), want, strict=True
    ):
        torch.testing.assert_close(plan.direction, vector, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(
            plan.scores(database.matrix), database.matrix @ vector, atol=1e-5, rtol=1e-5
        )
    plan = compose(
        "searle", queries[0], database, model, memory(model), steps=3, template="$ as {text}"
    )
    word = fit_words(model, images[:1], memory(model), steps=3)
    torch.testing.assert_close(
        plan.direction, model.embed_with_word("$ as sketch", word)[0].detach()
    )
    assert plan.why == {"sentences": ["$ as sketch"]}
    with pytest.raises(ValueError):  # no positive text
        compose(
            "pic2word",
            ComposedQuery(images[0], ("grass",), (-1.0,)),
            database,
            model,
            mapping=mapping,
        )


def test_a_mapping_of_the_database_is_trained_once(
    model: SmallClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def train(given: SmallClip, images: Tensor, **_: int) -> WordMapping:
        asked.append(len(images))
        return WordMapping(24, 16, hidden=8).eval()

    monkeypatch.setattr("cenote.search.inversion.train_mapping", train)
    database, query = (
        MatrixDatabase(image_vectors(12)),
        ComposedQuery(image_vectors(1)[0], ("sketch",)),
    )
    first, second = (
        compose("pic2word", query, database, model, mapping="database") for _ in range(2)
    )
    assert asked == [12] and torch.equal(first.direction, second.direction)


def test_a_mapping_is_read_from_a_file(model: SmallClip, tmp_path: Path) -> None:
    """Ours, and with the names of Pic2Word's released checkpoint."""
    database, images = MatrixDatabase(image_vectors(12)), image_vectors(1, seed=3)
    mapping, query = WordMapping(24, 16, hidden=8).eval(), ComposedQuery(images[0], ("sketch",))
    state = mapping.state_dict()
    names = {"layers.0.": "layers.0.0.", "layers.3.": "layers.1.0.", "layers.6.": "fc_out."}
    released = {
        f"module.{new}{name.removeprefix(old)}": value
        for name, value in state.items()
        for old, new in names.items()
        if name.startswith(old)
    }
    torch.save(state, tmp_path / "ours.pt")
    torch.save({"epoch": 30, "state_dict_img2text": released}, tmp_path / "released.pt")
    for name, length in (("ours.pt", 1.0), ("released.pt", 1.0), ("released.pt", 9.0)):
        with torch.no_grad():
            vector = model.embed_with_word("a sketch of $", mapping(length * images))[0]
        options = {"mapping": str(tmp_path / name), "length": length}
        plan = compose("pic2word", query, database, model, **options)
        torch.testing.assert_close(plan.direction, vector, atol=1e-5, rtol=1e-5)
    with pytest.raises(ValueError, match="mapping=FILE"):
        compose("pic2word", query, database, model)


@pytest.mark.parametrize(
    ("name", "sentences"),
    [
        ("imagenet-r-conversion", {"a archive of $", "a today of $"}),
        ("nico-conversion", {"a $ in archive", "a $ in today"}),
        ("ltll", {"an archive photo of $", "a today photo of $"}),
    ],
)
def test_the_template_of_a_data_set(name: str, sentences: set[str], model: SmallClip) -> None:
    """[Dissertation Sec. 4.4.2]"""
    domains = ("archive", "today")
    rows = [Record(f"{i}.png", "ab"[i // 2], domain=domains[i % 2]) for i in range(4)]
    task = domain_conversion(pack(rows, Path(name), name))
    bench = TaskEvaluator(task, image_vectors(4), model)
    spec = MethodSpec("pic2word", {"mapping": WordMapping(24, 16, hidden=8)})
    found = bench.scorers(spec, task.queries)
    assert {scorer.why["sentences"][0] for scorer in found} == sentences


def test_wrong_arguments(model: SmallClip) -> None:
    database, query = (
        MatrixDatabase(image_vectors(12)),
        ComposedQuery(image_vectors(1)[0], ("sketch",)),
    )
    for method, options, values in (
        ("searle", {}, "memory"),
        ("pic2word", {"template": "a photo of $"}, "template.*{text}"),
        ("pic2word", {"template": "a {text} of $ and $"}, "template.*{text}"),
        ("pic2word", {"steps": 0}, r"\bsteps\b.*\b0\b"),
        ("pic2word", {"step": 3}, "'step'.*'steps'"),
    ):
        with pytest.raises(ValueError, match=values):
            compose(method, query, database, model, **options)
    with pytest.raises(ValueError, match="'pic2word'"):
        compose("pic2word", query, database, WordSumModel())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="words"):
        compose(
            "pic2word",
            ComposedQuery(image_vectors(1)[0], text=image_vectors(1)[0]),
            database,
            model,
            steps=1,
        )
