"""A searchable collection of images."""

from __future__ import annotations

import html
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image

from ..allocator import keep_memory
from ..data.memory import ImageLike, open_image, to_pil
from ..options import errors_name_arguments
from ..progress import progress_of_total
from ..report.blocks import picture_of
from ..search.export import draw_results
from ..search.index import EntryImages, Indexer, IndexReport, open_images, source_of
from ..search.load import IndexSetup, check_filter
from ..search.query import ImageInput, SearchAnswer, Searcher, SearchRequest, choose_method
from ..search.results import RankedImage
from ..search.store import Filter

Texts = str | Sequence[str]
QueryImage = ImageLike | RankedImage  # a file, an image in memory, or a result of an earlier search


class SearchResults(list[RankedImage]):
    """The images that were found, best first; `notes` are doubts about them, in sentences."""

    def __init__(self, answer: SearchAnswer, text: str, images: Sequence[QueryImage]) -> None:
        super().__init__(answer.results)
        self.answer, self.text, self.images = answer, text, images

    @property
    def notes(self) -> list[str]:
        return self.answer.notes

    @property
    def paths(self) -> list[Path]:
        return [Path(result.entry.path) for result in self]

    def sheet(self) -> Image.Image:
        """Return a contact sheet of the query and the images that were found."""
        read = EntryImages()
        images = [
            read(image.entry) if isinstance(image, RankedImage) else open_image(image)
            for image in self.images
        ]
        return draw_results(self.answer, self.text, images)

    def __repr__(self) -> str:
        lines = [f"{result.score:.3f}  {result.entry.path}" for result in self]
        return "\n".join([*lines, *self.notes]) or "no image was found"

    def _repr_html_(self) -> str:
        notes, sheet = html.escape(" ".join(self.notes)), self.sheet()
        return f'<p>{notes}</p><img src="{picture_of(sheet, max(sheet.size))}">'


class Index:
    """Images that can be searched by image, by text, or by both.

    `address` is a folder, or Milvus as for `cenote index`; it is created when images are added.
    `model` is an image-text model: text-space (the default, no download), open_clip/MODEL/WEIGHTS,
    or a folder of `cenote clip`; or, for search by image alone, as for `cenote index`. `local` is
    the number of local vectors of each image of a new index, such as 16, for
    `search(..., rerank="maxsim")`.
    """

    @errors_name_arguments
    def __init__(
        self, address: str | Path, model: str | None = None, local: int | None = None
    ) -> None:
        keep_memory()
        self.setup = IndexSetup(str(address), model, local=local)
        self._searcher: Searcher | None = None

    def __len__(self) -> int:
        return 0 if self.setup.store is None else len(self.setup.store)

    def __repr__(self) -> str:
        return f"<{self.setup.address}: {len(self)} images>"

    @errors_name_arguments
    def add(self, *data: str | Path, workers: int = 0) -> IndexReport:
        """Add files, folders, globs or a data set; bring those that were added up to date.

        Only new and changed images are embedded; those that were deleted since are removed.
        """
        names = [str(name) for name in data]
        dataset = open_images(names, [Path(self.setup.address)])
        if not len(dataset):
            raise ValueError(f"no images found in {', '.join(names)}")
        store = self.setup.open()
        with progress_of_total("images") as progress:
            indexer = Indexer(
                store,
                dataset,
                self.setup.load,
                source_of(names),
                workers=workers,
                progress=progress,
            )
            report = indexer.run()
        self._searcher = None
        return report

    @errors_name_arguments
    def search(
        self,
        text: Texts = (),
        image: QueryImage | Sequence[QueryImage] = (),
        *,
        without: Texts = (),
        method: str = "auto",
        weight: float | None = None,
        top: int = 10,
        visual_only: bool = False,
        classes: Sequence[str] = (),
        **options: Any,
    ) -> SearchResults:
        """Find images by text, by image, or by both: `index.search("as a sketch", "cat.jpg")`.

        Arguments as for `cenote search`; `options` are other fields of `SearchRequest`.
        """
        if self.setup.store is None:
            raise ValueError(f"{self.setup.address} has no images yet: add(...) adds some")
        if self._searcher is None:
            self._searcher = Searcher(self.setup.store, load=lambda: self.setup.model)
        queries, texts = _as_list(image), _as_list(text)
        spec = choose_method(method, weight)
        request = SearchRequest(
            images=tuple(map(_as_input, queries)),
            texts=tuple(texts),
            without=tuple(_as_list(without)),
            method=spec.method,
            options=spec.options,
            top=top,
            visual_only=visual_only,
            filter=Filter(classes=tuple(classes)),
            **options,
        )
        check_filter(request.filter, self.setup.store)
        answer = self._searcher.ask(request)
        return SearchResults(answer, ", ".join(texts), queries)


def _as_list(values: Any) -> list[Any]:
    """Return one value, or a sequence of several, as a list."""
    if isinstance(values, RankedImage) or not isinstance(values, list | tuple):
        return [values]
    return list(values)


def _as_input(image: QueryImage) -> ImageInput:
    """Return a file as it is, a result as its row, an image in memory as the contents of a file."""
    if isinstance(image, RankedImage):
        return image.row
    if isinstance(image, str | Path):
        return image
    file = BytesIO()
    to_pil(image).save(file, "PNG")
    return file.getvalue()
