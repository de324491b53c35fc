"""Readers of published sets of labelled images: the right images, splits, classes, boxes and domains.

labelled_trees.py makes each set as its release is laid out on disk, and labelled_cases.py lists what is in it. A wrong
tree and a damaged table are refused in one line that names the folder, or the file and its line.
"""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from cenote.data import Dataset, LayoutError, open_dataset
from cenote.data.benchmarks import benchmarks, find_benchmark
from tests.data.benchmarks import labelled_trees as trees
from tests.data.benchmarks.labelled_cases import CASES, Case


def read(case: Case, root: Path) -> Dataset:
    return find_benchmark(case.name).read(root / case.folder)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def assert_names(error: pytest.ExceptionInfo[ValueError], *values: str) -> None:
    """One line that contains the values."""
    message = str(error.value)
    assert "\n" not in message and len(message) < 2000
    for value in values:
        assert value in message, message


def test_every_published_set_has_a_case() -> None:
    from tests.data.benchmarks.test_annotated_sets import CASES as others

    made_of_cifar = {"cifar100-collage", "cifar100-distilled"}  # tests/data/test_collages.py
    known = {case.name for case in CASES.values()} | set(others) | made_of_cifar
    assert set(benchmarks()) == known


def test_reads_what_the_release_says(case: Case, tmp_path: Path) -> None:
    case.make(tmp_path)
    dataset = read(case, tmp_path)
    records = {record.image: record for record in dataset}
    assert dataset.name == case.name and dataset.problems == []
    assert dataset.splits == case.splits and len(records) == len(dataset) == sum(
        case.splits.values()
    )
    assert dataset.classes[: len(case.classes)] == case.classes
    assert len(dataset.classes) == (case.count or len(case.classes))
    assert {
        image: [box[:4] for box in r.boxes] for image, r in records.items() if r.boxes
    } == case.boxes
    assert all(box.label is None for record in dataset for box in record.boxes)
    assert {image: records[image].label for image in case.labels} == case.labels
    assert {image: records[image].domain for image in case.domains} == case.domains
    assert {image: dict(records[image].attributes) for image in case.attributes} == case.attributes


def test_every_image_opens_and_boxes_lie_inside(case: Case, tmp_path: Path) -> None:
    case.make(tmp_path)
    dataset = read(case, tmp_path)
    for i, record in enumerate(dataset):
        image, mask = dataset.image(i), dataset.mask(i)
        assert image.mode == "RGB"
        assert mask is None or mask.shape == (image.height, image.width)
        for box in record.boxes:
            assert 0 <= box.x1 < box.x2 <= image.width and 0 <= box.y1 < box.y2 <= image.height


def test_survives_pickling(case: Case, tmp_path: Path) -> None:
    case.make(tmp_path)
    dataset = read(case, tmp_path)
    again = pickle.loads(pickle.dumps(dataset))
    assert list(again) == list(dataset) and again.classes == dataset.classes
    assert again.image(0).tobytes() == dataset.image(0).tobytes()


@pytest.mark.parametrize("kind", ["empty", "unrelated", "missing", "file"])
def test_a_wrong_tree_is_refused(case: Case, kind: str, tmp_path: Path) -> None:
    root = tmp_path / "x"
    if kind == "file":
        root.write_text("hello")
    elif kind != "missing":
        root.mkdir()
    if kind == "unrelated":
        (root / "holiday.txt").write_text("hello")
    with pytest.raises(LayoutError) as error:
        find_benchmark(case.name).read(root)
    assert_names(error, str(root), "holiday.txt" if kind == "unrelated" else "")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.needed])
