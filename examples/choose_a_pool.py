"""Which pooling suits these images? `python examples/choose_a_pool.py [FOLDER] [-o OUT]`

FOLDER has a folder for each class; without one, a small world is drawn. In Python what `cenote tournament FOLDER -o OUT
--pools gap gem ep simpool --seeds 2 --epochs 10` does: a frozen network sees every image once, four pools learn on what
it saw, and OUT holds the table, the pictures and the recommended model.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import cenote
from cenote.allocator import keep_memory
from cenote.data import open_dataset
from cenote.report.tournament import tournament_table
from cenote.report.tournament_figures import write_tournament
from cenote.train.config import PROBE
from cenote.train.tournament.run import TournamentConfig, run_tournament

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="world/tiny")
parser.add_argument("-o", "--out", type=Path, default=Path("chosen"))
asked = parser.parse_args()

keep_memory()  # on many machines a convolutional network is three times as fast with it
dataset = open_dataset(asked.folder)
print(f"{len(dataset)} images of {len(dataset.classes)} classes")

settings = replace(PROBE, epochs=10, warmup=2.0)
pools = ("gap", "gem", "ep", "simpool")
config = TournamentConfig("lite0", pools=pools, seeds=2, settings=settings)
# If it is killed, the same command continues.
result = run_tournament(dataset, asked.out, config, resume=asked.out.exists())
write_tournament(result.report, asked.out, result.photos, result.maps)
print(tournament_table(result.report))

model = cenote.load(asked.out)  # the recommended one
print(
    f"\n{asked.out} holds {type(model.pool).__name__} on {model.backbone.name}, trained: cenote.load('{asked.out}')"
)
