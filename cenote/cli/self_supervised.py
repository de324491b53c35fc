"""`cenote dino` and `cenote moco`: parse, train, print.

The options are the fields of train/config.py with `flag`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from ._messages import check_data
from ._options import Device
from ._training import Data, Flag, Out, config_of, exit_if_stopped, options_type

if TYPE_CHECKING:
    from cenote.data import Dataset
    from cenote.train.config import OptimizationConfig
    from cenote.train.reports import SelfSupervisedReport

DinoOptions, MocoOptions = options_type("dino"), options_type("moco")


def dino(
    data: Data,
    out: Out,
    options: Annotated[Any, arg(name="", constructor=DinoOptions)] = DinoOptions(),  # noqa: B008
    resume: Flag = False,
    device: Device = "auto",
) -> None:
    """Train a model without labels (DINO): small crops predict a teacher's output for large ones.

    Any backbone, any pool. Labels are used for evaluation only: k nearest neighbours after every
    epoch, and a linear probe at the end. Without --lr the paper's learning rate grows with batches
    above 256. RUN contains the teacher of the last epoch. A run that is killed and resumed ends
    with the same weights; torchrun spreads it over processes.

    Args:
        data: images, as for cenote fit; they need no classes.
        out: folder of the run.
        resume: resume the run in RUN.
    """
    train("dino", data, out, options, resume, device)


def moco(
    data: Data,
    out: Out,
    options: Annotated[Any, arg(name="", constructor=MocoOptions)] = MocoOptions(),  # noqa: B008
    resume: Flag = False,
    device: Device = "auto",
) -> None:
    """Train a model without labels (MoCo-v3): a view of an image is found among those of a batch.

    Any backbone, any pool. Labels are used for evaluation only: k nearest neighbours after every
    epoch, and a linear probe at the end. Without --lr the paper's learning rate grows with batches
    above 256. RUN contains the teacher of the last epoch. A run that is killed and resumed ends
    with the same weights; torchrun spreads it over processes.

    Args:
        data: images, as for cenote fit; they need no classes.
        out: folder of the run.
        resume: resume the run in RUN.
    """
    train("moco", data, out, options, resume, device)


def train(method: str, data: str, out: Path, options: Any, resume: bool, device: str) -> None:
    check_data(data)

    from cenote.data import open_dataset
    from cenote.device import use_device
    from cenote.predict.distributed import is_main_process
    from cenote.train.self_supervised import train_without_labels

    use_device(device)
    config = config_of(method, options)
    dataset = open_dataset(data)
    with exit_if_stopped(method):
        report = train_without_labels(dataset, out, config, resume)
    if is_main_process():
        print(f"{summary(dataset, out, report, config.train)}: saved in {out}")


def summary(
    dataset: Dataset, out: Path, report: SelfSupervisedReport, settings: OptimizationConfig
) -> str:
    """Evaluate the saved model with a linear probe where images have classes."""
    from cenote.data.splits import split
    from cenote.evaluate.probes import linear_probe
    from cenote.models import load
    from cenote.predict.embedding import Loading
    from cenote.train.self_supervised import unlabelled_splits

    train, val = unlabelled_splits(dataset)
    if val is None:
        return f"{report.images} images, none with a class to evaluate"
    splits = split(train, quiet=True)  # held-out training images select the weight decay
    loading = Loading(settings.batch, settings.readers)
    probe = linear_probe(load(out), splits.train, splits.val, val, loading)
    return (
        f"{len(val)} images: 10 nearest neighbours {report.knn:.2f} "
        f"({report.knn_untrained:.2f} untrained), linear probe {probe.linear:.2f}"
    )
