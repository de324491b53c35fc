"""Images and their annotations: data sets, readers, loading."""

from .checks import LayoutError, check_layout
from .dataset import Dataset, Pixels, pack
from .files import write_atomically
from .images import BadImage, find_images, read_image
from .lists import read_list
from .record import Box, Problem, Record, RetrievalQuery
from .sources import open_dataset, read_folders

__all__ = [
    "BadImage",
    "Box",
    "Dataset",
    "LayoutError",
    "Pixels",
    "Problem",
    "Record",
    "RetrievalQuery",
    "check_layout",
    "find_images",
    "open_dataset",
    "pack",
    "read_folders",
    "read_image",
    "read_list",
    "write_atomically",
]
