// A card with a photograph, its map and box, and the predicted class.
import { bestClass, el } from "./dom.js";
import { VIEW, draw, fit } from "./overlay.js";
import { loadPhoto, requestPhoto } from "./photos.js";

const LONGER = 400;

// `card.show(query, options)` fills it with an answer of /api/look.
export function lookCard(name, onclick) {
  const canvas = el("canvas", { width: 4, height: 3, role: "img", "aria-label": `The map of ${name}` });
  const told = el("span", { class: "told" }, "…");
  const card = el("button", { type: "button", class: "card", onclick }, canvas, el("span", { class: "name" }, name), told);
  card.show = async (query, options) => {
    const image = await loadPhoto(query.photo, LONGER);
    fit(canvas, image, LONGER);
    draw(canvas, image, null, VIEW);
    const look = await requestPhoto(query.photo, "/api/look", query, options);
    draw(canvas, image, look, VIEW);
    told.textContent = bestClass(look);
  };
  card.fail = (error) => {
    card.classList.add("bad");
    told.textContent = error.message;
  };
  return card;
}
