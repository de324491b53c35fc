"""Which pooling suits these images? `python examples/choose_a_pool.py [FOLDER] [-o OUT]`

FOLDER has one folder per class; without it, a small synthetic data set is drawn. The same in Python
as `cenote tournament FOLDER -o OUT --pools gap gem ep simpool --seeds 2 --epochs 10`: the features
of a frozen network are computed once, four pools are trained on them, and OUT contains the table,
the pictures and the recommended model.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import cenote
from cenote.allocator import keep_memory
from cenote.data import open_dataset
from cenote.report.tournament import tournament_table, write_tournament
from cenote.train.config import PROBE
from cenote.train.tournament.run import TournamentConfig, run_tournament

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="world/tiny")
parser.add_argument("-o", "--out", type=Path, default=Path("chosen"))
args = parser.parse_args()

keep_memory()  # makes convolutional networks up to three times as fast on many machines
dataset = open_dataset(args.folder)
print(f"{len(dataset)} images of {len(dataset.classes)} classes")

settings = replace(PROBE, epochs=10, warmup=2.0)
pools = ("gap", "gem", "ep", "simpool")
config = TournamentConfig("lite0", pools=pools, seeds=2, settings=settings)
# The same command resumes after an interruption.
result = run_tournament(dataset, args.out, config, resume=args.out.exists())
write_tournament(result.report, args.out, result.photos, result.maps)
print(tournament_table(result.report))

model = cenote.load(args.out)  # the recommended one
print(
    f"\n{args.out} holds {type(model.pool).__name__} on {model.backbone.name}, trained: cenote.load('{args.out}')"
)
