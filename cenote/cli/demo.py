"""`cenote demo`: a list of commands, run one after the other, then a report of their results."""

from __future__ import annotations

import json
import shlex
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import tyro

from ..version import __version__
from ._messages import (
    check_output_folder,
    command_line,
    fail,
    parse_names,
    pluralize,
    print_message,
    report_interrupt,
)
from ._options import Device

if TYPE_CHECKING:
    from cenote.report.blocks import Block

Results = dict[str, Any]  # as a command wrote them
MARKER = "demo.json"  # only a folder with this file may be cleared
MAX_LOG_LINES = 4  # of a failed stage
MAX_PHOTOS = 8  # for localize
PORT = 8000  # of --serve; if it is occupied, any free one
ANNOTATIONS = Path("world") / "annotations.jsonl"
CLASS, DOMAIN = "cat", "sketch"  # the composed query: this cat, but as a sketch
# Fast pools of most groups. slot takes twenty times as long.
POOLS = ("gap", "max", "lse", "crow", "se", "cbam", "ep", "simpool")
NOTES = (
    "Each stage is a command that you can type.",
    "Some settings were chosen after a look at the results on this data set: method and size of "
    "discover on validation images; the number of FreeDom's words on test images, where the mean "
    "average precision of composed queries is 65.1: the number to look at, not one query.",
)


@dataclass(frozen=True)
class DemoOptions:
    folder: Path = Path("cenote-demo")
    images: int = 1000
    pools: tuple[str, ...] = POOLS
    seeds: int = 3


@dataclass(frozen=True)
class Stage:
    """A command that writes `folder`; it runs again when a stage that it needs runs again."""

    name: str
    folder: str
    description: str
    command: str  # words in capitals are replaced, see PLACEHOLDERS
    needs: tuple[str, ...] = ()
    resume: bool = False  # whether the command takes --resume
    output: str = ""  # the file in `folder` for what the command prints


class StageRecord(TypedDict):
    """How a stage ran: logs/NAME.json."""

    command: str
    version: str
    seconds: float
    done: bool


# localize comes after evaluate, which stores the threshold chosen on validation images in the
# tournament's folder.
# discover: at 448 pixels the grid is 14 x 14; at the images' own 128 it is 4 x 4, too coarse. On 48
# validation images CorLoc is 58.3 with lost --centre, 54.2 with maskcut, 47.9 with tokencut.
STAGES = (
    Stage("world", "world", "draw synthetic images with complete ground truth",
          "world DIR/world --preset tiny --images IMAGES --size 128 --classes 12 --distractors 0 "
          "--domain photo cartoon sketch sepia"),
    Stage("tournament", "tournament", "compare pools on these images",
          "tournament DIR/world -o DIR/tournament --pools POOLS --seeds SEEDS --epochs 10 "
          "--lr 3e-3 1e-2", ("world",), resume=True),
    Stage("evaluate", "evaluation", "evaluate the model with the recommended pool",
          "evaluate DIR/tournament DIR/world --on classify,localize,background,retrieve "
          "-o DIR/evaluation", ("tournament",)),
    Stage("localize", "boxes", "predict boxes of test images",
          "localize DIR/tournament PHOTOS -o DIR/boxes --masks --pictures", ("evaluate",)),
    Stage("discover", "found", "find objects without any labels",
          "discover DIR/world --split test -o DIR/found --method lost --centre --size 448",
          ("world",)),
    Stage("clip", "clip", "train an image-text model on captions",
          "clip DIR/world -o DIR/clip --backbone lite0 --freeze --epochs 20",
          ("world",), resume=True),
    Stage("index", "index", "make the images searchable",
          "index DIR/world -o DIR/index --model DIR/clip", ("clip",)),
    Stage("search", "search", "search for this cat, but as a sketch",
          "search DIR/index --image QUERY --text sketch --top 10 --sheet DIR/search/sheet.jpg "
          "--json --why", ("index",), output="results.json"),
)  # fmt: skip
# Evaluated when the stages before are done.
PLACEHOLDERS: dict[str, Callable[[DemoOptions], Sequence[str]]] = {
    "IMAGES": lambda demo: [str(demo.images)],
    "POOLS": lambda demo: demo.pools,
    "SEEDS": lambda demo: [str(demo.seeds)],
    "PHOTOS": lambda demo: choose_photos(demo.folder),
    "QUERY": lambda demo: [f"{demo.folder}/world/{find_query(demo.folder)['file']}"],
}