def test_a_needed_file_is_missed(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert case.needed
    case.make(tmp_path)
    (tmp_path / case.needed).unlink()
    with pytest.raises(LayoutError) as error:
        read(case, tmp_path)
    assert_names(
        error,
        str(tmp_path),
        Path(case.needed).name.split(".")[0] if "meta.mat" not in case.needed else "",
    )


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.damaged])
def test_a_damaged_line_gets_file_and_number(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    assert case.damaged
    table, number, text = case.damaged
    case.make(tmp_path)
    lines = (tmp_path / table).read_text().splitlines()
    (tmp_path / table).write_text("\n".join([*lines[: number - 1], text, *lines[number:]]) + "\n")
    with pytest.raises(ValueError) as error:
        read(case, tmp_path)
    assert_names(
        error, str(tmp_path / table), "" if table.endswith(".json") else f", line {number}: "
    )


@pytest.mark.parametrize("name", CASES)
def test_the_tree_names_what_the_reader_looks_for(name: str, tmp_path: Path) -> None:
    """What `cenote data` prints of a set is what its refusal expects."""
    benchmark = find_benchmark(CASES[name].name)
    with pytest.raises(LayoutError) as error:
        benchmark.read(tmp_path)
    message = str(error.value).replace(str(tmp_path), "")
    stem = re.findall(r"([\w-]+)(?:/|\.(?:bin|csv|json|mat|pkl|txt))", message)[0]
    assert stem in benchmark.tree, (stem, benchmark.tree)


def test_imagenet_20pc_takes_the_first_260_by_name(tmp_path: Path) -> None:
    trees.imagenet_20pc(tmp_path)
    dataset = read(CASES["imagenet-20pc"], tmp_path)
    taken = [record.image for record in dataset if record.image.startswith("train/n01440764/")]
    folder = tmp_path / "train/n01440764"
    assert taken == [
        f"train/n01440764/{n}" for n in sorted(p.name for p in folder.glob("*.JPEG"))[:260]
    ]


def test_imagenet_20pc_needs_training_images(tmp_path: Path) -> None:
    trees.imagenet_devkit(tmp_path)
    with pytest.raises(LayoutError, match=r"train/.*ILSVRC/"):
        read(CASES["imagenet-20pc"], tmp_path)


def test_imagenet_100_may_list_other_classes(tmp_path: Path) -> None:
    trees.imagenet_100(tmp_path)
    trees.text(tmp_path / "imagenet100.txt", "n01440764")
    assert read(CASES["imagenet-100"], tmp_path).splits == {"train": 1, "val": 1}
    assert read(CASES["imagenet-100"], tmp_path).classes == ["n01440764"]


def test_imagenet_100_is_a_hundred_classes_of_imagenet() -> None:
    from timm.data import ImageNetInfo

    from cenote.data.benchmarks.imagenet import IMAGENET_100

    wnids = IMAGENET_100.split()
    assert len(set(wnids)) == 100 and wnids == sorted(wnids)
    assert set(wnids) <= set(ImageNetInfo("imagenet-1k").label_names())


@pytest.mark.parametrize(
    "name", ["cifar10, Python", "cifar10, binary", "cifar100, Python", "cifar100, binary"]
)
def test_cifar_images_are_planes_of_red_green_and_blue(name: str, tmp_path: Path) -> None:
    CASES[name].make(tmp_path)
    dataset = read(CASES[name], tmp_path)
    for i in range(6):
        pixels = np.asarray(dataset.image(i))
        for channel in range(3):
            plane = trees.FLAGS[i, channel * 1024 : (channel + 1) * 1024].reshape(32, 32)
            assert (pixels[..., channel] == plane).all()
    assert (
        np.asarray(dataset.split("test").image(0)).tobytes()
        == np.asarray(dataset.image(5 if "10," in name else 4)).tobytes()
    )


def test_cifar_damage(tmp_path: Path) -> None:
    trees.cifar10_binary(tmp_path)
    path = tmp_path / "data_batch_4.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"data_batch_4\.bin.*\b3073\b"):
        read(CASES["cifar10, binary"], tmp_path)
    path.write_bytes(bytes([7]) + bytes(3072))
    with pytest.raises(ValueError, match=r"data_batch_4\.bin"):
        read(CASES["cifar10, binary"], tmp_path)


def test_cifar_refuses_a_pickle_that_runs_something(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "touched",)

    trees.cifar100_python(tmp_path)
    (tmp_path / "train").write_bytes(pickle.dumps({"data": Evil()}))
    with pytest.raises(ValueError, match=r"train\b"):
        read(CASES["cifar100, Python"], tmp_path)
    assert not (tmp_path / "touched").exists()


def test_pets_trimaps(tmp_path: Path) -> None:
    trees.pets(tmp_path)
    mask = read(CASES["pets"], tmp_path).mask(0)
    assert mask is not None and (mask[10:20, 10:20] == 1).all() and (mask[9, 10:20] == 255).all()
    assert (mask > 0).sum() == 110


@pytest.mark.parametrize(
    ("name", "file"), [("flowers", "setid.mat"), ("cars, flat", "cars_annos.mat")]
)
def test_a_damaged_matlab_file_is_named(name: str, file: str, tmp_path: Path) -> None:
    CASES[name].make(tmp_path)
    for content in (b"", b"not MATLAB", (tmp_path / file).read_bytes()[:200]):
        (tmp_path / file).write_bytes(content)
        with pytest.raises(ValueError) as error:
            read(CASES[name], tmp_path)
        assert_names(error, str(tmp_path / file))


def test_matlab_files_with_the_wrong_contents(tmp_path: Path) -> None:
    trees.flowers(tmp_path)
    trees.savemat(
        tmp_path / "setid.mat",
        {"trnid": np.array([[9]]), "valid": np.array([[1]]), "tstid": np.array([[2]])},
    )
    with pytest.raises(ValueError, match=r"setid\.mat.*\b9\b.*\b6\b"):
        read(CASES["flowers"], tmp_path)
    trees.flowers(tmp_path)
    trees.savemat(tmp_path / "imagelabels.mat", {"labels": np.zeros((1, 6))})  # from 0
    with pytest.raises(ValueError, match=r"imagelabels\.mat.*\b0\b"):
        read(CASES["flowers"], tmp_path)
    trees.savemat(tmp_path / "setid.mat", {"trnid": np.array([[1]])})
    with pytest.raises(ValueError, match=r"setid\.mat.*valid"):
        read(CASES["flowers"], tmp_path)


def test_tables_of_cub_that_disagree(tmp_path: Path) -> None:
    trees.cub(tmp_path)
    trees.text(tmp_path / "train_test_split.txt", "1 0", "2 1")
    with pytest.raises(ValueError, match=r"\b3\b"):
        read(CASES["cub"], tmp_path)


def test_torchvision_agrees(tmp_path: Path) -> None:
    """Its readers of the same trees give the same files, in the same order, with the same numbers of classes."""
    from torchvision import datasets

    trees.imagenet(tmp_path / "imagenet")
    trees.cars_devkit(tmp_path / "stanford_cars")
    trees.pets(tmp_path / "oxford-iiit-pet")
    peers = {
        "imagenet": datasets.ImageFolder(tmp_path / "imagenet/train").samples,
        "stanford_cars": datasets.StanfordCars(tmp_path)._samples,
    }
    pets = datasets.OxfordIIITPet(tmp_path)
    peers["oxford-iiit-pet"] = list(zip(pets._images, pets._labels, strict=True))
    for folder, name in (
        ("imagenet", "imagenet"),
        ("stanford_cars", "cars"),
        ("oxford-iiit-pet", "pets"),
    ):
        ours = find_benchmark(name).read(tmp_path / folder).split("train")
        assert [(ours.path(i), int(ours.labels[i])) for i in range(len(ours))] == [
            (Path(path), int(label)) for path, label in peers[folder]
        ]
    assert [name.lower() for name in pets.classes] == [
        name.lower() for name in find_benchmark("pets").read(tmp_path / "oxford-iiit-pet").classes
    ]


def test_one_domain_of_a_data_set(tmp_path: Path) -> None:
    trees.domainnet(tmp_path)
    dataset = open_dataset(f"domainnet/sketch:{tmp_path}")
    assert dataset.name == "domainnet/sketch" and dataset.classes == ["zebra", "ant"]
    assert [record.domain for record in dataset] == ["sketch"] * 4
    with pytest.raises(ValueError, match=r"no domain 'sketsh'.*'sketch'"):
        open_dataset(f"domainnet/sketsh:{tmp_path}")
