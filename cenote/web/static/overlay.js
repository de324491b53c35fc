// Draw a photograph with its map, outline, boxes and selected patch on a canvas.
import { largestBox, outline } from "./maps.js";

// Nine colours of matplotlib's inferno, as in the pictures of `cenote attend`.
const INFERNO = [
  [0, 0, 4], [27, 12, 66], [75, 12, 107], [120, 28, 109], [165, 44, 96], [207, 68, 70], [237, 105, 37], [251, 155, 6],
  [252, 255, 164],
];
const AMBER = "#ffc400";
const RIM = "rgba(0, 0, 0, 0.75)";

export const VIEW = { style: "heat", opacity: 0.65, mask: true, box: true, threshold: null, patch: null };

function ramp(share) {
  const at = Math.min(Math.max(share, 0), 1) * (INFERNO.length - 1);
  const low = Math.min(Math.floor(at), INFERNO.length - 2);
  return INFERNO[low].map((value, i) => value + (at - low) * (INFERNO[low + 1][i] - value));
}

// Small canvases, created once for each map; the browser scales them smoothly.
const layers = new WeakMap();

function layer({ side, values }, style, key) {
  const kept = layers.get(key) ?? {};
  if (!kept[style]) {
    const pixels = new ImageData(side, side);
    values.forEach((value, i) => {
      const share = value / 255;
      // Heat: the higher the score, the brighter and the less transparent. Light: low scores are darkened.
      const [r, g, b] = style === "heat" ? ramp(share) : [2, 18, 24];
      const alpha = style === "heat" ? 0.4 + 0.6 * share : 1 - Math.min(1, share * 1.25);
      pixels.data.set([r, g, b, Math.round(255 * alpha)], 4 * i);
    });
    const small = document.createElement("canvas");
    small.width = small.height = side;
    small.getContext("2d").putImageData(pixels, 0, 0);
    kept[style] = small;
    layers.set(key, kept);
  }
  return kept[style];
}

// `look` is an answer of /api/look, or null: the photograph alone.
export function draw(canvas, image, look, view, { from = 0, to = 1, clear = true } = {}) {
  const { width, height } = canvas;
  const pen = canvas.getContext("2d");
  pen.save();
  if (clear) pen.clearRect(0, 0, width, height);
  pen.beginPath();
  pen.rect(from * width, 0, (to - from) * width, height);
  pen.clip();
  pen.imageSmoothingQuality = "high";
  pen.drawImage(image, 0, 0, width, height);
  if (look) {
    if (view.style !== "off") {
      pen.globalAlpha = view.opacity;
      pen.drawImage(layer(look.scores, view.style, look.scores), 0, 0, width, height);
      pen.globalAlpha = 1;
    }
    const threshold = view.threshold ?? startThreshold(look);
    if (view.mask) drawOutline(pen, look.scores, threshold, width, height);
    if (view.box) boxesOf(look, view).forEach((box) => isWhole(box) || drawBox(pen, box, width, height));
    if (view.patch) drawPatch(pen, look.map, view.patch, width, height);
  }
  pen.restore();
}

// Relative boxes: the server's if they are of this threshold, else computed from the small score map.
export function boxesOf(look, view) {
  const threshold = view.threshold ?? startThreshold(look);
  if (Math.abs(threshold - look.threshold.value) < 1e-6) {
    return look.boxes.map(({ x0, y0, x1, y1 }) => ({
      x0: x0 / look.width, y0: y0 / look.height, x1: x1 / look.width, y1: y1 / look.height,
    }));
  }
  const box = largestBox(look.scores, threshold);
  return box ? [box] : [];
}

// A box around the whole image is not drawn.
export const isWhole = ({ x0, y0, x1, y1 }) => (x1 - x0) * (y1 - y0) > 0.97;

// The initial threshold is the model's. A default at which the box covers the whole image is raised until
// the box is smaller.
export function startThreshold({ threshold: { value, default: isDefault }, scores, boxes, width, height }) {
  const whole = boxes.some((b) => isWhole({ x0: b.x0 / width, x1: b.x1 / width, y0: b.y0 / height, y1: b.y1 / height }));
  if (!isDefault || !whole) return value;
  if (!raised.has(scores)) {
    const steps = Array.from({ length: 19 }, (_, i) => (i + 1) / 20).filter((step) => step > value);
    raised.set(scores, steps.find((step) => !isWhole(largestBox(scores, step))) ?? value);
  }
  return raised.get(scores);
}
const raised = new WeakMap(); // scores -> threshold

const line = (width) => 2 + width / 500; // a small canvas is scaled down

function drawOutline(pen, scores, threshold, width, height) {
  pen.beginPath();
  for (const [x0, y0, x1, y1] of outline(scores, threshold)) {
    pen.moveTo(x0 * width, y0 * height);
    pen.lineTo(x1 * width, y1 * height);
  }
  pen.lineCap = "round";
  pen.strokeStyle = RIM;
  pen.lineWidth = line(width) + 2;
  pen.stroke();
  pen.strokeStyle = "#eafcf9";
  pen.lineWidth = line(width);
  pen.stroke();
}

function drawBox(pen, { x0, y0, x1, y1 }, width, height) {
  const thick = line(width) * 1.4;
  const inset = thick / 2 + 1; // keep the lines of a large box inside the image
  const [x, y] = [Math.max(x0 * width, inset), Math.max(y0 * height, inset)];
  const [w, h] = [Math.min(x1 * width, width - inset) - x, Math.min(y1 * height, height - inset) - y];
  pen.strokeStyle = RIM;
  pen.lineWidth = thick + 2;
  pen.strokeRect(x, y, w, h);
  pen.strokeStyle = AMBER;
  pen.lineWidth = thick;
  pen.strokeRect(x, y, w, h);
}

function drawPatch(pen, { rows, columns }, [row, column], width, height) {
  const [w, h] = [width / columns, height / rows];
  pen.lineWidth = 4;
  pen.strokeStyle = RIM;
  pen.strokeRect(column * w, row * h, w, h);
  pen.lineWidth = 2;
  pen.strokeStyle = "#ffffff";
  pen.strokeRect(column * w, row * h, w, h);
}

const LONGEST = 8; // maximum aspect ratio: longer images are stretched

// A fixed longer side, so that lines are equally sharp on small and on large photographs.
export function fit(canvas, { naturalWidth: width, naturalHeight: height }, longer) {
  const scale = longer / Math.max(width, height);
  canvas.width = Math.round(Math.max(width * scale, longer / LONGEST));
  canvas.height = Math.round(Math.max(height * scale, longer / LONGEST));
}
export const isStretched = ({ width, height }) => Math.max(width, height) > LONGEST * Math.min(width, height);
