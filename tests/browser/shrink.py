"""Shrink: a screenshot as a PNG with a palette, a third of its size. The page has few colours, and the edges of its
letters need no shade of their own. The browser reads the pixels; what it sends back is written here.

Used by pictures.py. Not a general tool: no transparency, at most COLOURS colours.
"""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Final

from playwright.sync_api import Page

COLOURS: Final = 256
# Colours that differ by so little, in squares of steps of red, green and blue, are one: about what eyes tell apart.
ALIKE: Final = 40
READ: Final = """
async ([png, colours, alike]) => {
  const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + png)).blob());
  const { width, height } = bitmap;
  const canvas = new OffscreenCanvas(width, height).getContext("2d");
  canvas.drawImage(bitmap, 0, 0);
  const { data } = canvas.getImageData(0, 0, width, height);
  const counts = new Map();
  const colourAt = (i) => (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
  for (let i = 0; i < data.length; i += 4) counts.set(colourAt(i), (counts.get(colourAt(i)) ?? 0) + 1);
  const far = (a, b) => [16, 8, 0].reduce((sum, bit) => sum + (((a >> bit) & 255) - ((b >> bit) & 255)) ** 2, 0);
  const often = [...counts].sort((a, b) => b[1] - a[1]).map(([colour]) => colour);
  const palette = [];
  for (const colour of often) {
    if (palette.length < colours && !palette.some((other) => far(colour, other) < alike)) palette.push(colour);
  }
  const nearest = (colour) =>
    palette.reduce((best, one, i) => (far(one, colour) < far(palette[best], colour) ? i : best), 0);
  const places = new Map(often.map((colour) => [colour, nearest(colour)]));
  let text = "";
  for (let i = 0; i < data.length; i += 4) text += String.fromCharCode(places.get(colourAt(i)));
  return { width, height, palette, pixels: btoa(text) };
}
"""


def shrink(blank: Page, file: Path) -> None:
    """The picture in its place, smaller. `blank`: a page of no site, where no policy forbids reading."""
    png = base64.b64encode(file.read_bytes()).decode()
    seen = blank.evaluate(READ, [png, COLOURS, ALIKE])
    width, height, pixels = seen["width"], seen["height"], base64.b64decode(seen["pixels"])
    rows = b"".join(b"\0" + pixels[i : i + width] for i in range(0, width * height, width))
    palette = b"".join(struct.pack(">I", colour)[1:] for colour in seen["palette"])
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)  # eight bits, by palette
    parts = [(b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts))


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
