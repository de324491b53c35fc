"""Record what the commands print and write on small data, and compare two recordings.

    python tests/behaviour.py record before                    # 3 minutes on an idle machine
    python tests/behaviour.py record after --tree ../changed   # the package in ../changed
    python tests/behaviour.py compare before after             # exit code 1 on a difference

OUT/NAME.json holds one command: its exit code, its output, and every file that it wrote. Times,
speeds, dates, versions, sizes in memory and absolute paths are removed.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import importlib.util
import json
import math
import os
import re
import runpy
import shlex
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("CENOTE_SHARED_DATA", ROOT.parent / "shared" / "data"))
# Data sets of SHARED: how many classes are taken, and every how manieth of their images.
PHOTOS = {"pets": (3, 2), "cub": (6, 2), "pacs": (2, 8)}
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "ONEDNN_MAX_CPU_ISA": "AVX512_CORE"}
ENVIRONMENT |= {"HF_HUB_OFFLINE": "1", "COLUMNS": "100"}

# Keys of JSON and columns of tables whose values differ from run to run; then the same in text.
UNSTABLE = ["seconds", "ms", "backbone_ms", "images_per_second", "versions", "cenote"]
UNSTABLE += ["used", "date", "sha256"]
NOISE = [
    (r"data:image/[^\"']*", "<picture>"),
    (r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?", "<date>"),
    (r" *\b[\d.,]+ ?(images/s|ms|seconds|minutes|min|s|GB|MB|KB|MiB)\b", r" <number> \1"),
    (r"\b\d+\.\d+\.\d+(\+\w+)?\b", "<version>"),
]
NUMBER = r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?!\w|\.\d)"
OPTION = r"(?<!\S)--[a-z][a-z-]+"

# NAME: ARGUMENTS, in this order. A command writes to a folder of its own name and reads those of
# earlier commands. Commands that read photographs are left out where there are none.
COMMANDS = """
version: --version
help: -h
pools: pools --dim 64 --grid 4x4
pools-json: pools --dim 64 --grid 4x4 --style json
pools-one: pools simpool --style markdown
pools-one-json: pools gsp --style json
landscape: landscape
landscape-json: landscape --style json
losses: losses
losses-json: losses --style json
models: models --style json
models-check: models test_vit --jobs 1
recipes: recipes --style json
recipes-one: recipes simpool/vit-small-supervised
recipes-metric: recipes metric/multi-similarity-metrix --style json

shapes: world shapes --preset tiny --images 48 --classes 4 --jobs 1
domains: world domains --preset domains --images 40 --size 64 --classes 2 --scenes 2 \
  --domain photo sketch --variants --jobs 1
many: world many --preset tiny --images 48 --classes 16 --jobs 1
data-shapes: data shapes -o data-shapes --workers 0
data-pets: data pets --json --workers 0
data-broken: data broken --json --workers 0
data-list: data --list

fit-frozen: fit shapes --freeze --size 64 --epochs 2 --lr 0.003 0.01 -o fit-frozen
fit-resumed: fit shapes --freeze --size 64 --epochs 2 --lr 0.003 0.01 --resume -o fit-frozen
fit-pets: fit pets --freeze --pool gap --size 64 --epochs 1 --lr 0.01 -o fit-pets
fit-cls: fit shapes --backbone vit_micro --pool cls --scratch --size 64 --epochs 2 --batch 16 \
  --settings mixup=0.2 smoothing=0.1 -o fit-cls
fit-recipe: fit shapes --backbone vit_micro --size 64 --epochs 1 --batch 16 \
  --recipe simpool/vit-tiny-supervised -o fit-recipe
fit-finer: fit shapes --backbone resnet_micro --pool gap --scratch --stride 2 --select boxes \
  --cutout 0.5 --size 64 --epochs 1 -o fit-finer
fit-sar: fit shapes --backbone vit_micro --scratch --sar 0.01 --last-block sar --size 64 \
  --epochs 1 -o fit-sar
fit-pyramid: fit shapes --backbone resnet_micro --pool max --scratch --fpn P3 --size 64 \
  --epochs 1 -o fit-pyramid
tournament-gamma: tournament shapes --gamma 1 2 --seeds 1 --epochs 1 --lr 0.01 \
  -o tournament-gamma
tournament: tournament shapes --pools gap gem simpool --seeds 2 --epochs 2 \
  --lr 0.003 0.01 -o tournament
