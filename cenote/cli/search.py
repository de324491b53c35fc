"""`cenote search`: parse, ask, print."""

from __future__ import annotations

import errno
import inspect
import json as to_json
import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from ..search.inputs import check_index_folder, is_milvus, parse_date, parse_size
from ._messages import check_output_folder, pluralize, print_message
from ._options import Device
from ._resident import open_searcher, run_in_resident_process

if TYPE_CHECKING:
    from cenote.search.maxsim import CellMatch
    from cenote.search.query import SearchAnswer, SearchRequest
    from cenote.search.results import RankedImage

T = TypeVar("T")
CSV_COLUMNS = (
    "rank",
    "path",
    "score",
    "visual",
    "doubtful",
    "class",
    "domain",
    "split",
    "caption",
    "width",
    "height",
    "bytes",
    "date",
    "missing",
    "duplicates",
)
MAX_CELLS = 3  # pairs of cells of a result that --why prints
MAX_PROXIES = 8  # file names of neighbours that --why prints
Repeated = Annotated[tuple[str, ...], UseAppendAction]
Flag = Annotated[bool, FlagCreatePairsOff]


def run(
    index: Annotated[str, Positional, arg(metavar="INDEX")],
    image: Annotated[Repeated, arg(metavar="FILE", help_behavior_hint="")] = (),
    text: Annotated[Repeated, arg(metavar="TEXT", help_behavior_hint="")] = (),
    without: Annotated[Repeated, arg(name="not", metavar="TEXT", help_behavior_hint="")] = (),
    weight: Annotated[float | None, arg(metavar="X", help_behavior_hint="")] = None,
    like: Annotated[Repeated, arg(metavar="FILE", help_behavior_hint="")] = (),
    unlike: Annotated[Repeated, arg(metavar="FILE", help_behavior_hint="")] = (),
    method: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: auto)")] = None,
    top: Annotated[int | None, arg(metavar="INT", help_behavior_hint="(default: 10)")] = None,
    cut: Annotated[float | None, arg(metavar="SCORE", help_behavior_hint="")] = None,
    sort: Annotated[
        Literal["score", "date", "name", "size"] | None,
        arg(metavar="{score,date,name,size}", help_behavior_hint="(default: score)"),
    ] = None,
    class_: Annotated[Repeated, arg(name="class", metavar="NAME", help_behavior_hint="")] = (),
    domain: Annotated[Repeated, arg(metavar="NAME", help_behavior_hint="")] = (),
    folder: Annotated[Repeated, arg(metavar="FOLDER", help_behavior_hint="")] = (),
    since: Annotated[str | None, arg(metavar="DATE", help_behavior_hint="")] = None,
    until: Annotated[str | None, arg(metavar="DATE", help_behavior_hint="")] = None,
    min_size: Annotated[str | None, arg(metavar="SIZE", help_behavior_hint="")] = None,
    max_size: Annotated[str | None, arg(metavar="SIZE", help_behavior_hint="")] = None,
    near_duplicates: Annotated[
        Literal["hide", "show"] | None,
        arg(metavar="{hide,show}", help_behavior_hint="(default: hide)"),
    ] = None,
    rerank: Annotated[
        Literal["none", "maxsim"] | None,
        arg(metavar="{none,maxsim}", help_behavior_hint="(default: none)"),
    ] = None,
    candidates: Annotated[
        int | None, arg(metavar="INT", help_behavior_hint="(default: 100)")
    ] = None,
    words: Annotated[
        str | None, arg(metavar="FILE", help_behavior_hint="(default: the index's)")
    ] = None,
    exact: Flag = False,
    visual_only: Flag = False,
    save: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    saved: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None,
    out: Annotated[
        Path | None, arg(aliases=["-o"], metavar="FOLDER|FILE.csv", help_behavior_hint="")
    ] = None,
    sheet: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")] = None,
    json: Flag = False,
    why: Flag = False,
    device: Device = "auto",
) -> None:
    """Find images by image ("more like this"), by text, or by both ("this, but as a sketch").

    The score of a text is the estimated share of right images at that score, by what they look like
    and by the classes, folder and file names, captions and keywords in which it occurs; doubtful
    images are listed apart. Other scores are cosines to the query, or to the sum that represents it;
    WeiCom's are from 0 to 1, those of product, basic and normalised-sum have scales of their own.
    Near-duplicates are hidden behind the best of them; a file that does not exist any longer is
    marked. Exit code 2: wrong input, or an index that cannot be used.

    Args:
        index: a folder of cenote index, or Milvus as there.
        image: an image file, in the index or not; several are averaged.
        text: what is wanted; "dog^2" counts twice; several are added.
        without: what is not wanted.
        like: an image that the results should resemble, in the index or not; may be repeated.
        unlike: an image that they should not resemble.
        weight: of the text, from 0 to 1, with an image and a text (WeiCom).
        method: auto (text, image, or freedom for both), weicom, freedom, basic, sum ...;
            freedom:k=5 sets an option.
        top: number of results.
        cut: leave out images with a lower score.
        sort: order of the results.
        class_: only images of this class; several: of one of them.
        domain: only images of this domain.
        folder: only images below this folder.
        since: only images from this date on: 2024, 2024-05 or 2024-05-17.
        until: only images up to the end of this date.
        min_size: only files of at least this size: 200KB, 1.5MB.
        max_size: only files of at most this size.
        near_duplicates: hide or show images that look the same.
        rerank: rank the first results again by the local vectors of an index that was made with
            --local; scores are then means of cosines of cells, and --sheet, --why and --json show
            which cells match.
        candidates: number of results that are ranked again.
        words: another word list for FreeDom or SEARLE.
        exact: compare with every image, even if an approximate index would be faster.
        visual_only: ignore names, captions and keywords.
        save: save this search under a name, in the folder of the index.
        saved: run a saved search; the other options change it.
        out: copy the images into a new folder, numbered by rank, or write a table, .csv.
        sheet: draw the results on a contact sheet, .jpg or .png.
        json: print a list of {"path", "score", ...}.
        why: print the words, weights and statistics behind the scores.
    """
    if not (image or text or without or like or saved):
        raise ValueError("an empty query finds nothing: give --image, --text or both")
    if sheet is not None and sheet.suffix.lower() not in (".jpg", ".jpeg", ".png"):
        raise ValueError(f"--sheet {sheet}: the contact sheet must be a .jpg or .png")
    if weight is not None and saved is None and not (image and (text or without)):
        raise ValueError("--weight needs an image and a text: give both")
    if out is not None:
        _check_out(out)
    bounds = _bounds(since, until, min_size, max_size)
    _check_files(index, image + like + unlike)
    # Milvus Lite allows one process at a time.
    if not is_milvus(index) and (code := run_in_resident_process()) is not None:
        raise SystemExit(code)

    from cenote.device import use_device
    from cenote.search.load import check_filter
    from cenote.search.query import choose_method
    from cenote.search.saved import SavedSearches, make_request
    from cenote.search.store import Filter

    use_device(device)
    options: dict[str, Any] = {
        "images": image,
        "texts": text,
        "without": without,
        "top": top,
        "cut": cut,
        "sort": sort,
        "near_duplicates": near_duplicates,
        "like": like,
        "unlike": unlike,
        "visual_only": visual_only or None,
        "rerank": rerank,
        "candidates": candidates,
    }
    if method is not None or weight is not None:
        spec = choose_method(method or "auto", weight)
        options |= {"method": spec.method, "options": spec.options}
    searcher, base = open_searcher(index, words, exact), None
    if saved is not None:
        base = SavedSearches(searcher.store).load(saved)
    filter = Filter(class_, domain, _prefixes(folder), *bounds)
    request = make_request(options, filter, base)
    check_filter(request.filter, searcher.store)
    answer = searcher.ask(request)
    _print_warnings(answer, index)
    if save is not None:
        SavedSearches(searcher.store).save(save, request)
    if sheet is not None:
        _draw(request, answer, sheet)
    if out is not None:
        _write(answer, out)
    if json:
        rows = [result_fields(result) for result in answer.results]
        if why:
            rows = [row | {"why": answer.why} for row in rows]
        print(to_json.dumps(rows, indent=2, ensure_ascii=False))
        return
    print(_table(answer, request.cut))
    if why:
        print("\n".join([_reasons(answer.why), *_cell_lines(answer)]))
    if sheet is not None:
        print(f"contact sheet: {sheet}")
    if out is not None:
        print(f"results: {out}")
    if save is not None:
        print(f"saved: --saved {shlex.quote(save)} runs it again")


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise ValueError for words or files without an option, which tyro's message does not explain."""
    parameters = inspect.signature(run).parameters.values()
    flags = {parameter.name for parameter in parameters if parameter.annotation == "Flag"}
    rest, unnamed = iter(arguments), list[str]()
    for argument in rest:
        if not argument.startswith("-"):
            unnamed.append(argument)
        elif "=" not in argument and argument[2:].replace("-", "_") not in flags:
            next(rest, None)  # the option's value
    if len(unnamed) > 1 and not {"-h", "--help"} & set(arguments):
        raise ValueError(
            f"'{' '.join(unnamed[1:])}': give words with --text, several of them in quotes "
            "(--text 'black dog'), and a file with --image"
        )


