// One photograph through two models, small: their maps, their classes, how much they agree.
import { cancelled } from "./ask.js";
import { el, percent } from "./dom.js";
import { agreement } from "./maps.js";
import { draw, fit } from "./overlay.js";

export const verdict = ({ classes: [best] }) =>
  (best ? `${best.name}, ${percent(best.probability)}` : "names no class");

// `seen` is a promise of [image, left look, right look]; `chosen(model)` when one is clicked.
export function pairOf(models, view, longer, seen, chosen) {
  const halves = models.map(({ name }) => ({
    canvas: el("canvas", { width: 4, height: 3, role: "img", "aria-label": `The map of ${name}` }),
    told: el("span", { class: "told" }, "…"),
  }));
  const told = el("span", { class: "agree" }, "…");
  const cards = models.map(({ model, name }, i) =>
    el("button", { type: "button", class: "card", title: "Look closer", onclick: () => chosen(model) },
      halves[i].canvas, el("span", { class: "name" }, name), halves[i].told));
  let found = null;
  const row = {
    element: el("div", { class: "pair" }, cards, told),
    paint: () => found && halves.forEach((half, i) => draw(half.canvas, found[0], found[i + 1], view)),
  };
  row.done = seen.then((looks) => {
    found = looks;
    halves.forEach((half, i) => {
      fit(half.canvas, found[0], longer);
      half.told.textContent = verdict(found[i + 1]);
    });
    row.paint();
    const same = found[1].classes[0]?.name === found[2].classes[0]?.name;
    const value = agreement(found[1].map, found[2].map);
    const words = same ? " agreement, the same class" : " agreement, different classes";
    told.replaceChildren(el("strong", {}, percent(value)), words);
    return { value, same };
  }).catch((error) => {
    if (!cancelled(error)) told.textContent = error.message;
    return null;
  });
  return row;
}
