"""Plants and buildings. Several share a stem, a leaf or windows."""

from .shapes import blob, box, curve, family, leaf, line, mirrored, oval, poly, window

STEM = (curve("accent", 9, 0, 10, 4, 50, 0, 98), *leaf(22, 66, 24, -35), *leaf(-20, 78, 22, 215))

PLANTS = [
    family(
        "mushroom",
        blob("white", "-20,0 20,0 26,60 34,86 0,92 -34,86 -26,60"),
        blob("light", -78, 6, 0, 18, 78, 6, 0, 26),
        blob("main", -84, 8, -66, -50, 0, -82, 66, -50, 84, 8, 0, 14),
        oval("light", -36, -36, 13, 11),
        oval("light", 34, -30, 15, 12),
        oval("light", 2, -60, 10, 8),
        spot=(0, -18, 16),
        skirted=blob("ink", -24, 30, 24, 30, 40, 48, 0, 42, -40, 48),
        rimmed=curve("ink", 8, -80, 2, 0, 10, 80, 2),
    ),
    family(
        "flower",
        STEM,
        *(
            oval("main", x, y - 34, 27, 23, t)
            for x, y, t in (
                (0, -38, 90),
                (36, -12, 160),
                (22, 30, 50),
                (-22, 30, 130),
                (-36, -12, 20),
            )
        ),
        oval("dark", 0, -34, 26),
        oval("light", 0, -34, 21),
        spot=(0, -34, 18),
        bearded=tuple(
            line("ink", 4, 0, -34, x, y)
            for x, y in ((0, -66), (30, -44), (19, -8), (-19, -8), (-30, -44))
        ),
        budded=(line("accent", 6, 4, 50, -36, 26), oval("ink", -40, 22, 11)),
    ),
    family(
        "tulip",
        STEM,
        mirrored(blob("dark", -4, 14, -40, -14, -42, -84, -14, -48)),
        blob("main", 0, 18, -32, 0, -34, -34, 0, -90, 34, -34, 32, 0),
        curve("light", 6, -18, -8, -20, -32, -6, -58),
        spot=(0, -14, 15),
        ragged=tuple(poly("ink", x - 7, -62, x, -96, x + 7, -62) for x in (-24, 0, 24)),
        based=curve("white", 10, -30, 4, 0, 14, 30, 4),
    ),
    family(
        "cactus",
        blob("dark", -34, 62, 34, 62, 26, 96, -26, 96),
        box("accent", -38, 56, 38, 70),
        blob("main", -24, 60, -26, -50, 0, -86, 26, -50, 24, 60),
        curve("main", 24, 18, 18, 62, 14, 64, -34),
        curve("main", 24, -18, 32, -62, 26, -62, -12),
        *(line("light", 4, x, -48, x, 48) for x in (-11, 0, 11)),
        spot=(0, -10, 14),
        flowering=(
            *(oval("white", x, y, 9) for x, y in ((-10, -88), (10, -88), (0, -98))),
            oval("ink", 0, -90, 6),
        ),
        spined=tuple(
            line("ink", 4, x, y, x + d, y - 6)
            for x, d in ((-24, -16), (24, 16))
            for y in (-46, -26, -6)
        ),
    ),
    family(
        "apple",
        line("ink", 8, 0, -52, 10, -88),
        leaf(34, -78, 26, -20),
        blob("main", "0,-48 44,-60 76,-20 58,50 22,80 0,74 -22,80 -58,50 -76,-20 -44,-60"),
        oval("light", -38, -18, 11, 22, 25),
        spot=(10, 16, 19),
        bitten=(oval("white", 58, 0, 15, 20), oval("accent", 54, 0, 8, 12)),
        wormy=(curve("ink", 11, 20, -8, 44, -30, 62, -22, 78, -44),),
    ),
    family(
        "pear",
        line("ink", 8, 0, -70, 8, -98),
        leaf(28, -88, 22, -15),
        blob("main", "0,-78 26,-58 32,-16 60,28 42,76 0,88 -42,76 -60,28 -32,-16 -26,-58"),
        oval("light", -30, 30, 10, 22, 15),
        spot=(8, 36, 19),
        tagged=(line("ink", 3, 4, -74, 40, -50), poly("white", 34, -56, 60, -56, 60, -30, 34, -30)),
        banded=curve("ink", 9, -32, -18, 0, -10, 32, -18),
    ),
    family(
        "tree",
        poly("accent", -20, 98, -9, 20, 9, 20, 20, 98),
        oval("dark", -44, 12, 34, 30),
        oval("dark", 44, 12, 34, 30),
        oval("main", -40, -10, 36),
        oval("main", 42, -14, 36),
        oval("main", 0, 4, 36, 30),
        oval("main", 0, -58, 40),
        oval("light", -14, -70, 14, 10),
        oval("light", -50, -20, 11, 8),
        oval("light", 40, -28, 11, 8),
        spot=(2, -8, 16),
        hollow=(oval("ink", 0, 66, 9, 14),),
        nested=(
            poly("ink", 16, 20, 56, 20, 46, 40, 26, 40),
            oval("white", 30, 18, 8),
            oval("white", 43, 18, 8),
        ),
    ),
]

