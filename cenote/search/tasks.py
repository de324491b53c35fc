"""Which question data can be asked, of which of its images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..data import Dataset
from ..options import suggest
from .protocols import RetrievalTask, attribute_modification, domain_conversion, present_domains
from .triplets import triplet_queries, triplets

PROTOCOLS = ("domains", "attributes", "triplets")


def find_protocol(dataset: Dataset, name: str | None = None) -> str:
    """The one that the data has truth for: queries, several domains, or attributes."""
    if name is not None and name not in PROTOCOLS:
        raise ValueError(f"no protocol '{name}'{suggest(name, PROTOCOLS)} ({', '.join(PROTOCOLS)})")
    if name is not None:
        return name
    if any(query.group in dataset.table.attributes for query in dataset.queries):
        return "attributes"
    if triplet_queries(dataset):
        return "triplets"
    if len(present_domains(dataset)) > 1:
        return "domains"
    if dataset.table.attributes:
        return "attributes"
    if any(query.text is not None for query in dataset.queries):
        raise ValueError(
            f"{dataset.name}: the right images of its queries are not public; name another split or set"
        )
    raise ValueError(
        f"{dataset.name} has one domain and no attributes: composed queries need images with classes, and with domains "
        "(a column 'domain') or attributes"
    )


def judged_part(dataset: Dataset, split: str | None = None) -> Dataset:
    """The split, or query and gallery, or test, or everything: in this order, what is there.

    Of data with queries of its own, the first of test and val whose right images are public.
    """
    if split is not None:
        return dataset.split(split)
    names = dataset.splits
    if triplet_queries(dataset):
        parts = (dataset.split(name) for name in ("test", "val") if name in names)
        return next((part for part in parts if triplet_queries(part)), dataset)
    if ("query" in names and "gallery" in names) or "test" not in names:
        return dataset
    return dataset.split("test")


def make_tasks(
    dataset: Dataset,
    protocol: str | None = None,
    words: Mapping[str, str] | None = None,
    attributes: Sequence[str] = (),
    sources: Sequence[str] = (),
) -> list[RetrievalTask]:
    """By name, or whichever the data has truth for; one task for each database."""
    chosen = find_protocol(dataset, protocol)
    for option, given, of in (
        ("attributes", attributes, "attributes"),
        ("sources", sources, "domains"),
    ):
        if given and chosen != of:
            raise ValueError(f"--{option} is for the protocol {of}, and this one is {chosen}")
    if chosen == "triplets":
        return triplets(dataset)
    if chosen == "domains":
        return [domain_conversion(dataset, words, sources)]
    return [attribute_modification(dataset, words, attributes)]