def _bounds(
    since: str | None, until: str | None, min_size: str | None, max_size: str | None
) -> tuple[float | None, float | None, int | None, int | None]:
    dates = _parsed(parse_date, since), _parsed(partial(parse_date, end=True), until)
    return *dates, _parsed(parse_size, min_size), _parsed(parse_size, max_size)


def _parsed(parse: Callable[[str], T], text: str | None) -> T | None:
    if text is None:
        return None
    return parse(text)


def _check_files(index: str, images: tuple[str, ...]) -> None:
    """Raise ValueError for an index or an image that does not exist, before torch is imported."""
    if not is_milvus(index):
        check_index_folder(index)
    for image in images:
        if not Path(image).exists():
            raise ValueError(f"{image}: {os.strerror(errno.ENOENT)}")


def _prefixes(folders: tuple[str, ...]) -> tuple[str, ...]:
    # "world/tiny:cats" is the beginning of names in a data set; anything else is a path.
    return tuple(
        name if ":" in name else str(Path(name).expanduser().absolute()) for name in folders
    )


def _print_warnings(answer: SearchAnswer, index: str) -> None:
    if missing := sum(result.missing for result in answer.results):
        print_message(
            f"{missing} of these files do not exist any longer: `cenote index IMAGES -o {index}` "
            "with their present folder recognizes them by their contents"
        )
    for note in answer.notes:
        print_message(note)