sweep: sweep shapes --freeze --trials 2 --epochs 1 --size 64 -o sweep
metric: metric cub --backbone resnet_micro --scratch --size 64 --epochs 2 --batch 12 \
  --images-per-class 4 --dim 16 --metrix input,feature,embed --zero-shot 0.1 -o metric
metric-fair: metric many --freeze --protocol fair --size 64 --epochs 1 --batch 8 \
  --images-per-class 2 --dim 16 --loss proxy-anchor --metrix embed -o metric-fair
metric-rival: metric many --backbone resnet_micro --scratch --size 64 --epochs 2 --batch 8 \
  --images-per-class 2 --dim 16 --loss contrastive --rival mochi -o metric-rival
metric-memory: metric many --freeze --size 64 --epochs 2 --batch 8 --images-per-class 2 --dim 16 \
  --loss contrastive --xbm 16 -o metric-memory
metric-pml: metric many --freeze --size 64 --epochs 1 --batch 8 --images-per-class 2 --dim 16 \
  --loss pml/TripletMarginLoss --pool gap -o metric-pml
dino-sar: dino shapes --epochs 1 --batch 16 --size 64 --local 1 --options out=64 --sar 0.01 \
  -o dino-sar
clip-frozen: clip domains --freeze --backbone lite0 --texts templates --epochs 1 --size 64 \
  -o clip-frozen
dino: dino shapes --epochs 1 --batch 16 --size 64 --local 2 --options out=64 -o dino
moco: moco shapes --epochs 1 --batch 16 --size 64 -o moco
clip: clip domains --epochs 2 --batch 10 --size 64 -o clip

evaluate: evaluate fit-frozen shapes \
  --on classify,knn,linear,localize,discover,segment,background,retrieve -o evaluate
evaluate-json: evaluate fit-cls shapes --on classify,knn --split val --json
evaluate-corruption: evaluate fit-cls shapes --on corruption -o evaluate-corruption
evaluate-pets: evaluate fit-pets pets --on localize,segment,background -o evaluate-pets
evaluate-cub: evaluate metric cub --on retrieve -o evaluate-cub
attend: attend pets/images --size 96 -o attend
attend-pool: attend shapes/images/cat --model fit-frozen --map pool --size 64 -o attend-pool
attend-cls: attend shapes/images/cat --model fit-cls --map cls --size 64 -o attend-cls
attend-rollout: attend shapes/images/cat --model fit-cls --map rollout --size 64 -o attend-rollout
attend-cam: attend shapes/images/cat --model fit-finer --map cam --size 64 --share 0.5 -o attend-cam
attend-gradcam: attend shapes/images/cat --model fit-finer --map gradcam --size 64 -o attend-gradcam
localize: localize fit-frozen shapes/images --calibrate shapes --format coco voc csv --masks \
  --pictures -o localize
localize-pets: localize fit-pets pets/images --map cam --threshold 0.4 --several -o localize-pets
discover: discover shapes --split test --method all -o discover
discover-keys: discover shapes --split test --model fit-cls --method lost,dinoseg --keys block \
  --json -o discover-keys
discover-pets: discover pets/images --method tokencut --size 128 --centre -o discover-pets

index: index pacs -o index
index-again: index pacs -o index
index-clip: index domains -o index-clip --model clip --precision float16
search-text: search index --text dog --text "sketch^0.5" --not grass --top 5 --why
search-image: search index --image pacs/query.jpg --top 5 --json
search-both: search index --image pacs/query.jpg --text sketch --top 5 --why --json
search-weicom: search index --image pacs/query.jpg --text cartoon --weight 0.7 --top 5 --why --json
search-basic: search index --image pacs/query.jpg --text cartoon --method basic --top 5 --json
search-filters: search index --text dog --domain photo --class dog --class elephant \
  --max-size 1MB --since 2000 --cut 0.1 --sort name --near-duplicates show --json
search-clip: search index-clip --text "a cat" --top 5 --exact --why --json
evaluate-search: evaluate-search domains --model clip --at 1 5 -o evaluate-search
evaluate-search-attributes: evaluate-search domains --model clip --protocol attributes \
  --attributes colour --methods text,image,weicom:weight=0.3,freedom:k=2 --json
evaluate-search-pacs: evaluate-search pacs --most 4 --methods text,image,sum,freedom --json
export-onnx: export fit-cls -o export.onnx
export-torch: export fit-cls --format torch --output embedding -o export.pt2
cache: cache --json
bench-pools: bench pools --pools gap simpool --sizes 2x8x4x4 --rounds 1 --json
bench-models: bench models --networks resnet50 --pools gap --batch 1 --rounds 1

