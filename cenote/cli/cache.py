"""`cenote cache`: list or remove cached features and converted networks."""

from __future__ import annotations

import json as to_json
import time
from pathlib import Path
from typing import Annotated

import tyro

FOLDER_HINT = "(default: CENOTE_CACHE, or one in the user's cache folder)"


def run(
    folder: Annotated[
        Path | None, tyro.conf.arg(metavar="FOLDER", help_behavior_hint=FOLDER_HINT)
    ] = None,
    prune: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME...", help_behavior_hint="")] = (),
    unused: Annotated[float | None, tyro.conf.arg(metavar="DAYS", help_behavior_hint="")] = None,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """List or remove the cached features of frozen backbones, and networks converted for OpenVINO.

    Args:
        folder: the cache.
        prune: remove these stores; the beginning of a name is enough.
        unused: remove stores that were not used for this number of days; 0 removes all.
        json: print JSON.
    """
    from cenote.predict.feature_cache import FeatureCache

    cache = FeatureCache(folder)
    stores = cache.stores()
    if prune or unused is not None:
        for name in prune:
            if not any(store["name"].startswith(name) for store in stores):
                raise ValueError(f"no store in {cache.folder} begins with '{name}' (cenote cache)")
        removed = cache.prune(prune, unused)
        print(f"removed {len(removed)} of {len(stores)} stores from {cache.folder}")
        return
    if json:
        print(to_json.dumps(stores, indent=2))
        return
    print(f"{cache.folder}: {len(stores)} stores, {sum(s['bytes'] for s in stores) / 1e9:.2f} GB")
    for store in stores:
        made_by, layout = store["made_by"], store["layout"]
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(store["used"]))
        shape = [*layout.get("grid", ()), layout.get("dim", "?")]
        kind, images = layout.get("dtype", ""), f"{store['rows']:>9} images"
        if "engine" in made_by:
            shape, kind, images = made_by["image"], made_by["engine"], f"{'network':>16}"
        content = f"{made_by.get('backbone', '?')} {'x'.join(map(str, shape))} {kind}"
        size = f"{images}  {store['bytes'] / 1e9:7.2f} GB"
        print(f"{store['name'][:12]}  {size}  {used}  {content}")
