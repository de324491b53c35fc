"""Methods of weakly supervised localization, one file each, by name in `registry`."""
