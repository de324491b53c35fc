"""Things that lie about and mean nothing, with the pieces, colours and textures of the classes."""

from .pieces import box, eye, leaf, wheel, window
from .shape import Shape, blob, line, oval, poly, star

DISTRACTORS = [
    Shape("ball", (oval("main", 0, 0, 90), oval("light", -34, -36, 22, 16, -40))),
    Shape(
        "crate",
        (
            box("main", -80, -80, 80, 80),
            box("dark", -80, -80, 80, -60),
            box("dark", -80, 60, 80, 80),
            line("dark", 16, -70, 70, 70, -70),
        ),
    ),
    Shape("stone", (blob("main", -90, 40, -70, -20, -10, -56, 60, -30, 92, 40, 0, 60),)),
    Shape("tyre", wheel(0, 0, 90)),
    Shape(
        "cone",
        (
            poly("main", 0, -96, 52, 70, -52, 70),
            poly("white", -17, -40, 17, -40, 27, -8, -27, -8),
            box("dark", -80, 66, 80, 86),
        ),
    ),
    Shape(
        "kite",
        (
            poly("main", 0, -96, 66, -20, 0, 90, -66, -20),
            line("ink", 5, 0, -96, 0, 90),
            line("ink", 5, -66, -20, 66, -20),
        ),
    ),
    Shape(
        "sign",
        (box("accent", -7, 0, 7, 96), poly("main", -80, -80, 50, -80, 92, -44, 50, -8, -80, -8)),
    ),
    Shape("star", (star("main", 0, 0, 96),)),
    Shape(
        "sprig",
        (
            line("accent", 8, 0, 96, 0, -60),
            *leaf(28, -20, 34, -35),
            *leaf(-28, 10, 34, 215),
            *leaf(0, -70, 28, 90, "main"),
        ),
    ),
    Shape(
        "jar",
        (
            blob("main", -60, -30, -40, -60, 40, -60, 60, -30, 60, 80, -60, 80),
            box("accent", -44, -90, 44, -60),
        ),
    ),
    Shape(
        "mask",
        (
            blob("main", -90, -20, 0, -40, 90, -20, 60, 40, 0, 16, -60, 40),
            *eye(-42, -2, 17),
            *eye(42, -2, 17),
        ),
    ),
    Shape(
        "pane",
        (
            box("main", -84, -84, 84, 84),
            *window(-70, -70, -8, -8),
            *window(8, -70, 70, -8),
            *window(-70, 8, -8, 70),
            *window(8, 8, 70, 70),
        ),
    ),
]
