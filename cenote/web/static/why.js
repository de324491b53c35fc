// The server's reasons as sentences; what is not known here is told as it is.
import { counted, el, percent } from "./dom.js";
import { entryPicture } from "./photos.js";

const KNOWN = ["terms", "words", "proxies", "weight", "text", "image", "sentences", "unknown"];

// Texts, or lists of texts and elements: for el(..., reason).
export function why({ method, why: told = {} }, wanted) {
  const terms = told.terms ?? [];
  const list = (items) => items.map((item) => `“${item}”`).join(", ");
  const plus = list(terms.filter(({ weight }) => weight > 0).map(({ text, weight }) => termOf(text, weight)));
  const minus = list(terms.filter(({ weight }) => weight < 0).map(({ text, weight }) => termOf(text, -weight)));
  const image = Boolean(wanted.photo || wanted.entry);
  const said = [];
  if (image && !terms.length) said.push("Nearest to the image's own vector: the score is the cosine of the two.");
  if (!image && plus) said.push(`Nearest to the vector of the text ${plus}: the score is the cosine of the two.`);
  if (image && plus) said.push(`Like the image, and as the text says: ${plus}.`);
  if (minus) said.push(`Away from ${minus}.`);
  if (told.unknown?.length) said.push(`The model has never read ${list(told.unknown)}: what it finds for that is a guess.`);
  if (told.words?.length) {
    const named = told.words.map(({ word, weight }) => `${word} (${weight.toFixed(2)})`).join(", ");
    said.push(`The image was put into words first: ${named}. Each was joined with the text.`);
  }
  if (told.proxies?.length) {
    const many = counted(told.proxies.length, "image");
    said.push([`The words were read off the image and the ${many} most like it:`, near(told.proxies)]);
  }
  if (typeof told.weight === "number") {
    said.push(`The text counts ${percent(told.weight)}, the image ${percent(1 - told.weight)}, ` +
      "after both similarities were brought to one scale.");
  }
  for (const side of ["text", "image"]) {
    const { mean, deviation } = told[side] ?? {};
    if (typeof mean === "number") {
      said.push(`Similarity to the ${side} is ${mean.toFixed(3)} ± ${deviation.toFixed(3)} over all images; ` +
        "what lies far above counts.");
    }
  }
  if (told.sentences?.length) said.push(`The image became a made-up word $ in ${list(told.sentences)}.`);
  const rest = Object.entries(told).filter(([name]) => !KNOWN.includes(name));
  const details = rest.map(([name, value]) => `${name} ${plain(value)}`).join(", ");
  return [...said, `Method: ${method}${details && ` (${details})`}.`];
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
