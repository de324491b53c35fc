"""Which pooling suits these images? `python examples/choose_a_pool.py [FOLDER] [-o OUT]`

FOLDER has one folder per class; without it, a small synthetic data set is drawn. The same in Python
as `cenote tournament FOLDER -o OUT --pools gap gem ep simpool --seeds 2 --epochs 10`: the features
of a frozen network are computed once, four pools are trained on them, and OUT contains the report,
the table, the pictures and the recommended model.
"""

import argparse
from pathlib import Path

import cenote

parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default="world/tiny")
parser.add_argument("-o", "--out", type=Path, default=Path("chosen"))
args = parser.parse_args()

result = cenote.tournament(
    args.folder,
    args.out,
    pools=["gap", "gem", "ep", "simpool"],
    seeds=2,
    epochs=10,
    resume=args.out.exists(),  # the same command resumes after an interruption
)
print(result)
print(f"\n{args.out} contains the report, index.html, and the model: {result.model}")
