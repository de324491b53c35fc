"""ImageNet-A, ImageNet-R: accuracy if only the classes of the data set can be predicted."""

from __future__ import annotations

from dataclasses import dataclass

from ..data import Dataset
from ..models import PooledModel
from ..predict.embedding import Loading
from .per_image_correct import check_images, known_images
from .protocol import Evaluation, Figure, Protocol, Report, count_images, left_out


@dataclass
class OwnClassesReport(Report):
    """Accuracy in percent over images whose class the model knows."""

    accuracy: float
    classes: int
    images: int
    left_out: dict[str, int]  # number of images by reason
    unreadable: list[str]

    def table(self, split: str) -> str:
        lines = left_out(self.unreadable, **self.left_out)
        images = f"{count_images(self.images)} of {split}"
        return "\n".join([*lines, f"{images}: top-1 {self.accuracy:.2f} of {self.classes} classes"])

    def figures(self) -> list[Figure]:
        name = f"top-1 accuracy among {self.classes} classes"
        return [Figure(name, self.accuracy, f"% of {self.images} images")]


class ImageNetA(Protocol[OwnClassesReport], name="imagenet-a"):
    one_class = True

    def run(self, evaluation: Evaluation) -> OwnClassesReport:
        test = evaluation.test
        with evaluation.loading("imagenet-a", len(test)) as loading:
            return among_own_classes(evaluation.model, test, loading)


def among_own_classes(
    model: PooledModel, dataset: Dataset, loading: Loading = Loading()
) -> OwnClassesReport:
    """Evaluate a model of ImageNet's 1000 classes on the 200 of ImageNet-A or ImageNet-R."""
    known = known_images(model, dataset, own_classes=True)
    result = check_images(model, known.images, known.classifier, loading)
    if not result.readable():
        raise ValueError(f"no image of {dataset.name} could be read: {result.bad[0]}")
    return OwnClassesReport(
        accuracy=result.accuracy(),
        classes=len(known.classes),
        images=result.readable(),
        left_out=known.left_out,
        unreadable=result.bad,
    )