def run(
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="DIR")] = DemoOptions.folder,
    images: int = DemoOptions.images,
    pools: Annotated[tuple[str, ...], tyro.conf.arg(metavar="POOL...")] = DemoOptions.pools,
    seeds: int = DemoOptions.seeds,
    serve: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
    device: Device = "auto",
) -> None:
    """Try everything in a few minutes, without a download: data, tournament, boxes, search, report.

    Every stage is a command that is printed before it runs. An interrupted demo is resumed by the
    same command; with other options only what changes runs again. DIR contains the results of each
    stage, its messages (logs/), results.json and the report, index.html. Exit code 1: a stage
    failed; the last lines of its log are printed.

    Args:
        out: the folder for all results.
        images: how many images are drawn.
        pools: the pools of the tournament (cenote pools lists them).
        seeds: trainings of each pool.
        serve: open the page on the results at the end, as cenote serve DIR does.
    """
    from cenote.device import use_device
    from cenote.pooling import list_pools

    use_device(device)
    pools = tuple(parse_names(",".join(pools), list_pools(), "pool"))
    if images < 96:
        raise ValueError(f"--images {images}: 12 classes need at least 96, two of each to test")
    if seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {seeds}")
    if serve:
        import_module("cenote.web")  # a missing package is reported now, not after all stages
    check_output_folder(out)
    with report_interrupt():
        run_stages(DemoOptions(out, images, pools, seeds))
    if serve:
        from . import command_function

        with socket.socket() as client:
            occupied = client.connect_ex(("127.0.0.1", PORT)) == 0
        port = PORT * (not occupied)  # 0: any free one
        command_function("serve")((out,), port=port)


def run_stages(demo: DemoOptions) -> None:
    """Run every stage that is not done, then write the report and print a summary."""
    from filelock import FileLock, Timeout

    from ..progress import progress_bar

    folder, command = demo.folder, command_line()
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        raise ValueError(f"-o {folder} is not empty and not a demo: name another folder")
    write_json(folder / MARKER, {"demo": 1})
    try:
        with FileLock(folder / ".lock", timeout=0):
            stages = progress_bar("demo", len(STAGES), "stages", iterable=STAGES)
            records = {stage.name: run_stage(stage, demo) for stage in stages}
            write_report(demo, records, command)
    except Timeout:
        raise ValueError(f"another demo is running in {folder}: wait for it to end") from None


def run_stage(stage: Stage, demo: DemoOptions) -> StageRecord:
    """Run a stage unless it is done."""
    title = f"{STAGES.index(stage) + 1}/{len(STAGES)} {stage.name}"
    words, folder = command_of(stage, demo), demo.folder / stage.folder
    command = shlex.join(["cenote", *words])
    output = None
    if stage.output:
        output = folder / stage.output
        command += f" > {shlex.quote(str(output))}"
    record = StageRecord(command=command, version=__version__, seconds=0.0, done=False)
    path, resumable = record_path(stage, demo), False
    if folder.is_dir() and path.is_file():
        saved: StageRecord = read_json(path)
        resumable = (saved["command"], saved["version"]) == (command, __version__)
    if resumable:
        record = saved
    if record["done"]:
        print_message(f"{title}: done already")
        return record
    print_message(f"{title}: {stage.description}\n    {command}")
    if not resumable:
        forget(stage, demo)
        shutil.rmtree(folder, ignore_errors=True)
    elif stage.resume:
        words.append("--resume")
    write_json(path, record)
    started, log = time.monotonic(), path.with_suffix(".txt")
    code = run_command(words, log, output)
    record["seconds"] += time.monotonic() - started
    record["done"] = code == 0
    write_json(path, record)
    if code:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        if code == 130:
            raise KeyboardInterrupt
        ending = "\n".join(lines[-MAX_LOG_LINES:])
        fail(
            "demo",
            f"{ending}\nthe stage {stage.name} failed with exit code {code}; its messages are in "
            f"{log}. The same cenote demo resumes there; to run a stage again, remove its folder.",
        )
    print_message(f"    done in {format_minutes(record['seconds'])}")
    return record


def run_command(words: list[str], log: Path, output: Path | None) -> int:
    """Run `cenote WORDS` with its messages in `log`, and what it prints in `output` if given."""
    from . import main

    with ExitStack() as files:
        messages = files.enter_context(log.open("a", encoding="utf-8", buffering=1))
        printed = messages
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            printed = files.enter_context(output.open("w", encoding="utf-8"))
        files.enter_context(redirect_stderr(messages))
        files.enter_context(redirect_stdout(printed))
        return main(words)


def forget(stage: Stage, demo: DemoOptions) -> None:
    """Delete the records and logs of a stage and of all stages that need its results."""
    for suffix in (".json", ".txt"):
        record_path(stage, demo).with_suffix(suffix).unlink(missing_ok=True)
    for later in STAGES:
        if stage.name in later.needs:
            forget(later, demo)