error-command: atend shapes
error-option: fit shapes --poool gap -o error
error-folder: fit missing -o error
error-pool: fit shapes --pool simpol -o error
error-value: fit shapes --lr -1 -o error
error-recipe: fit shapes --recipe simpool/vit-smal -o error
error-taken: fit shapes --freeze -o fit-frozen
error-cam: attend shapes/images/cat --model fit-cls --map cam -o error
error-image: attend broken --size 64 -o error-image
error-model: evaluate missing shapes
error-protocol: evaluate fit-frozen shapes --on clasify
error-index: search missing --text dog
error-method: search index-clip --text dog --method wiecom
"""


HELP = """attend bench cache clip data demo dino discover evaluate evaluate-search export fit index
landscape localize losses metric models moco pools recipes search serve sweep tournament world"""


def record(out: Path, tree: Path, only: list[str] | None) -> None:
    """Run the commands with the package of `tree` and write a file for each to `out`."""
    lines = COMMANDS.replace("\\\n", "").splitlines()
    pairs = (line.partition(": ") for line in lines if line)
    commands = {name: shlex.split(words) for name, _, words in pairs}
    commands |= {f"help-{name}": [name, "-h"] for name in HELP.split()}
    if unknown := set(only or ()) - commands.keys():
        sys.exit(f"no command {', '.join(unknown)}: {' '.join(commands)}")
    needed = set(only or commands)
    for name in reversed(commands):  # what a command reads was written by earlier ones
        if name in needed:
            needed |= {word.split("/")[0] for word in commands[name][1:]} & commands.keys()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cenote-") as folder:
        work, cache = Path(folder, "work").resolve(), Path(folder, "cache").resolve()
        os.environ |= {**ENVIRONMENT, "PYTHONPATH": str(tree), "CENOTE_CACHE": str(cache)}
        sys.path[0] = str(tree)
        package = importlib.util.find_spec("cenote")
        if not package or package.origin != str(tree / "cenote" / "__init__.py"):
            sys.exit(f"no package cenote in {tree}")
        places = {str(work): "<work>", str(cache): "<cache>", str(tree): "<tree>"}
        missing = PHOTOS.keys() - prepare(work)
        for name in commands:
            if name not in needed or missing & {word.split("/")[0] for word in commands[name]}:
                continue
            before = timestamps(work)
            code, stdout, stderr, seconds = run(commands[name], work)
            report: dict[str, Any] = {"command": shlex.join(commands[name]), "exit": code}
            if not name.startswith("bench"):
                changed = [p for p, t in timestamps(work).items() if before.get(p) != t]
                report |= {"stdout": content(stdout, places), "stderr": content(stderr, places)}
                report["files"] = {str(p.relative_to(work)): summary(p, places) for p in changed}
            (out / f"{name}.json").write_text(json.dumps(report, indent=1, ensure_ascii=False))
            print(f"{name}: exit code {code}, {seconds:.1f} s of CPU time", flush=True)


def run(words: list[str], work: Path) -> tuple[int, str, str, float]:
    """Return exit code, stdout, stderr and CPU time of `python -m cenote WORDS`.

    It runs in a fork of this process, which has loaded torch once for all: half of the time.
    """
    import timm  # noqa: F401
    import torchvision.transforms.v2  # noqa: F401

    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if not child:
            os.chdir(work)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            sys.argv, code = ["cenote", *words], 1
            try:
                runpy.run_module("cenote", run_name="__main__", alter_sys=True)
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else int(bool(stop.code))
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status, usage = os.wait4(child, 0)
        out.seek(0)
        err.seek(0)
        seconds = usage.ru_utime + usage.ru_stime
        return os.waitstatus_to_exitcode(status), out.read(), err.read(), seconds


def prepare(work: Path) -> set[str]:
    """Link photographs into `work`, write a folder with broken images; return which are there."""
    (work / "broken" / "cat").mkdir(parents=True)
    good = work / "broken" / "cat" / "good.png"
    noise = np.random.default_rng(0).integers(0, 256, (48, 64, 3), np.uint8)
    Image.fromarray(noise).save(good)
    good.with_name("cut.png").write_bytes(good.read_bytes()[:4000])
    good.with_name("text.jpg").write_text("not an image")
    present = {name for name in PHOTOS if (SHARED / name).is_dir()}
    for name in present:
        with open(SHARED / name / "annotations.csv", newline="") as file:
            rows = list(csv.DictReader(file))
        classes = list(dict.fromkeys(row["class_name"] for row in rows))[: PHOTOS[name][0]]
        rows = [row for row in rows if row["class_name"] in classes][:: PHOTOS[name][1]]
        files = [row[key] for row in rows for key in ("file", "mask") if key in row]
        for path, target in [("query.jpg", rows[0]["file"]), *zip(files, files, strict=True)]:
            (work / name / path).parent.mkdir(parents=True, exist_ok=True)
            (work / name / path).symlink_to(SHARED / name / target)
        with open(work / name / "annotations.csv", "w", newline="") as file:
            writer = csv.DictWriter(file, rows[0])
            writer.writeheader()
            writer.writerows(rows)
    return present


def timestamps(work: Path) -> dict[Path, tuple[int, int]]:
    """Return when files were written and their sizes, without links and SQLite's own files."""
    files = sorted(path for path in work.rglob("*") if path.is_file() and not path.is_symlink())
    files = [path for path in files if not path.name.endswith(("-shm", "-wal"))]
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def summary(path: Path, places: dict[str, str]) -> Any:
    """Return what is in a file, or None for pictures and other files that are only listed."""
    if path.suffix == ".safetensors":
        return {name: statistics(array) for name, array in sorted(load_file(path).items())}
    if path.suffix == ".npz":
        return {name: statistics(array) for name, array in sorted(np.load(path).items())}
    if path.suffix == ".npy":
        return statistics(np.load(path))
    if path.suffix == ".png" and {"images", "masks", "backgrounds"} & set(path.parts):
        return statistics(np.asarray(Image.open(path)))  # unlike figures, these have no text
    if path.suffix == ".csv":
        return stable(list(csv.DictReader(path.read_text().splitlines())), places)
    if path.suffix == ".jsonl":
        return stable([json.loads(line) for line in path.read_text().splitlines()], places)
    if path.suffix in (".json", ".txt", ".md", ".xml") and path.name != "speed.json":
        return content(path.read_text(), places)
    return None


