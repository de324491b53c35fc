"""How the documents' commands are made small enough for a test, and which of them no test can run here."""

from __future__ import annotations

import re
from collections.abc import Mapping

# Options of a command that are set to something small, whether the document gives them or not.
SMALL: Mapping[str, Mapping[str, str]] = {
    "attend": {"--size": "96"},
    "bench": {"--pools": "gap", "--sizes": "2x8x4x4", "--rounds": "1"},
    "clip": {"--epochs": "1"},
    "data": {"--workers": "0"},
    "dino": {"--epochs": "1", "--batch": "16", "--size": "64"},
    "evaluate": {"--batch": "16"},
    "evaluate-search": {"--most": "2", "--batch": "16"},
    "export": {"--backbone": "resnet_micro", "--no-pretrained": ""},
    "fit": {"--epochs": "1", "--lr": "0.003"},
    "index": {"--batch": "4"},
    "localize": {"--batch": "8"},
    "metric": {"--epochs": "1"},
    "moco": {"--epochs": "1", "--batch": "16", "--size": "64"},
    "probe": {"--seeds": "1", "--epochs": "1", "--lr": "1.6"},
    "sweep": {"--trials": "1", "--epochs": "1"},
    "pools": {"--dim": "64", "--grid": "4x4"},
    "tournament": {"--seeds": "1", "--epochs": "1", "--lr": "0.003", "--boxes": "4"},
    "world": {"--images": "60", "--size": "64", "--jobs": "1"},
}
# Who plays, where the document lets all of them play.
CHOSEN, PLAYERS = {"--pools", "--gamma"}, "gap simpool"
# Trainings see small images.
RESIZED = {"fit", "metric", "sweep", "clip"}
SIDE = "64"
# Where the document leaves the backbone to the command, a small one takes the place of lite0, which attend, discover,
# index and the examples still run. Its weights are in the folder.
LEARN = {"fit", "metric", "probe", "sweep", "tournament"}
MICRO = {"--backbone": "resnet_micro", "--weights": "resnet_micro.safetensors"}
NEEDS_BACKBONE = {"--backbone", "--weights", "--recipe", "--scratch", "--stride", "--fpn"}
# Commands that draw every photograph see one class of them.
DRAW, FEWER = {"attend", "discover", "localize"}, {"photos/": "photos/images/cat"}
# Options of scripts, in the same way.
SCRIPTS: Mapping[str, Mapping[str, str]] = {
    "examples/gsp_tokens.py": {"--seeds": "1", "--epochs": "1"}
}
# Commands that train into a folder: a second one into a folder that is taken is the page's alternative, not its sequel.
TRAIN = {"fit", "dino", "moco", "metric", "clip", "probe", "sweep", "tournament"}

# A command that matches is parsed by its own parser, and not run.
NOT_RUN = {
    r"\b[a-z][\w-]*:[A-Z]\w*": "a published data set, NAME:FOLDER",
    r"open_clip/|--backbone \w*(dinov[23]|window7)": "weights that are downloaded",
    r"http://": "a Milvus server",
    r"^cenote demo": "minutes; tests/cli/test_demo.py runs a small one",
    r"^cenote serve": "it runs until it is stopped; tests/web starts it",
    r"mine\.yaml|vit_tiny\.safetensors|laion_1m_mean|supplied:": "a file of the reader's own",
    r"^cenote reproduce .* -o": "tests/docs/test_papers_commands.py makes every table",
    r"^python (benchmarks|docs)/": "it measures, or writes the documents themselves",
    r"^cenote tournament .*--ablation": "thirty contenders; tests/train/test_tournament.py",
    r"^cenote export .*onnx": "half a minute; tests/cli/test_export.py writes smaller ones",
    r"^make ": "it sets up an environment",
    r"^pip ": "it installs",
    r"nnodes|nproc-per-node [4-9]": "several machines, or GPUs",
}


def reason(text: str) -> str | None:
    """Why a command is not run, or None if it is."""
    return next((why for pattern, why in NOT_RUN.items() if re.search(pattern, text)), None)


def shrunk(words: list[str]) -> list[str]:
    """`cenote NAME ...` or `python FILE ...` with small numbers."""
    program, command, *rest = words
    small = dict(SMALL.get(command, {}) if program == "cenote" else SCRIPTS.get(command, {}))
    if command == "tournament" and not CHOSEN & set(rest):
        small["--pools"] = PLAYERS
    if command == "world" and not {"--classes", "tiny"} & set(rest):
        small["--classes"] = "3"  # 60 images of 47 classes have no test split
    if command in RESIZED or (command == "tournament" and "--recipe" in rest):
        small["--size"] = SIDE
    if command in LEARN and not NEEDS_BACKBONE & set(rest):
        small |= MICRO
    if command == "models" and rest:
        rest = ["test_vit", "--jobs", "1"]
    if command in DRAW:
        rest = [FEWER.get(word, word) for word in rest]
    if "--processes" in rest:
        small["--processes"] = "2"
    for name, value in small.items():
        rest = [*without(rest, name), name, *value.split()]
    return [program, command, *rest]


def without(words: list[str], option: str) -> list[str]:
    """The words less an option and its values."""
    if option not in words:
        return words
    start = words.index(option)
    end = start + 1
    while end < len(words) and not re.match(r"-[-a-z]", words[end]):
        end += 1
    return words[:start] + words[end:]
