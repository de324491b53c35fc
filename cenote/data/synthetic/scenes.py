"""All scenes: how a caption speaks of them, and how they are painted."""

from collections.abc import Callable

from .country import COUNTRY
from .places import PLACES
from .plate import Plate

SCENES: dict[str, tuple[str, Callable[[Plate], None]]] = {**COUNTRY, **PLACES}