def statistics(array: np.ndarray[Any, Any]) -> Any:
    """Return type, shape, root mean square, mean, extremes, a sum that depends on the order, and
    eight of the values, to five digits."""
    if array.dtype.kind not in "fiub" or not array.size:
        return {"dtype": str(array.dtype), "shape": array.shape, "values": array.tolist()}
    x = array.astype(np.float64).ravel()
    ordered = (x * np.linspace(-1, 1, x.size)).mean()
    samples = x[:: max(1, x.size // 8)][:8]
    values = [np.sqrt((x**2).mean()), x.mean(), x.min(), x.max(), ordered, *samples]
    values = [float(f"{value:.5g}") for value in values]
    return {"dtype": str(array.dtype), "shape": array.shape, "values": values}


def content(text: str, places: dict[str, str]) -> Any:
    """Return JSON as objects and other text as it is, without what differs from run to run."""
    try:
        return stable(json.loads(text), places)
    except ValueError:
        return stable(without_times(text), places)


def without_times(text: str) -> str:
    """Replace the numbers in unstable columns of tables, in text or Markdown, by a hyphen."""
    lines, head = text.split("\n"), ""
    for i, line in enumerate(lines):
        if re.search(rf"(  |\| )({'|'.join(UNSTABLE)})(  | \||$)", line):
            head = line
        elif not line.strip():
            head = ""
        elif "|" in head:
            cells = zip(head.split("|"), line.split("|"), strict=False)
            lines[i] = "|".join("-" if name.strip() in UNSTABLE else cell for name, cell in cells)
        elif head:
            columns = [m.span() for m in re.finditer(r"\S+", head) if m[0] in UNSTABLE]
            for m in reversed(list(re.finditer(r" *(?<!\S)[\d.]+(?!\S)", line))):
                if any(m.start() < end and m.end() > start for start, end in columns):
                    line = line[: m.start()] + " -" + line[m.end() :]
            lines[i] = line
    return "\n".join(lines)


def stable(value: Any, places: dict[str, str]) -> Any:
    """Return a value of JSON without what differs from run to run."""
    if isinstance(value, dict):
        if {"heads", "rows"} <= value.keys():  # a table of a report
            columns = [i for i, h in enumerate(value["heads"]) if h["name"] not in UNSTABLE]
            value = value | {"rows": [[row[i] for i in columns] for row in value["rows"]]}
        return {k: stable(item, places) for k, item in value.items() if k not in UNSTABLE}
    if isinstance(value, list):
        return [stable(item, places) for item in value]
    if isinstance(value, str):
        for path, name in places.items():
            value = value.replace(path, name)
        for pattern, name in NOISE:
            value = re.sub(pattern, name, value)
    return value


def compare(old: Path, new: Path, numbers: bool) -> bool:
    """Print the differences between two recordings and return whether there are none."""
    differences, wording = list[str](), list[str]()
    recorded = [{path.stem for path in folder.glob("*.json")} for folder in (old, new)]
    if alone := recorded[0] ^ recorded[1]:
        print(f"in one recording only, not compared: {' '.join(sorted(alone))}\n")
    names = sorted(recorded[0] & recorded[1])
    for name in names:
        reports = [json.loads((folder / f"{name}.json").read_text()) for folder in (old, new)]
        title = f"== {name}: cenote {reports[0].pop('command')}"
        reports[1].pop("command")
        (a, prose_a), (b, prose_b) = map(facts_and_prose, reports)
        b |= {key: a[key] for key in a.keys() & b.keys() if close(a[key], b[key])}
        lines = [[f"{key} = {value!r}" for key, value in sorted(side.items())] for side in (a, b)]
        differences += shortened_diff(title, lines[0], lines[1], most=60)
        wording += shortened_diff(title, prose_a, prose_b, most=8)
    print("\n".join(differences) or f"{len(names)} commands: same exit codes, files and numbers")
    if wording and not numbers:
        print("\nWording only:\n\n" + "\n".join(wording))
    return not differences and (numbers or not wording)


def shortened_diff(title: str, a: list[str], b: list[str], most: int) -> list[str]:
    """Return [] if `a` equals `b`, else one text with at most `most` lines of their diff."""
    diff = list(difflib.unified_diff(a, b, n=0, lineterm=""))[2:]
    diff = [line[:200] for line in diff if not line.startswith("@@")]
    more = [f"and {len(diff) - most} more lines"] if len(diff) > most else []
    return ["\n".join([title, *diff[:most], *more, ""])] if diff else []


def facts_and_prose(report: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return values by their paths, and sentences. The numbers in the sentences of a file, in any
    order, and the options that they name are values, too."""
    facts, prose = dict[str, Any](), list[str]()
    printed: Counter[tuple[str, str]] = Counter()

    def visit(value: Any, path: str, file: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                place = f"{path} > {key}".removeprefix(" > ")
                visit(item, place, place if path in ("", "files") else file)
        elif isinstance(value, list) and not all(isinstance(item, float) for item in value):
            for i, item in enumerate(value):
                visit(item, f"{path}[{i}]", file)
        elif isinstance(value, str) and (
            len(value.split()) > 3 or "\n" in value or file.endswith("page.json")
        ):
            printed.update((file, number) for number in re.findall(NUMBER, value))
            facts.update({f"{file} > {option}": "named" for option in re.findall(OPTION, value)})
            prose.extend(value.splitlines())
        else:
            facts[path] = value

    visit(report, "", "")
    facts |= {f"{file} > number {n}": f"{count} times" for (file, n), count in printed.items()}
    return facts, prose


def close(a: Any, b: Any) -> bool:
    """Return whether two values agree: floats to 1e-4, in a list relative to its largest."""
    if isinstance(a, list) and isinstance(b, list):
        scale = max(map(abs, a), default=0.0)
        pairs = zip(a, b, strict=False)
        return len(a) == len(b) and all(abs(x - y) <= 1e-4 * scale for x, y in pairs)
    try:  # cells of CSV are strings
        return a == b or math.isclose(float(a), float(b), rel_tol=1e-4)
    except (TypeError, ValueError):
        return False


def main() -> int:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    modes = parser.add_subparsers(dest="mode", required=True)
    mode = modes.add_parser("record")
    mode.add_argument("out", type=Path)
    mode.add_argument("--tree", type=Path, default=Path(__file__).parents[1], help="a checkout")
    mode.add_argument("--only", nargs="+", metavar="NAME", help="these, and those they depend on")
    mode = modes.add_parser("compare")
    mode.add_argument("old", type=Path)
    mode.add_argument("new", type=Path)
    mode.add_argument("--numbers", action="store_true", help="ignore differences of wording")
    options = parser.parse_args()
    if options.mode == "compare":
        return 0 if compare(options.old, options.new, options.numbers) else 1
    record(options.out, options.tree.resolve(), options.only)
    return 0


if __name__ == "__main__":
    sys.exit(main())
