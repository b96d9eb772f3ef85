"""PNGs of few bytes: screenshots with a palette of the colours that most of their pixels have."""

from __future__ import annotations

import base64
import struct
import zlib
from collections import Counter

from tests.cpaas_sandbox.page.browser import Browser

LARGEST = 80_000
"""The most bytes of a picture of README and the documentation."""

COLOURS, UNLIKE = 256, 48
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DECODE = """
const [picture, done] = arguments;
const image = new Image();
image.src = "data:image/png;base64," + picture;
image.decode().then(() => {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [image.width, image.height];
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  const reader = new FileReader();
  reader.onload = () => done([image.width, image.height, reader.result.split(",")[1]]);
  reader.readAsDataURL(new Blob([bytes]));
});
"""


def reduce_colours(browser: Browser, picture: bytes) -> bytes:
    """Return a PNG with a palette. A rare colour becomes the one most like it."""
    browser.open("about:blank")
    arguments = [base64.b64encode(picture).decode()]
    width, height, pixels = browser.ask("POST", "execute/async", {"script": _DECODE, "args": arguments})
    return write_png(width, height, base64.b64decode(pixels))


def write_png(width: int, height: int, pixels: bytes) -> bytes:
    """Return a PNG with a palette.

    :param pixels: four bytes each: red, green, blue, and an opacity that is left out
    """
    colours = [pixels[start : start + 3] for start in range(0, len(pixels), 4)]
    number_of = Counter(colours)
    palette: list[bytes] = []
    for colour, _ in number_of.most_common():
        # A shadow has many colours that nobody can tell apart.
        if len(palette) < COLOURS and all(_difference(colour, other) > UNLIKE for other in palette):
            palette.append(colour)
    index_of = {colour: index for index, colour in enumerate(palette)}
    for colour in number_of.keys() - index_of.keys():
        index_of[colour] = min(range(len(palette)), key=lambda index: _difference(palette[index], colour))
    indexes = bytes(map(index_of.__getitem__, colours))
    # Each row begins with its filter: none.
    rows = b"".join(b"\0" + indexes[start : start + width] for start in range(0, len(indexes), width))
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0),
        b"PLTE": b"".join(palette),
        b"IDAT": zlib.compress(rows, 9),
        b"IEND": b"",
    }
    return _SIGNATURE + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    )


def _difference(colour: bytes, other: bytes) -> int:
    return sum((ours - theirs) ** 2 for ours, theirs in zip(colour, other, strict=True))
