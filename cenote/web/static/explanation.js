// Describe how results were ranked; unknown details are listed as they are.
import { counted, el, percent } from "./dom.js";
import { entryPicture } from "./photos.js";

const KNOWN = [
  "terms", "words", "proxies", "weight", "text", "image", "sentences", "matches", "shares", "examples",
  "nearest",
];

// Return texts, or lists of texts and elements, for el(..., reason).
export function explain({ method, why: details = {} }, query) {
  const terms = details.terms ?? [];
  const list = (items) => items.map((item) => `“${item}”`).join(", ");
  const plus = list(terms.filter(({ weight }) => weight > 0).map(({ text, weight }) => termOf(text, weight)));
  const minus = list(terms.filter(({ weight }) => weight < 0).map(({ text, weight }) => termOf(text, -weight)));
  const image = Boolean(query.photo || query.entry);
  const reasons = [];
  if (image && !terms.length) reasons.push("Ranked by the cosine similarity to the image's vector.");
  const words = details.matches ? "stored words and by " : "";
  if (!image && plus) reasons.push(`Ranked by ${words}the cosine similarity to the vector of the text ${plus}.`);
  if (details.matches) {
    const fields = Object.entries(details.matches).map(([field, images]) => `${field} of ${counted(images, "image")}`);
    const where = fields.length ? `The words occur in the ${fields.join(", in the ")}.` : "";
    if (where) reasons.push(where);
  }
  if (method === "text" && plus && !details.examples) {
    reasons.push("The score is the estimated share of right images at that score.");
  }
  if (details.nearest) reasons.push(`The nearest names that the model knows: ${details.nearest.join(", ")}.`);
  if (image && plus) reasons.push(`Similar to the image, modified by the text ${plus}.`);
  if (minus) reasons.push(`Excluded: ${minus}.`);
  if (details.examples) {
    const { like, unlike } = details.examples;
    const towards = like ? `towards ${counted(like, "image")} that you like` : "";
    const away = unlike ? `away from ${counted(unlike, "image")} that you do not like` : "";
    reasons.push(`Moved ${[towards, away].filter(Boolean).join(", and ")}.`);
  }
  if (details.words?.length) {
    const named = details.words.map(({ word, weight }) => `${word} (${weight.toFixed(2)})`).join(", ");
    reasons.push(`The image was translated into words: ${named}. Each was combined with the text.`);
  }
  if (details.proxies?.length) {
    const many = counted(details.proxies.length, "image");
    reasons.push([`The words describe the image and the nearest ${many} of the index:`, near(details.proxies)]);
  }
  if (typeof details.weight === "number") {
    reasons.push(`Weights: text ${percent(details.weight)}, image ${percent(1 - details.weight)}, ` +
      "of normalized similarities.");
  }
  for (const side of ["text", "image"]) {
    const { mean, deviation } = details[side] ?? {};
    if (typeof mean === "number") {
      reasons.push(`The similarity to the ${side} is ${mean.toFixed(3)} ± ${deviation.toFixed(3)} over all images.`);
    }
  }
  if (details.sentences?.length) reasons.push(`The image became a pseudo-word $ in ${list(details.sentences)}.`);
  const others = Object.entries(details).filter(([name]) => !KNOWN.includes(name));
  const text = others.map(([name, value]) => `${name} ${plain(value)}`).join(", ");
  return [...reasons, `Method: ${method}${text && ` (${text})`}.`];
}

const near = (proxies) => el("ul", { class: "near" }, proxies.slice(0, 12).map(({ entry, name }) =>
  el("li", {}, el("img", { src: entryPicture(entry, 96), alt: name, title: name }))));

const termOf = (text, weight) => (weight === 1 ? text : `${text} × ${weight}`);

function plain(value) {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : value.toPrecision(3);
  if (value && typeof value === "object") {
    return Object.entries(value).map(([name, one]) => `${name} ${plain(one)}`).join(", ");
  }
  return String(value);
}
