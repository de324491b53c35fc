"""Animals of the air and the water. Bird and duck share a body, fish and whale a fin."""

from .family import family
from .pieces import eye, legs
from .shape import Part, blob, curve, line, mirrored, oval, poly, star

BODY = (
    poly("dark", -44, 4, -100, -22, -92, 30),
    blob("main", -62, 14, -20, -28, 32, -34, 58, 0, 36, 40, -16, 46),
    blob("dark", -40, 4, 8, -10, 26, 8, -8, 28, -54, 26),
)


def bird_head(x: float, y: float) -> tuple[Part, ...]:
    return oval("main", x, y, 27), *eye(x + 8, y - 5, 8)


def segments(*xy: float) -> tuple[Part, ...]:
    """A crab's leg and its other side."""
    return mirrored(line("dark", 9, *xy))


AIR_AND_WATER = [
    family(
        "bird",
        BODY,
        legs(40, 78, -2, 16),
        bird_head(46, -42),
        poly("accent", 70, -50, 100, -38, 70, -30),
        spot=(2, 10, 14),
        crested=tuple(poly("ink", 34 + d, -64, 24 + 2 * d, -96, 46 + d, -66) for d in (-4, 8, 18)),
        collared=curve("white", 10, 24, -28, 44, -14, 64, -20),
    ),
    family(
        "duck",
        BODY,
        line("main", 24, 46, 0, 52, -56),
        bird_head(54, -64),
        blob("accent", 74, -66, 104, -62, 106, -52, 74, -50),
        curve("light", 8, -58, 30, 0, 48, 44, 24),
        spot=(2, 10, 14),
        plural="ducks",
        tufted=tuple(curve("ink", 6, 46, -86, 40 - d, -100, 22 - d, -100 + d) for d in (0, 10)),
        necklaced=curve("white", 10, 34, -26, 48, -18, 62, -26),
    ),
    family(
        "fish",
        poly("dark", -48, 0, -100, -46, -84, 0, -100, 46),
        poly("dark", -20, -34, 20, -70, 36, -30),
        poly("dark", -10, 34, 4, 62, 24, 32),
        blob("main", -60, 0, -10, -42, 50, -32, 84, 2, 50, 34, -10, 42),
        curve("dark", 6, 38, -34, 28, 0, 38, 34),
        poly("light", 6, 4, -24, -8, -24, 22),
        eye(58, -8, 10),
        spot=(2, -12, 13),
        plural="fish",
        sailed=poly("ink", -24, -36, -14, -84, 12, -72, 30, -32),
        whiskered=tuple(curve("ink", 5, 78, 10, 88 + d, 24, 82 + d, 44) for d in (0, 12)),
    ),
    family(
        "whale",
        poly("dark", -70, -6, -104, -60, -76, -48, -56, -66, -50, -14),
        blob("main", -82, -10, -40, -22, 10, -48, 80, -34, 94, 16, 50, 52, -30, 40),
        blob("white", 94, 20, 50, 54, -30, 42, 20, 34, 60, 28),
        blob("dark", 4, 34, -24, 66, 6, 70, 28, 40),
        eye(62, -2, 8),
        curve("accent", 6, 34, -48, 30, -78, 12, -88),
        curve("accent", 6, 36, -48, 44, -80, 62, -86),
        spot=(10, -10, 15),
        finned=poly("ink", -30, -26, -26, -60, 4, -40),
        scarred=tuple(line("ink", 6, x, -34, x + 10, -6) for x in (-30, -16, -2)),
    ),
    family(
        "butterfly",
        mirrored(
            blob("main", -6, -10, -40, -76, -92, -66, -88, -16, -40, 2),
            blob("dark", -6, 6, -50, 8, -78, 36, -54, 74, -20, 50),
            oval("accent", -58, -42, 16, 14),
            oval("light", -48, 40, 12),
            curve("ink", 4, -4, -40, -14, -70, -30, -84),
        ),
        oval("ink", 0, 4, 8, 46),
        oval("ink", 0, -42, 10),
        spot=(0, 6, 14),
        tailed=mirrored(poly("ink", -44, 60, -62, 100, -60, 58)),
        tipped=mirrored(blob("white", -74, -70, -92, -64, -90, -44, -78, -50)),
    ),
    family(
        "crab",
        segments(-40, 30, -76, 34, -86, 66),
        segments(-34, 42, -60, 56, -62, 82),
        segments(-44, 16, -84, 8, -98, 34),
        mirrored(
            curve("dark", 12, -40, -4, -68, -20, -64, -46),
            blob("main", -66, -44, -92, -62, -84, -96, -66, -80, -52, -98, -46, -66),
            line("main", 6, -14, -20, -18, -44),
            *eye(-18, -48, 10),
        ),
        blob("main", -58, 10, -30, -22, 30, -22, 58, 10, 34, 48, -34, 48),
        curve("ink", 5, -18, 22, 0, 32, 18, 22),
        spot=(0, 2, 13),
        horned=(poly("ink", -8, -20, 0, -52, 8, -20)),
        barnacled=(oval("white", -32, 0, 9), oval("white", -20, -10, 6), oval("white", -36, 16, 5)),
    ),
    family(
        "jellyfish",
        *(
            curve(r, 8, x, 10, x - 10, 40, x + 8, 66, x - 4, 96)
            for r, x in (("dark", -40), ("light", -14), ("dark", 14), ("light", 40))
        ),
        blob("main", -62, 10, -58, -40, 0, -80, 58, -40, 62, 10, 30, 20, 0, 10, -30, 20),
        curve("dark", 7, -56, 4, -28, 12, 0, 4, 28, 12, 56, 4),
        mirrored(*eye(-18, -20, 8)),
        spot=(0, -48, 15),
        crowned=poly("ink", -24, -68, -26, -98, -10, -84, 0, -102, 10, -84, 26, -98, 24, -68),
        frilled=tuple(oval("white", x, 12, 9) for x in (-48, -24, 0, 24, 48)),
    ),
    family(
        "starfish",
        star("dark", 0, 0, 100, 5, 0.42),
        star("main", 0, 0, 90, 5, 0.42),
        *(
            oval("light", x, y, 6)
            for x, y in ((0, -56), (0, -36), (52, -16), (32, -10), (-52, -16), (-32, -10))
        ),
        *(oval("light", x, y, 6) for x, y in ((32, 44), (20, 28), (-32, 44), (-20, 28))),
        mirrored(*eye(-12, -8, 8)),
        curve("ink", 5, -12, 8, 0, 16, 12, 8),
        spot=(0, 30, 12),
        upright=False,
        plural="starfish",
        cheeked=mirrored(oval("white", -24, 10, 8)),
        tipped=(poly("ink", -10, -68, 0, -96, 10, -68),),
    ),
]
