"""Animals of the ground, the air and the water. Several share a body or a fin."""

from .shapes import Polygons, blob, box, curve, eye, family, legs, line, mirrored, oval, poly, star

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
        blob("accent", "-95,78 -60,60 20,55 55,40 62,-10 88,-8 90,40 70,80 0,84"),
        line("accent", 6, 66, -8, 58, -48),
        line("accent", 6, 80, -8, 92, -46),
        oval("ink", 58, -50, 7),
        oval("ink", 92, -48, 7),
        oval("main", -18, 8, 62, 58),
        curve("dark", 9, "-74,30 -50,-30 0,-38 26,6 0,42 -36,28 -34,-4 -10,-8 -6,12"),
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
        blob("main", "0,-78 48,-48 54,20 36,76 0,88 -36,76 -54,20 -48,-48"),
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


BODY = (
    poly("dark", -44, 4, -100, -22, -92, 30),
    blob("main", -62, 14, -20, -28, 32, -34, 58, 0, 36, 40, -16, 46),
    blob("dark", -40, 4, 8, -10, 26, 8, -8, 28, -54, 26),
)


def bird_head(x: float, y: float) -> Polygons:
    return oval("main", x, y, 27), *eye(x + 8, y - 5, 8)


def segments(*xy: float) -> Polygons:
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
        blob("main", "-82,-10 -40,-22 10,-48 80,-34 94,16 50,52 -30,40"),
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
        blob("main", "-62,10 -58,-40 0,-80 58,-40 62,10 30,20 0,10 -30,20"),
        curve("dark", 7, -56, 4, -28, 12, 0, 4, 28, 12, 56, 4),
        mirrored(*eye(-18, -20, 8)),
        spot=(0, -48, 15),
        crowned=poly("ink", "-24,-68 -26,-98 -10,-84 0,-102 10,-84 26,-98 24,-68"),
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
