"""Animals of the ground."""

from .family import family
from .pieces import box, eye, legs
from .shape import blob, curve, line, mirrored, oval, poly, star

ANIMALS = [
    family(
        "cat",
        curve("dark", 14, 45, 70, 85, 50, 80, 0, 95, -25),
        blob("main", -30, 90, -42, 40, -20, 0, 20, 0, 45, 40, 52, 90),
        mirrored(
            poly("main", -48, -30, -46, -92, -8, -62), poly("accent", -40, -42, -40, -76, -18, -58)
        ),
        oval("main", 0, -32, 48, 40),
        mirrored(*eye(-19, -40, 9)),
        poly("accent", -7, -26, 7, -26, 0, -17),
        mirrored(line("ink", 2.5, -20, -16, -62, -22), line("ink", 2.5, -20, -12, -60, -6)),
        mirrored(oval("light", -16, 86, 15, 9)),
        spot=(4, 42, 16),
        collared=(curve("ink", 11, -32, 6, 0, 16, 32, 6), oval("white", 0, 18, 8)),
        bow_tied=poly("ink", -30, -2, 0, 10, 30, -2, 30, 24, 0, 12, -30, 24),
    ),
    family(
        "rabbit",
        mirrored(oval("main", -20, -68, 14, 42, -8), oval("accent", -20, -66, 7, 30, -8)),
        blob("main", -40, 90, -50, 45, -20, 8, 20, 8, 50, 45, 40, 90),
        oval("main", 0, -16, 40, 34),
        mirrored(*eye(-16, -22, 8)),
        oval("accent", 0, -8, 6, 4),
        box("white", -7, -1, 7, 10),
        oval("white", 48, 72, 15),
        mirrored(oval("light", -20, 88, 20, 9)),
        spot=(0, 50, 16),
        scarfed=(
            curve("ink", 14, -30, 14, 0, 24, 30, 14),
            poly("ink", 14, 20, 30, 18, 34, 56, 18, 56),
        ),
        capped=(poly("ink", -16, -42, 0, -72, 16, -42), oval("white", 0, -72, 8)),
    ),
    family(
        "snail",
        blob("accent", -95, 78, -60, 60, 20, 55, 55, 40, 62, -10, 88, -8, 90, 40, 70, 80, 0, 84),
        line("accent", 6, 66, -8, 58, -48),
        line("accent", 6, 80, -8, 92, -46),
        oval("ink", 58, -50, 7),
        oval("ink", 92, -48, 7),
        oval("main", -18, 8, 62, 58),
        curve(
            "dark", 9, -74, 30, -50, -30, 0, -38, 26, 6, 0, 42, -36, 28, -34, -4, -10, -8, -6, 12
        ),
        spot=(-18, 8, 17),
        spiked=tuple(
            poly("ink", x - 9, y + 8, x + 4, y - 22, x + 13, y + 6)
            for x, y in ((-50, -40), (-20, -50), (12, -42))
        ),
        striped_foot=tuple(line("ink", 6, x, 60, x - 6, 82) for x in (-60, -40, 20, 40)),
    ),
    family(
        "turtle",
        oval("accent", 78, 2, 24, 20),
        eye(86, -4, 7),
        oval("accent", -32, 48, 18, 24, 20),
        oval("accent", 34, 48, 18, 24, -20),
        poly("accent", -50, 24, -84, 34, -52, 40),
        blob("main", -55, 35, -50, -20, 0, -55, 50, -20, 55, 35),
        poly("dark", -18, -14, 0, -28, 20, -14, 14, 10, -12, 10),
        line("dark", 5, -18, -14, -46, -18),
        line("dark", 5, 20, -14, 46, -18),
        line("dark", 5, -12, 10, -26, 34),
        line("dark", 5, 14, 10, 26, 34),
        box("light", -57, 30, 57, 42),
        spot=(1, -6, 16),
        flagged=(line("ink", 5, 0, -50, 0, -92), poly("white", 2, -92, 34, -80, 2, -68)),
        ridged=tuple(
            poly("ink", x - 10, y, x, y - 20, x + 10, y)
            for x, y in ((-34, -34), (0, -50), (34, -34))
        ),
    ),
    family(
        "elephant",
        curve("main", 22, 62, -10, 84, 20, 80, 62, 96, 70),
        blob("main", -85, 20, -60, -42, 10, -45, 50, 0, 40, 46, -70, 46),
        *(box("main", x, 20, x + 22, 86) for x in (-72, -40, 4, 30)),
        *(box("light", x, 78, x + 22, 86) for x in (-72, -40, 4, 30)),
        oval("main", 48, -16, 36, 38),
        oval("dark", 22, -16, 24, 34),
        eye(58, -24, 7),
        poly("white", 62, 14, 90, 28, 64, 24),
        line("dark", 5, -84, 0, -98, 40),
        spot=(-36, 0, 18),
        saddled=(
            poly("ink", -50, -48, -12, -48, -8, 0, -54, 0),
            poly("white", -44, -42, -18, -42, -16, -32, -46, -32),
        ),
        plumed=tuple(oval("ink", 46 + d, -64, 6, 18, d) for d in (-14, 0, 14)),
    ),
    family(
        "ladybird",
        *mirrored(
            line("ink", 7, -40, 0, -74, -16),
            line("ink", 7, -46, 26, -82, 26),
            line("ink", 7, -40, 50, -70, 70),
        ),
        *mirrored(curve("ink", 5, -12, -56, -22, -76, -40, -82)),
        oval("ink", 0, -44, 32, 24),
        mirrored(*eye(-15, -50, 7)),
        oval("main", 0, 18, 56, 62),
        line("ink", 5, 0, -42, 0, 80),
        mirrored(oval("ink", -28, -6, 11), oval("ink", -30, 36, 12)),
        spot=(0, 16, 15),
        upright=False,
        hearted=(
            oval("white", -8, -4, 11),
            oval("white", 8, -4, 11),
            poly("white", -18, 0, 18, 0, 0, 24),
        ),
        banded=box("white", -52, 8, 52, 22),
    ),
    family(
        "hedgehog",
        star("dark", -12, 12, 84, 17, 0.8),
        star("main", -12, 14, 70, 17, 0.84),
        blob("accent", 26, 60, 22, 0, 52, -4, 94, 38, 60, 66),
        oval("ink", 94, 38, 8),
        eye(58, 22, 8),
        *(oval("accent", x, 80, 15, 10) for x in (-50, -14, 30)),
        spot=(-20, 8, 18),
        appled=(oval("white", -16, -66, 20), line("ink", 5, -16, -84, -8, -98)),
        belted=curve("white", 14, -86, 10, -20, 24, 22, 10),
    ),
    family(
        "owl",
        mirrored(poly("dark", -42, -52, -50, -94, -12, -66)),
        blob("main", 0, -78, 48, -48, 54, 20, 36, 76, 0, 88, -36, 76, -54, 20, -48, -48),
        oval("light", 0, 36, 30, 42),
        mirrored(
            oval("dark", -52, 20, 15, 46, 8), oval("white", -21, -38, 23), oval("ink", -19, -38, 11)
        ),
        poly("accent", -9, -28, 9, -28, 0, -6),
        legs(84, 96, -18, 14),
        spot=(0, 36, 16),
        browed=mirrored(poly("ink", -48, -66, -2, -46, -6, -58, -44, -78)),
        hatted=(box("ink", -40, -80, 40, -72), box("ink", -24, -104, 24, -76)),
    ),
]
