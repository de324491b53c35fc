"""`cenote search`: parse, ask, print."""

from __future__ import annotations

import json as to_json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._given import counted

if TYPE_CHECKING:
    from PIL import Image

    from cenote.search.ask import Answer, Result
    from cenote.search.filters import Filter

Several = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


def run(
    index: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    image: Annotated[Several, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = (),
    text: Annotated[Several, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = (),
    without: Annotated[Several, tyro.conf.arg(name="not", metavar="TEXT", help_behavior_hint="")] = (),
    weight: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None,
    method: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto",
    top: int = 10,
    cut: Annotated[float | None, tyro.conf.arg(metavar="SCORE", help_behavior_hint="")] = None,
    sort: Literal["score", "date", "name", "size"] = "score",
    class_: Annotated[Several, tyro.conf.arg(name="class", metavar="NAME", help_behavior_hint="")] = (),
    domain: Annotated[Several, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = (),
    folder: Annotated[Several, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = (),
    since: Annotated[str | None, tyro.conf.arg(metavar="DATE", help_behavior_hint="")] = None,
    until: Annotated[str | None, tyro.conf.arg(metavar="DATE", help_behavior_hint="")] = None,
    min_size: Annotated[str | None, tyro.conf.arg(metavar="SIZE", help_behavior_hint="")] = None,
    max_size: Annotated[str | None, tyro.conf.arg(metavar="SIZE", help_behavior_hint="")] = None,
    near_duplicates: Literal["hide", "show"] = "hide",
    words: Annotated[str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: the index's)")] = None,
    exact: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    sheet: Annotated[Path | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = None,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    why: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Find images by image ("more like this"), by text, or by both: this image, but as that text says.

    Scores are cosines to the query, or to the sum that it became; WeiCom's are from 0 to 1, those of product, basic and
    normalised-sum on scales of their own. Near-duplicates are hidden behind the best of them; a file that is gone is
    marked. Exit code 2: wrong input, or an index that cannot be used.

    Args:
        index: a folder that cenote index wrote, or Milvus as there.
        image: an image file, also one that is not in the index; several are averaged.
        text: what is wanted; "dog^2" counts twice; several are added.
        without: what is not wanted.
        weight: of the text, from 0 to 1, when image and text are given (WeiCom).
        method: auto (text, image, or freedom for both), weicom, freedom, basic, sum ...; freedom:k=5 sets an option.
        top: how many are shown.
        cut: leave out what scores less.
        sort: the order of what is left.
        class_: only images of this class; several: of one of them.
        domain: only images of this domain.
        folder: only images below this folder.
        since: only images from this date on: 2024, 2024-05 or 2024-05-17.
        until: only images up to the end of this date.
        min_size: only files of at least so many bytes: 200KB, 1.5MB.
        max_size: only files of at most so many bytes.
        near_duplicates: hide or show pictures that look the same.
        words: another word list for FreeDom or SEARLE.
        exact: compare with every image, also where an approximate index would be faster.
        sheet: draw the results on a contact sheet, .jpg or .png.
        json: print a list of {"path", "score", ...}.
        why: tell the words, weights and statistics behind the scores.
    """
    from cenote.search.ask import Question, ask

    if not (image or text or without):
        raise ValueError("an empty question finds nothing: give --image, --text or both")
    if sheet is not None and sheet.suffix.lower() not in (".jpg", ".jpeg", ".png"):
        raise ValueError(f"--sheet {sheet}: the contact sheet is a .jpg or a .png")
    chosen = _filter(class_, domain, folder, since, until, min_size, max_size)
    name, options = _method(method, weight)
    question = Question(image, text, without, name, top, cut, sort, near_duplicates, chosen, options)
    store, model, memory = _opened(index, question, words, exact)
    answer = ask(question, store, model, memory)
    if sheet is not None:
        _draw(question, answer, sheet)
    if json:
        rows = [row(result) | ({"why": answer.why} if why else {}) for result in answer.results]
        print(to_json.dumps(rows, indent=2, ensure_ascii=False))
        return
    print(_table(answer, question.cut))
    if why:
        print(_reasons(answer.why))
    if sheet is not None:
        print(f"contact sheet: {sheet}")


def _filter(
    classes: tuple[str, ...], domains: tuple[str, ...], folders: tuple[str, ...], since: str | None,
    until: str | None, smallest: str | None, largest: str | None,
) -> Filter:  # fmt: skip
    from cenote.search.filters import Filter, parse_date, parse_size

    # A folder of a data set without files, "world/tiny:cats", is a beginning of names; any other is a path.
    where = tuple(name if ":" in name else str(Path(name).expanduser().absolute()) for name in folders)
    return Filter(
        classes, domains, where,
        None if since is None else parse_date(since), None if until is None else parse_date(until, end=True),
        None if smallest is None else parse_size(smallest), None if largest is None else parse_size(largest),
    )  # fmt: skip


def _method(method: str, weight: float | None) -> tuple[str, dict[str, Any]]:
    """Its name and options; `--weight X` is `weicom:weight=X`."""
    from cenote.search.judge import read_method

    if method == "auto":
        return method, {} if weight is None else dict(read_method(f"weicom:weight={weight}").options)
    asked = read_method(method if weight is None else f"{method}:weight={weight}")
    return asked.method, dict(asked.options)


def _opened(index: str, question: Any, words: str | None, exact: bool) -> tuple[Any, Any, Any]:
    from cenote.models.image_text import create_image_text
    from cenote.search.ask import method_of
    from cenote.search.compose import find_method
    from cenote.search.store import open_store
    from cenote.search.words import load_words, remember_words

    method_of(question, bool(words))  # what is wrong with any index is said first
    store: Any = open_store(index)
    kept = store.description.words
    method = method_of(question, bool(words or kept))
    wanted = find_method(method).words
    if words and not wanted:
        raise ValueError(f"--words {words}: '{method}' reads no word list, freedom and searle do")
    if words:
        load_words(words)  # before the model, which takes longer
    if not exact and hasattr(store, "open_approximate"):
        store.open_approximate()
    model = create_image_text(store.description.model)
    store.description.refuse_other(model, index)
    if not wanted:
        return store, model, None
    memory = remember_words(model, load_words(words or kept.get("name") or None, model))
    if memory.digest != kept.get("digest"):
        if not words and kept:
            raise ValueError(
                f"the word list {kept['name']} is no more what {index} was made with: give it with --words"
            )
        store.forget_words()  # ids of another list
    return store, model, memory


def row(result: Result) -> dict[str, Any]:
    """A result as programs read it."""
    entry = result.entry
    told = {"path": entry.path, "score": round(result.score, 6), "missing": result.missing}
    told |= {"class": entry.label, "domain": entry.domain, "split": entry.split, "caption": entry.caption}
    told |= {"attributes": dict(entry.attributes) or None, "width": entry.width, "height": entry.height}
    told |= {"bytes": entry.size, "date": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(entry.date))}
    told["duplicates"] = list(result.duplicates)
    return {key: value for key, value in told.items() if value is not None}


def _table(answer: Answer, cut: float | None) -> str:
    if not answer.searched:
        return "no image passes the filter"
    lines = []
    for place, result in enumerate(answer.results, 1):
        notes = ["(missing)"] * result.missing
        notes += [f"(+{counted(len(result.duplicates), 'near-duplicate')})"] if result.duplicates else []
        label = "/".join(part for part in (result.entry.label, result.entry.domain) if part)
        lines.append(
            "  ".join([f"{place:3d}", f"{result.score:6.3f}", result.entry.path, *([label] * bool(label)), *notes])
        )
    passed = "" if cut is None else f", {answer.relevant}{'' if answer.exact else ' or more'} score at least {cut:g}"
    how = "" if answer.exact else f", ranked among the {answer.method} query's nearest"
    lines.append(f"{counted(len(answer.results), 'image')} of {answer.searched} by {answer.method}{passed}{how}")
    return "\n".join(lines)


def _reasons(why: dict[str, Any]) -> str:
    """A line for each reason; what is not known here is printed as it is."""
    told = dict(why)
    told["terms"] = ", ".join(f"{each['text']} {each['weight']:+g}" for each in why["terms"])
    told["images"] = ", ".join(why.get("images", ()))
    if "words" in why:
        told["words"] = ", ".join(f"{each['word']} {each['weight']:.2f}" for each in why["words"])
    if "proxies" in why:
        shown = [Path(path).name for path in why["proxies"]]
        told["proxies"] = ", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")
    for name, value in told.items():
        if isinstance(value, dict):
            told[name] = ", ".join(f"{key} {number:.4g}" for key, number in value.items())
    return "\n".join(f"{name}: {value}" for name, value in told.items() if value not in ("", None))


def _draw(question: Any, answer: Answer, path: Path) -> None:
    from cenote.data import write_atomically
    from cenote.show.found import Shown, found_sheet

    pictures = _Pictures()
    shown = [
        Shown(pictures(result.entry), Path(result.entry.path).name, result.score, len(result.duplicates))
        for result in answer.results
    ]
    asked = [*question.texts, *(f"not {text}" for text in question.without)]
    page = found_sheet(shown, " + ".join(asked), [pictures.file(path) for path in question.images], answer.method)
    with write_atomically(path) as temporary:
        page.save(temporary, quality=92, subsampling=0)  # which a PNG does not mind


class _Pictures:
    """Of files, and of data sets whose images are none."""

    def __init__(self) -> None:
        self.datasets: dict[str, Any] = {}

    def file(self, path: str | Path) -> Image.Image | None:
        from cenote.data import BadImage, read_image

        try:
            return read_image(path)
        except BadImage:
            return None

    def __call__(self, entry: Any) -> Image.Image | None:
        if entry.time:
            return self.file(entry.path)
        from cenote.data import open_dataset

        if entry.source not in self.datasets:
            dataset = open_dataset(entry.source)
            self.datasets[entry.source] = dataset, {dataset[i].image: i for i in range(len(dataset))}
        dataset, places = self.datasets[entry.source]
        place = places.get(entry.path.partition(":")[2])
        picture: Image.Image | None = None if place is None else dataset.image(place)
        return picture