def result_fields(result: RankedImage) -> dict[str, object]:
    """Return a result as JSON."""
    entry = result.entry
    fields = {
        "path": entry.path,
        "score": round(result.score, 6),
        "visual": round(result.visual, 6),
        "matches": [match._asdict() for match in result.matches],
        "doubtful": result.doubtful,
        "missing": result.missing,
        "class": entry.label,
        "domain": entry.domain,
        "split": entry.split,
        "caption": entry.caption,
        "attributes": dict(entry.attributes) or None,
        "width": entry.width,
        "height": entry.height,
        "bytes": entry.size,
        "date": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(entry.date)),
        "duplicates": list(result.duplicates),
        "cells": [_cell_fields(match) for match in result.cells] or None,
    }
    return {key: value for key, value in fields.items() if value is not None}


def _cell_fields(match: CellMatch) -> dict[str, object]:
    return {
        "similarity": round(match.similarity, 6),
        "image": match.image,
        "query": match.query_box,
        "result": match.box,
    }


def _table(answer: SearchAnswer, cut: float | None) -> str:
    if not answer.searched:
        return "no image passes the filter"
    lines = list[str]()
    is_fused = "matches" in answer.why
    for place, result in enumerate(answer.results, 1):
        if result.doubtful and not (lines and answer.results[place - 2].doubtful):
            lines.append("doubtful:")
        cells = [f"{place:3d}", f"{result.score:6.3f}", result.entry.path]
        if label := "/".join(filter(None, (result.entry.label, result.entry.domain))):
            cells.append(label)
        if result.missing:
            cells.append("(missing)")
        if result.duplicates:
            cells.append(f"(+{pluralize(len(result.duplicates), 'near-duplicate')})")
        if is_fused:
            cells.append(f"[{_evidence(result)}]")
        lines.append("  ".join(cells))
    count = pluralize(len(answer.results), "image")
    summary = f"{count} of {answer.searched} by {answer.method}"
    if cut is not None:
        at_least = "" if answer.exact else " or more"
        summary += f", {answer.relevant}{at_least} score at least {cut:g}"
    if not answer.exact:
        summary += f", ranked among the {answer.method} query's nearest"
    if "maxsim" in answer.why:
        summary += " by maxsim"
    return "\n".join([*lines, summary])