def command_of(stage: Stage, demo: DemoOptions) -> list[str]:
    """Return the words of the command with the placeholders replaced."""
    words: list[str] = []
    for word in stage.command.split():
        if word in PLACEHOLDERS:
            words += PLACEHOLDERS[word](demo)
        else:
            words.append(word.replace("DIR/", f"{demo.folder}/"))
    return words


def record_path(stage: Stage, demo: DemoOptions) -> Path:
    return demo.folder / "logs" / f"{stage.name}.json"


def write_report(demo: DemoOptions, records: Mapping[str, StageRecord], command: str) -> None:
    """Write results.json and the page, and print a summary."""
    from cenote.report.blocks import Maps, Page, Table, TableColumn, Text
    from cenote.report.html import write_page

    folder, results = demo.folder, collect_results(demo.folder)
    sentences = describe_results(results)
    rows = []
    sections: list[Block] = []
    for stage in STAGES:
        record, sentence = records[stage.name], sentences.get(stage.name, "")
        about = sentence or stage.description
        rows.append((stage.name, about, round(record["seconds"], 1), record["command"]))
        if blocks := stage_blocks(stage.name, folder):
            paragraphs = [sentence, record["command"]]
            title = stage.description.capitalize()
            sections += [Text(title, tuple(filter(None, paragraphs))), *blocks]
    names = ("stage", "result", "seconds", "command")
    columns = tuple(TableColumn(name, numeric=name == "seconds") for name in names)
    notes: tuple[str, ...] = NOTES
    if demo != DemoOptions(folder):
        notes = NOTES[:1]  # the others are true of the defaults
    maps = next((block for block in sections if isinstance(block, Maps)), None)
    sections.sort(key=lambda block: block is not maps)  # the page opens with a picture
    sections.append(Table("Stages", columns, tuple(rows), notes))
    seconds = sum(record["seconds"] for record in records.values())
    lead = (
        f"{results['images']} drawings, no box labels: {results['recommended']} is recommended out "
        f"of {pluralize(len(results['pools']), 'pool')} and classifies {results['accuracy']:.0f}% "
        f"of the test images correctly. {sentences['search']}"
    )
    write_page(folder, Page("Cenote: a demonstration", lead, tuple(sections), command, seconds))
    stages = [
        {"stage": name, "command": record["command"], "seconds": record["seconds"]}
        for name, record in records.items()
    ]
    write_json(folder / "results.json", {"command": command, **results, "stages": stages})
    print((folder / "tournament" / "table.txt").read_text(encoding="utf-8").split("\n\n")[1])
    print("", *(sentences[n] for n in ("tournament", "evaluate", "discover", "search")), sep="\n")
    address = (folder / "index.html").resolve().as_uri()
    print(f"\nIn {format_minutes(seconds)} minutes. The report: {address}")
    print(f"Explore it: cenote serve {shlex.quote(str(folder))}")
    print("Your own images, one folder for each class: cenote tournament FOLDER -o RUN")


def collect_results(folder: Path) -> Results:
    """Read the results of the stages; numbers are percentages."""
    tournament, evaluation, found, clip, search = (
        read_json(folder / name / "results.json")
        for name in ("tournament", "evaluation", "found", "clip", "search")
    )
    boxes = evaluation["localize"]["chosen"] or evaluation["localize"]["oracle"]
    discovery = found["methods"] or {}
    pools = []
    for row in tournament["standings"]:
        mean = sum(row["boxes"]) / len(row["boxes"]) if row["boxes"] else None
        accuracy = {"accuracy": row["mean"], "deviation": row["deviation"]}
        pools.append({"name": row["name"], **accuracy, "boxes": mean})
    images = []
    for result in search:
        path, labels = Path(result["path"]).name, {key: result[key] for key in ("class", "domain")}
        learned = result["split"] == "train"
        images.append({"path": path, **labels, "right": is_correct(result), "learned": learned})
    return {
        "images": len(read_json(folder / ANNOTATIONS)),
        "recommended": tournament["recommended"],
        "recommendation": tournament["recommendation"],
        "pools": pools,
        "accuracy": evaluation["classify"]["accuracy"],
        "boxes": boxes["max_box_acc_v2"]["score"],
        "centred_box": boxes["centred_box"]["score"],
        "background": {k: evaluation["background"][k] for k in ("gap", "gap_interval", "accuracy")},
        "recall_at_1": evaluation["retrieve"]["recall@1"],
        "found_without_labels": discovery.get("lost", {}).get("corloc"),
        "found_in_the_middle": discovery.get("centre", {}).get("corloc"),
        "texts": clip.get("test", clip["val"]),
        "composed": {"query": CLASS, "text": DOMAIN, "results": images},
    }


