"""`cenote cache`: list what is kept, or remove it."""

from __future__ import annotations

import json as to_json
import time
from pathlib import Path
from typing import Annotated

import tyro


def run(
    folder: Annotated[Path | None, tyro.conf.arg(metavar="FOLDER")] = None,
    prune: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME...", help_behavior_hint="")] = (),
    unused: Annotated[float | None, tyro.conf.arg(metavar="DAYS", help_behavior_hint="")] = None,
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Features of frozen backbones that are kept on disk.

    Args:
        folder: where they lie (default: CENOTE_CACHE, or the user's cache folder).
        prune: remove these; the beginning of a name is enough.
        unused: remove what was not used for so many days; 0 removes all.
        json: print JSON.
    """
    from cenote.predict.feature_cache import FeatureCache, cache_folder

    cache = FeatureCache(folder or cache_folder())
    if prune or unused is not None:
        unknown = [
            name
            for name in prune
            if not any(store["name"].startswith(name) for store in cache.stores())
        ]
        if unknown:
            raise ValueError(
                f"nothing in {cache.folder} begins with '{unknown[0]}' (cenote cache lists what there is)"
            )
        removed = cache.prune(prune, unused)
        print(
            f"removed {len(removed)} of {len(removed) + len(cache.stores())} stores from {cache.folder}"
        )
        return
    stores = cache.stores()
    if json:
        print(to_json.dumps(stores, indent=2))
        return
    print(f"{cache.folder}: {len(stores)} stores, {sum(s['bytes'] for s in stores) / 1e9:.2f} GB")
    for store in stores:
        made, layout = store["made_by"], store["layout"]
        grid = "x".join(map(str, layout.get("grid", ())))
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(store["used"]))
        what = (
            f"{made.get('backbone', '?')} {grid}x{layout.get('dim', '?')} {layout.get('dtype', '')}"
        )
        print(
            f"{store['name'][:12]}  {store['rows']:>9} images  {store['bytes'] / 1e9:7.2f} GB  {used}  {what}"
        )
