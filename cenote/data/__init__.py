"""Images and labels as they lie on disk."""

from .dataset import Dataset, Pixels
from .files import write_atomically
from .folders import read_folders
from .images import BadImage, find_images, read_image
from .lists import read_list
from .opening import open_dataset
from .packing import pack
from .record import Box, Problem, Query, Record
from .trees import WrongTree, expect

__all__ = [
    "BadImage",
    "Box",
    "Dataset",
    "Pixels",
    "Problem",
    "Query",
    "Record",
    "WrongTree",
    "expect",
    "find_images",
    "open_dataset",
    "pack",
    "read_folders",
    "read_image",
    "read_list",
    "write_atomically",
]
