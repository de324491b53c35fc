"""How and where things are shown: what BASIC takes out of an image, as against what they are."""

_LOOKS = """
    photograph, black and white photograph, old photograph, blurry photograph, painting, oil painting, watercolour,
    drawing, pencil sketch, charcoal drawing, cartoon, comic, clip art, line art, silhouette, engraving, woodcut,
    poster, graffiti, mosaic, stained glass, embroidery, tattoo, sculpture, origami, toy, plush toy, plastic figure,
    paper cut-out, video game, pixel art, computer graphics, icon, logo, diagram, blueprint, neon sign, mural
"""
_STATES = """
    old, new, broken, ruined, dusty, rusty, wet, frozen, burnt, painted, wooden, metallic, golden, made of glass,
    made of stone, made of paper, knitted, transparent, colourful, grey, red, green, blue, yellow, white, black
"""
_LIGHT = """
    at night, at sunset, at dawn, in bright sunlight, in dim light, in fog, in the rain, in the snow, under water,
    in autumn, in winter, in spring, in summer, under a cloudy sky, in candlelight, against the light, in shadow
"""
_PLACES = """
    on grass, on rocks, on sand, on a table, on a wall, on the street, on a white background, on a plate, on a shelf,
    in water, in the sky, in a forest, in a field, in the desert, in the mountains, on a beach, by the sea, in a city,
    in a room, in a kitchen, in a garden, in a museum, in a shop, in a cage, in a box, in space, outdoors, indoors
"""
_VIEWS = """
    close-up, seen from above, seen from below, seen from the side, seen from far away, partly hidden, upside down,
    a crowd of them, two of them, many of them, one of them, with people, without people, held in a hand
"""
STYLES = [
    " ".join(name.split())
    for part in (_LOOKS, _STATES, _LIGHT, _PLACES, _VIEWS)
    for name in part.split(",")
]