def _evidence(result: RankedImage) -> str:
    texts = [f"{match.field}: {match.text}" for match in result.matches]
    return "; ".join([*texts, f"similarity {result.visual:.2f}"])


def _reasons(why: Mapping[str, Any]) -> str:
    """Return a line for each reason."""
    lines = dict(why)
    lines["terms"] = ", ".join(f"{term['text']} {term['weight']:+g}" for term in why["terms"])
    for name in ("images", "nearest"):
        lines[name] = ", ".join(why.get(name, ()))
    if "words" in why:
        lines["words"] = ", ".join(f"{w['word']} {w['weight']:.2f}" for w in why["words"])
    if "proxies" in why:
        names = [Path(path).name for path in why["proxies"]]
        lines["proxies"] = ", ".join(names[:MAX_PROXIES])
        if len(names) > MAX_PROXIES:
            lines["proxies"] += f" and {len(names) - MAX_PROXIES} more"
    for name, value in lines.items():
        if isinstance(value, dict):
            lines[name] = ", ".join(f"{key} {number:.4g}" for key, number in value.items())
    return "\n".join(f"{name}: {value}" for name, value in lines.items() if value not in ("", None))


def _cell_lines(answer: SearchAnswer) -> list[str]:
    """Return a line for each re-ranked result: boxes of the query and of the result, in pixels."""
    lines = []
    for place, result in enumerate(answer.results, 1):
        pairs = [
            f"{match.similarity:.3f} {_box_text(match.query_box)} in {_box_text(match.box)}"
            for match in result.cells[:MAX_CELLS]
        ]
        if pairs:
            lines.append(f"cells of {place}: {', '.join(pairs)}")
    return lines


def _box_text(box: Sequence[int]) -> str:
    return "-".join(f"{x},{y}" for x, y in (box[:2], box[2:]))


def _check_out(out: Path) -> None:
    """Raise ValueError before the search if the results cannot be written there."""
    if out.suffix.lower() == ".csv":
        check_output_folder(out.parent)
    elif out.is_dir() and any(out.iterdir()):
        raise ValueError(f"-o {out} is not empty: name a new folder, or a FILE.csv")
    else:
        check_output_folder(out)


def _write(answer: SearchAnswer, out: Path) -> None:
    """Write the results as a table, or copy the images into a folder."""
    from cenote.data.files import write_text
    from cenote.search.export import copy_results, csv_text

    if out.suffix.lower() != ".csv":
        if missing := copy_results(answer.results, out):
            print_message(f"{pluralize(missing, 'image')} could not be copied")
        return
    rows = [
        {**result_fields(result), "rank": rank, "duplicates": len(result.duplicates)}
        for rank, result in enumerate(answer.results, 1)
    ]
    write_text(out, csv_text(rows, CSV_COLUMNS))


def _draw(request: SearchRequest, answer: SearchAnswer, path: Path) -> None:
    from cenote.data import write_atomically
    from cenote.search.export import DRAWN_SIDE, draw_results
    from cenote.search.index import EntryImages

    texts = [*request.texts, *(f"not {text}" for text in request.without)]
    images = EntryImages()
    query_images = [images.file(name, DRAWN_SIDE) for name in answer.why["images"]]
    page = draw_results(answer, " + ".join(texts), query_images)
    with write_atomically(path) as temporary:
        page.save(temporary, quality=92, subsampling=0)  # ignored for a PNG
