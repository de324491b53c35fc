// What a composed query was made of: the words of the image, and how much each input counted.
import { el, percent } from "./dom.js";

// null if the query has a single input.
export function reasoning({ why = {} }) {
  const { words = [], shares = {} } = why;
  const inputs = Object.entries(shares);
  if (!words.length && !inputs.length) return null;
  const told = inputs.map(([name, share]) => `${name} ${percent(share)}`).join(", ");
  return el("div", { class: "reasoning" },
    inputs.length > 0 && el("div", { class: "shares" }, el("span", { class: "hint" }, "What counted"),
      el("div", { class: "split", role: "img", "aria-label": told }, inputs.map(([name, share]) => sized(
        el("span", { class: `of-${name}`, title: `${name} ${percent(share)}` },
          share >= 0.15 && `${name} ${percent(share)}`), share)))),
    words.length > 0 && el("div", { class: "found" }, el("span", { class: "hint" }, "The image in words"),
      el("ul", {}, words.map(({ word, weight }) => sized(
        el("li", { title: `weight ${weight.toFixed(2)}` }, word, el("span", { class: "number" }, weight.toFixed(2))), weight)))));
}

// The content security policy has no inline styles; properties may be set.
function sized(element, share) {
  element.style.setProperty("--share", share);
  return element;
}
