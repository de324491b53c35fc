"""Scenes under an open sky."""

from .plate import Plate, shade

TRUNK = (104, 78, 60)


def meadow(p: Plate) -> None:
    sky, d = 0.5 + p.dice.between(-0.08, 0.1), p.dice
    p.fade((126, 184, 232), (222, 238, 244), 0, sky)
    p.oval((255, 244, 200), d.between(0.1, 0.9), d.between(0.06, 0.2), 0.06)
    p.clouds((248, 250, 252))
    p.hills((142, 184, 128), sky, 0.12)
    for x, y, s in p.places(p.props // 2, sky, sky + 0.1):
        p.round_tree((92, 148, 84), TRUNK, x, y, 0.12 + 0.1 * s)
    p.fade((150, 196, 104), (96, 156, 74), sky + 0.04, 1)
    p.hills((128, 184, 92), sky + 0.16, 0.08)
    p.dots([(250, 236, 130), (250, 250, 246), (236, 150, 170)], p.props * 4, sky + 0.18, 1, 0.012)
    for x, y, s in p.places(p.props * 3, sky + 0.2, 1):
        p.line((74, 132, 62), 0.006, x, y, x + 0.01, y - 0.03 - 0.03 * s)


def sea(p: Plate) -> None:
    level, d = horizon(p, 0.42), p.dice
    p.fade((112, 178, 226), (234, 240, 236), 0, level)
    p.clouds((250, 250, 250))
    p.peaks((150, 176, 190), None, level, 0.06, 3)
    p.fade((60, 134, 178), (34, 104, 150), level, 1)
    for x, y, s in p.places(p.props * 5, level + 0.02, 0.84):
        w = 0.03 + 0.07 * s
        p.poly((124, 186, 212), x - w, y, x, y - 0.008, x + w, y, x, y + 0.006)
    shore = d.between(0.86, 0.94)
    p.hills((238, 244, 240), shore - 0.01, 0.04, 3)
    p.hills((234, 214, 168), shore + 0.03, 0.03, 3)
    p.dots([(214, 188, 140), (246, 232, 200)], p.props * 2, shore + 0.04, 1, 0.01)


def horizon(p: Plate, middle: float) -> float:
    """A horizon near the given height."""
    return middle + p.dice.between(-0.08, 0.08)


def desert(p: Plate) -> None:
    level, d = horizon(p, 0.5), p.dice
    p.fade((244, 176, 120), (252, 226, 178), 0, level)
    p.oval((255, 240, 196), d.between(0.15, 0.85), level - d.between(0.1, 0.3), 0.08)
    p.poly((196, 120, 86), 0, level, 0.0, level - 0.12, 0.2, level - 0.12, 0.26, level)
    p.poly((206, 130, 92), 0.66, level, 0.7, level - 0.1, 0.92, level - 0.1, 1, level)
    p.fade((232, 180, 112), (214, 152, 88), level, 1)
    for k, tone in enumerate((0, -12, 8)):
        p.hills(shade((232, 178, 108), tone), level + 0.14 + 0.16 * k, 0.12, 3)
    for x, y, s in p.places(p.props, level + 0.05, 0.98):
        p.oval((164, 112, 80), x, y, 0.016 + 0.02 * s, 0.01 + 0.012 * s)
        p.line((120, 128, 76), 0.008, x + 0.06, y, x + 0.06, y - 0.04 - 0.04 * s)


def forest(p: Plate) -> None:
    d = p.dice
    p.fade((176, 206, 170), (84, 124, 84), 0, 0.8)
    for tone, low in (((128, 164, 122), 0.62), ((88, 132, 92), 0.7), ((58, 104, 74), 0.78)):
        for k in range(4 + p.props // 2):
            p.fir(
                tone,
                TRUNK,
                (k + d.random()) / (4 + p.props // 2),
                low + d.between(-0.03, 0.03),
                d.between(0.4, 0.62),
            )
    p.fade((92, 116, 66), (62, 84, 50), 0.76, 1)
    p.hills((86, 112, 62), 0.82, 0.05)
    for x, y, s in p.places(p.props * 2, 0.82, 1):
        p.line((124, 154, 84), 0.008, x, y, x - 0.03, y - 0.04 - 0.04 * s)
        p.line((124, 154, 84), 0.008, x, y, x + 0.03, y - 0.04 - 0.04 * s)


def snow(p: Plate) -> None:
    level = horizon(p, 0.52)
    p.fade((156, 184, 214), (232, 238, 246), 0, level)
    p.peaks((132, 150, 178), (244, 248, 252), level + 0.02, 0.34, 4)
    p.fade((240, 244, 250), (204, 218, 236), level, 1)
    p.hills((232, 240, 248), level + 0.12, 0.1)
    for x, y, s in p.places(p.props, level + 0.04, 0.9):
        p.fir((84, 122, 118), TRUNK, x, y, 0.12 + 0.2 * s)
    p.hills((248, 250, 253), 0.92, 0.08, 3)
    p.dots([(255, 255, 255)], p.props * 5, 0, 1, 0.008)


def night(p: Plate) -> None:
    level, d = horizon(p, 0.66), p.dice
    p.fade((22, 26, 62), (72, 74, 128), 0, level + 0.1)
    p.dots([(250, 246, 220), (190, 204, 250)], p.props * 6, 0, level - 0.05, 0.006)
    x, y = d.between(0.12, 0.88), d.between(0.1, 0.24)
    p.oval((250, 244, 210), x, y, 0.08)
    p.oval((34, 38, 78), x + 0.035, y - 0.015, 0.07)
    p.peaks((48, 50, 98), None, level + 0.03, 0.22, 4)
    p.hills((36, 48, 78), level + 0.06, 0.12)
    for x, y, s in p.places(p.props, level + 0.05, level + 0.14):
        p.fir((26, 40, 62), (26, 30, 50), x, y, 0.12 + 0.16 * s)
    p.hills((28, 44, 62), level + 0.16, 0.06)
    p.dots([(250, 226, 130)], p.props, level + 0.1, 1, 0.008)


def farmland(p: Plate) -> None:
    level, d = horizon(p, 0.46), p.dice
    p.fade((184, 206, 220), (250, 234, 204), 0, level)
    p.clouds((254, 246, 234))
    p.hills((176, 164, 110), level, 0.1)
    for x, y, s in p.places(p.props // 2 + 1, level, level + 0.03):
        p.round_tree((198, 116, 60), TRUNK, x, y, 0.14 + 0.08 * s)
    p.box((222, 184, 92), 0, level + 0.02, 1, 1)
    middle = d.between(0.3, 0.7)
    for k in range(-6, 7):
        foot = middle + k * 0.19
        p.poly(
            (196, 152, 72),
            middle + k * 0.035,
            level + 0.02,
            foot,
            1,
            foot + 0.08,
            1,
            middle + k * 0.035 + 0.012,
            level + 0.02,
        )
    for x, y, s in p.places(p.props, level + 0.12, 0.96):
        p.oval((236, 206, 120), x, y, 0.03 + 0.04 * s, 0.024 + 0.03 * s)
        p.oval((208, 168, 88), x, y, 0.015 + 0.02 * s, 0.012 + 0.015 * s)


def volcano(p: Plate) -> None:
    level, d = horizon(p, 0.62), p.dice
    p.fade((96, 60, 76), (232, 140, 92), 0, level)
    x = d.between(0.25, 0.75)
    for k in range(3 + p.props // 3):
        p.oval(
            shade((112, 88, 96), 9 * k),
            x + 0.05 * k + d.between(-0.03, 0.03),
            0.2 - 0.03 * k,
            0.06 + 0.012 * k,
            0.05,
        )
    p.poly(
        (86, 62, 66), x - 0.42, level + 0.03, x - 0.07, 0.24, x + 0.07, 0.24, x + 0.42, level + 0.03
    )
    p.poly((246, 150, 62), x - 0.07, 0.24, x + 0.07, 0.24, x + 0.03, 0.4, x, 0.32, x - 0.03, 0.46)
    p.fade((84, 66, 68), (54, 44, 50), level, 1)
    for x, y, s in p.places(p.props, level + 0.05, 0.97):
        w = 0.05 + 0.07 * s
        p.poly((250, 158, 66), x - w, y, x - w / 3, y - 0.014, x + w, y + 0.006, x, y + 0.016)
        p.poly((112, 90, 90), x + w, y, x + w * 1.3, y - w * 0.7, x + w * 1.8, y)


COUNTRY = {
    "meadow": ("in a meadow", meadow),
    "sea": ("over a calm sea", sea),
    "desert": ("in the desert", desert),
    "forest": ("in a forest", forest),
    "snow": ("in the snow", snow),
    "night": ("under a night sky", night),
    "farmland": ("on farmland in autumn", farmland),
    "volcano": ("near a volcano", volcano),
}
