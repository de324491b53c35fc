"""Colours and markers of the plots."""

# Distinguishable with colour blindness, and by their markers.
COLOURS = (
    "#4477aa",
    "#ee6677",
    "#228833",
    "#b8860b",
    "#aa3377",
    "#5fb3d9",
    "#555555",
    "#e07b39",
    "#222222",
)
MARKERS = "osD^vPX<>"
PAPER, INK, FADED = "#faf9f6", "#1c1c1e", "#787672"