def describe_results(results: Results) -> dict[str, str]:
    """Return a sentence or two for the stages that have something to say."""

    def number(value: float | None) -> str:
        if value is None:
            return "-"
        return f"{value:.1f}"

    images = results["composed"]["results"]
    correct = [image for image in images if image["right"]]
    trained = bounds = ""
    if correct:
        learned = sum(image["learned"] for image in correct)
        trained = f", {learned} of them training images of the small CLIP"
    if interval := results["background"]["gap_interval"]:
        bounds = f" (95%: {interval[0]:.1f} to {interval[1]:.1f})"
    by_class, by_domain = (results["texts"].get(f"zero_shot_{key}") for key in ("class", "domain"))
    found, middle = results["found_without_labels"], results["found_in_the_middle"]
    return {
        "tournament": results["recommendation"],
        "evaluate": f"Boxes from its maps: MaxBoxAccV2 {number(results['boxes'])}; a fixed box in "
        f"the centre has {number(results['centred_box'])}. Other backgrounds cost "
        f"{number(results['background']['gap'])} points{bounds}. The nearest neighbour has the same class "
        f"for {number(results['recall_at_1'])}% of the images.",
        "discover": f"Without any labels, an object is found in {number(found)}% of the test "
        f"images (CorLoc); a box in the centre finds one in {number(middle)}%.",
        "clip": f"Zero-shot accuracy: {number(by_class)}% for classes, {number(by_domain)}% for "
        "domains.",
        "search": f"{len(correct)} of the first {pluralize(len(images), 'result')} for a "
        f"photograph of a {CLASS} and the word “{DOMAIN}” are correct{trained}.",
    }


def stage_blocks(name: str, folder: Path) -> list[Block]:
    """Return the blocks of the page of a stage, or its pictures."""
    from PIL import Image

    from cenote.report.blocks import Panels, Picture, SearchPanel, SearchTile, picture_of
    from cenote.report.html import read_page

    pages = {"tournament": "tournament", "evaluate": "evaluation", "discover": "found"}
    if name in pages:
        return list(read_page(folder / pages[name]).blocks)
    if name == "localize":
        alt = "Photographs with predicted boxes, and their maps"
        sheets = sorted((folder / "boxes" / "pictures").glob("contact_sheet_*.jpg"))
        pictures = [picture_of(Image.open(path), 1600) for path in sheets]
        return [Picture("Boxes and maps", picture, alt) for picture in pictures]
    if name != "search":
        return []

    def tile(path: Path, caption: str, correct: bool | None = None) -> SearchTile:
        return SearchTile(picture_of(Image.open(path), 200), caption, correct)

    query, results = find_query(folder), read_json(folder / "search" / "results.json")
    tiles = [tile(Path(r["path"]), f"{r['class']}, {r['domain']}", is_correct(r)) for r in results]
    photo = tile(folder / "world" / query["file"], f"{CLASS}, photo")
    notes = [
        f"The photograph: the largest {CLASS}, single if possible, of the {query['split']} images."
    ]
    words = [word["word"] for result in results[:1] for word in result["why"]["words"]]
    if words:
        notes.append(f"FreeDom's words for the photograph: {', '.join(words)}.")
    panel = SearchPanel(photo, DOMAIN, tuple(tiles))
    return [Panels("An image and a word", (panel,), tuple(notes))]


def is_correct(result: Results) -> bool:
    return (result["class"], result["domain"]) == (CLASS, DOMAIN)


def find_query(folder: Path) -> Results:
    """Return the annotation of the largest single cat in a photograph, a test image if possible."""
    annotations = read_json(folder / ANNOTATIONS)
    cats = [a for a in annotations if (a["label"], a["domain"]) == (CLASS, "photo")]
    if not cats:
        raise ValueError(f"no photograph of a {CLASS} was drawn: --images needs a larger number")

    def clarity(annotation: Results) -> tuple[bool, bool, float]:
        areas = [(x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in annotation["boxes"]]
        return annotation["split"] == "test", len(areas) == 1, max(areas, default=0.0)

    return max(cats, key=clarity)


def choose_photos(folder: Path) -> list[str]:
    """Return test images of different classes, photographs first."""
    annotations = [a for a in read_json(folder / ANNOTATIONS) if a["split"] == "test"]
    files: dict[str, str] = {}
    for annotation in sorted(annotations, key=lambda a: a["domain"] != "photo"):
        files.setdefault(annotation["label"], f"{folder}/world/{annotation['file']}")
    return list(files.values())[:MAX_PHOTOS]


def read_json(path: Path) -> Any:
    """Read what a stage wrote; a .jsonl file is a list."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in text.splitlines()]
    return json.loads(text)


def write_json(path: Path, content: Any) -> None:
    from cenote.data.files import write_text

    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def format_minutes(seconds: float) -> str:
    """Return 65 as '1:05'."""
    return f"{round(seconds) // 60}:{round(seconds) % 60:02d}"