BUILDINGS = [
    family(
        "house",
        box("dark", 34, -82, 54, -40),
        box("main", -66, -10, 66, 88),
        poly("accent", -88, -6, 0, -86, 88, -6),
        box("ink", -14, 34, 18, 88),
        window(-52, 10, -24, 38),
        window(28, 10, 56, 38),
        box("light", -66, 78, 66, 88),
        spot=(0, -32, 15),
        smoking=(oval("white", 46, -90, 9), oval("white", 58, -102, 12)),
        weathervaned=(line("ink", 5, 0, -84, 0, -108), line("ink", 5, -16, -104, 18, -104)),
    ),
    family(
        "castle",
        box("main", -52, -14, 52, 84),
        mirrored(
            box("dark", -86, -40, -48, 84),
            *(box("dark", x, -54, x + 9, -38) for x in (-88, -73, -58)),
        ),
        *(box("main", x, -28, x + 16, -12) for x in (-44, -18, 8, 34)),
        blob("ink", -18, 84, -18, 40, 0, 24, 18, 40, 18, 84),
        mirrored(box("ink", -72, -16, -62, 8)),
        spot=(0, 4, 13),
        flagged=(line("ink", 5, -67, -54, -67, -96), poly("white", -65, -96, -34, -86, -65, -76)),
        spired=mirrored(poly("ink", -92, -54, -67, -100, -42, -54)),
    ),
    family(
        "windmill",
        poly("main", -26, -30, 26, -30, 46, 96, -46, 96),
        poly("dark", -32, -28, 0, -62, 32, -28),
        box("ink", -11, 64, 11, 96),
        window(-12, 4, 12, 28),
        *(
            line("ink", 4, 0, -32, x * 0.94, y * 0.94 - 32)
            for x, y in ((62, -62), (-62, -62), (62, 62), (-62, 62))
        ),
        poly("accent", 10, -50, 58, -98, 74, -80, 24, -34),
        poly("accent", 20, -20, 68, 28, 50, 44, 6, -8),
        poly("accent", -10, -14, -58, 34, -74, 16, -24, -30),
        poly("accent", -20, -44, -68, -92, -50, -108, -6, -56),
        oval("light", 0, -32, 9),
        spot=(0, 46, 13),
        balconied=(
            box("ink", -48, 30, 48, 38),
            *(box("ink", x, 20, x + 4, 32) for x in (-46, -2, 42)),
        ),
        weathervaned=(line("ink", 5, 0, -58, 0, -100), poly("ink", 0, -100, 24, -92, 0, -84)),
    ),
    family(
        "lighthouse",
        poly("main", -24, -40, 24, -40, 42, 84, -42, 84),
        poly("light", -28, -12, 28, -12, 32, 16, -32, 16),
        poly("light", -36, 44, 36, 44, 39, 66, -39, 66),
        box("ink", -20, -68, 20, -42),
        box("white", -12, -64, 12, -46),
        poly("dark", -28, -66, 0, -96, 28, -66),
        box("dark", -34, -44, 34, -34),
        blob("dark", -62, 98, -50, 80, 0, 76, 50, 80, 62, 98),
        spot=(0, 30, 12),
        beaming=mirrored(poly("white", -22, -60, -78, -76, -78, -36, -22, -50)),
        masted=(line("ink", 5, 0, -94, 0, -118), oval("white", 0, -112, 8)),
    ),
]
