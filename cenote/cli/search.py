"""`cenote search`: parse, ask, print."""

from __future__ import annotations

import json as to_json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from ._arguments import pluralize, print_message

if TYPE_CHECKING:
    from cenote.search.filters import Filter
    from cenote.search.query import SearchAnswer
    from cenote.search.ranking import SearchResult

Several = Annotated[tuple[str, ...], tyro.conf.UseAppendAction]


def run(
    index: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="INDEX")],
    image: Annotated[Several, tyro.conf.arg(metavar="FILE", help_behavior_hint="")] = (),
    text: Annotated[Several, tyro.conf.arg(metavar="TEXT", help_behavior_hint="")] = (),
    without: Annotated[
        Several, tyro.conf.arg(name="not", metavar="TEXT", help_behavior_hint="")
    ] = (),
    weight: Annotated[float | None, tyro.conf.arg(metavar="X", help_behavior_hint="")] = None,
    method: Annotated[str, tyro.conf.arg(metavar="NAME")] = "auto",
    top: int = 10,
    cut: Annotated[float | None, tyro.conf.arg(metavar="SCORE", help_behavior_hint="")] = None,
    sort: Literal["score", "date", "name", "size"] = "score",
    class_: Annotated[
        Several, tyro.conf.arg(name="class", metavar="NAME", help_behavior_hint="")
    ] = (),
    domain: Annotated[Several, tyro.conf.arg(metavar="NAME", help_behavior_hint="")] = (),
    folder: Annotated[Several, tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = (),
    since: Annotated[str | None, tyro.conf.arg(metavar="DATE", help_behavior_hint="")] = None,
    until: Annotated[str | None, tyro.conf.arg(metavar="DATE", help_behavior_hint="")] = None,
    min_size: Annotated[str | None, tyro.conf.arg(metavar="SIZE", help_behavior_hint="")] = None,
    max_size: Annotated[str | None, tyro.conf.arg(metavar="SIZE", help_behavior_hint="")] = None,
    near_duplicates: Literal["hide", "show"] = "hide",
    words: Annotated[
        str | None, tyro.conf.arg(metavar="FILE", help_behavior_hint="(default: the index's)")
    ] = None,
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
    from cenote.search.opening import choose_method, open_for
    from cenote.search.query import SearchRequest, ask

    if not (image or text or without):
        raise ValueError("an empty question finds nothing: give --image, --text or both")
    if sheet is not None and sheet.suffix.lower() not in (".jpg", ".jpeg", ".png"):
        raise ValueError(f"--sheet {sheet}: the contact sheet is a .jpg or a .png")
    if weight is not None and not (image and (text or without)):
        raise ValueError("--weight is of a text beside an image: give both")
    chosen = _filter(class_, domain, folder, since, until, min_size, max_size)
    name, options = choose_method(method, weight)
    question = SearchRequest(
        image, text, without, name, top, cut, sort, near_duplicates, chosen, options
    )
    answer = ask(question, *open_for(question, index, words, exact))
    if missing := sum(result.missing for result in answer.results):
        print_message(
            f"{missing} of these are no more where they were: `cenote index IMAGES -o {index}` with the folder that "
            "they are in now knows them by their contents"
        )
    if unknown := answer.why.get("unknown"):
        print_message(
            f"the model has never read {', '.join(unknown)}: what it finds for that is a guess"
        )
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
    where = tuple(
        name if ":" in name else str(Path(name).expanduser().absolute()) for name in folders
    )
    return Filter(
        classes, domains, where,
        None if since is None else parse_date(since), None if until is None else parse_date(until, end=True),
        None if smallest is None else parse_size(smallest), None if largest is None else parse_size(largest),
    )  # fmt: skip


def row(result: SearchResult) -> dict[str, Any]:
    """A result as programs read it."""
    entry = result.entry
    told = {"path": entry.path, "score": round(result.score, 6), "missing": result.missing}
    told |= {
        "class": entry.label,
        "domain": entry.domain,
        "split": entry.split,
        "caption": entry.caption,
    }
    told |= {
        "attributes": dict(entry.attributes) or None,
        "width": entry.width,
        "height": entry.height,
    }
    told |= {
        "bytes": entry.size,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(entry.date)),
    }
    told["duplicates"] = list(result.duplicates)
    return {key: value for key, value in told.items() if value is not None}


def _table(answer: SearchAnswer, cut: float | None) -> str:
    if not answer.searched:
        return "no image passes the filter"
    lines = []
    for place, result in enumerate(answer.results, 1):
        notes = ["(missing)"] * result.missing
        notes += (
            [f"(+{pluralize(len(result.duplicates), 'near-duplicate')})"]
            if result.duplicates
            else []
        )
        label = "/".join(part for part in (result.entry.label, result.entry.domain) if part)
        lines.append(
            "  ".join(
                [
                    f"{place:3d}",
                    f"{result.score:6.3f}",
                    result.entry.path,
                    *([label] * bool(label)),
                    *notes,
                ]
            )
        )
    passed = (
        ""
        if cut is None
        else f", {answer.relevant}{'' if answer.exact else ' or more'} score at least {cut:g}"
    )
    how = "" if answer.exact else f", ranked among the {answer.method} query's nearest"
    lines.append(
        f"{pluralize(len(answer.results), 'image')} of {answer.searched} by {answer.method}{passed}{how}"
    )
    return "\n".join(lines)


def _reasons(why: dict[str, Any]) -> str:
    """A line for each reason; what is not known here is printed as it is."""
    told = dict(why)
    told["terms"] = ", ".join(f"{each['text']} {each['weight']:+g}" for each in why["terms"])
    told["images"] = ", ".join(why.get("images", ()))
    told["unknown"] = ", ".join(why.get("unknown", ()))
    if "words" in why:
        told["words"] = ", ".join(f"{each['word']} {each['weight']:.2f}" for each in why["words"])
    if "proxies" in why:
        shown = [Path(path).name for path in why["proxies"]]
        told["proxies"] = ", ".join(shown[:8]) + (
            f" and {len(shown) - 8} more" if len(shown) > 8 else ""
        )
    for name, value in told.items():
        if isinstance(value, dict):
            told[name] = ", ".join(f"{key} {number:.4g}" for key, number in value.items())
    return "\n".join(f"{name}: {value}" for name, value in told.items() if value not in ("", None))


def _draw(question: Any, answer: SearchAnswer, path: Path) -> None:
    from cenote.data import write_atomically
    from cenote.report.found import FoundImage, found_sheet
    from cenote.search.pictures import EntryImages

    pictures = EntryImages()
    shown = [
        FoundImage(
            pictures(result.entry),
            Path(result.entry.path).name,
            result.score,
            len(result.duplicates),
        )
        for result in answer.results
    ]
    asked = [*question.texts, *(f"not {text}" for text in question.without)]
    page = found_sheet(
        shown, " + ".join(asked), [pictures.file(path) for path in question.images], answer.method
    )
    with write_atomically(path) as temporary:
        page.save(temporary, quality=92, subsampling=0)  # which a PNG does not mind
