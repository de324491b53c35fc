"""Where a trained network looks, for two photographs that come with scikit-image: `python examples/first_look.py demo`.

Writes the photographs, then does in Python what `cenote attend demo/photos -o demo/out --size 256` does.
"""

import sys
from pathlib import Path

import skimage.data
from PIL import Image

from cenote.models import create_model
from cenote.show.attend import attend_photos

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
photos = folder / "photos"
photos.mkdir(parents=True, exist_ok=True)
for name in ("chelsea", "coffee"):
    Image.fromarray(getattr(skimage.data, name)()).save(photos / f"{name}.png")

model = create_model("lite0", pretrained=True).eval()  # EfficientNet-Lite0; its weights came with pip
attend_photos(model, [str(photos)], folder / "out", kind="cam", size=256, share=0.6, batch=2)
print(f"Look at {folder / 'out' / 'contact_sheet.jpg'}")
