// The maps and classes of two models for one photograph, and their agreement.
import { cancelled } from "./api.js";
import { bestClass, el, percent } from "./dom.js";
import { agreement } from "./maps.js";
import { draw, fit } from "./overlay.js";

// `loaded` is a promise of [image, left look, right look]; `onChoose(model)` is called on a click.
export function pairOf(models, view, longer, loaded, onChoose) {
  const halves = models.map(({ name }) => ({
    canvas: el("canvas", { width: 4, height: 3, role: "img", "aria-label": `The map of ${name}` }),
    told: el("span", { class: "told" }, "…"),
  }));
  const told = el("span", { class: "agree" }, "…");
  const cards = models.map(({ model, name }, i) =>
    el("button", { type: "button", class: "card", title: "Show in Look", onclick: () => onChoose(model) },
      halves[i].canvas, el("span", { class: "name" }, name), halves[i].told));
  let content = null;
  const row = {
    element: el("div", { class: "pair" }, cards, told),
    paint: () => content && halves.forEach((half, i) => draw(half.canvas, content[0], content[i + 1], view)),
  };
  row.done = loaded.then((looks) => {
    content = looks;
    halves.forEach((half, i) => {
      fit(half.canvas, content[0], longer);
      half.told.textContent = bestClass(content[i + 1]);
    });
    row.paint();
    const same = content[1].classes[0]?.name === content[2].classes[0]?.name;
    const value = agreement(content[1].map, content[2].map);
    const words = same ? " agreement, the same class" : " agreement, different classes";
    told.replaceChildren(el("strong", {}, percent(value)), words);
    return { value, same };
  }).catch((error) => {
    if (!cancelled(error)) told.textContent = error.message;
    return null;
  });
  return row;
}
