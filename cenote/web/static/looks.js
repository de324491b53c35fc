// The same photograph through every model, side by side: asked as they come into view, a few at a time.
import { Line, cancelled } from "./ask.js";
import { el, percent, roving, status } from "./dom.js";
import { draw, fit } from "./overlay.js";
import { askAbout, loadPhoto } from "./photos.js";

const LONGER = 400;

export function sideBySide(models, view, signal, chosen) {
  const said = status();
  const grid = el("div", { class: "cards" });
  const element = el("section", { class: "beside", "aria-label": "All models side by side" },
    el("h2", {}, "The same photograph through every model"), said, grid);
  element.hidden = models.length < 2;
  let [photo, cards, own] = [null, [], null];
  const near = new IntersectionObserver((seen) => seen.forEach((one) => one.isIntersecting && ask(one.target)),
    { rootMargin: "400px" });
  signal.addEventListener("abort", () => (near.disconnect(), own?.abort()));

  const begin = () => {
    own?.abort();
    own = new AbortController();
    own.line = new Line(2);
    near.disconnect();
    cards = models.map((model) => {
      const canvas = el("canvas", { width: 4, height: 3, role: "img", "aria-label": `The map of ${model.name}` });
      const told = el("span", { class: "told" }, "…");
      const name = el("span", { class: "name" }, model.recommended ? `${model.name} ★` : model.name);
      const card = el("button", { type: "button", class: "card", onclick: () => chosen(model.id) }, canvas, name, told);
      return Object.assign(card, { model, canvas, told, look: null, image: null, asked: false });
    });
    grid.replaceChildren(...cards);
    roving(grid);
    cards.forEach((card) => near.observe(card));
    progress();
  };

  function progress() {
    const done = cards.filter((card) => card.look).length;
    const busy = cards.some((card) => card.asked && !card.look && !card.failed);
    const more = busy || done === cards.length ? "" : "; the others look when they come into view";
    said.say(done === cards.length ? `All ${done} have looked` : `${done} of ${cards.length} have looked${more}`, busy);
  }

  async function ask(card) {
    if (card.asked) return;
    card.asked = true;
    near.unobserve(card);
    progress();
    const { signal: stop, line } = own;
    const asked = photo;
    try {
      card.image = await loadPhoto(asked, LONGER);
      fit(card.canvas, card.image, LONGER);
      paint(card);
      const look = await line.add(() => askAbout(asked, "/api/look", { photo: asked, model: card.model.id }, {
        signal: stop, waiting: (why) => said.say(why, true),
      }), stop);
      if (stop.aborted) return;
      card.look = look;
      const best = look.classes[0];
      card.told.textContent = best ? `${best.name}, ${percent(best.probability)}` : "names no class";
      paint(card);
      progress();
    } catch (error) {
      if (cancelled(error)) return;
      card.failed = true;
      card.told.textContent = error.message;
      progress();
    }
  }

  // Each with its own threshold: the one in the panel is of one model's map.
  const paint = ({ canvas, image, look }) =>
    image && draw(canvas, image, look, { ...view, threshold: null, patch: null });

  return {
    element,
    redraw: () => cards.forEach(paint),
    show(wanted, model) {
      element.hidden = models.length < 2 || !wanted;
      if (element.hidden) return own?.abort(), near.disconnect(), (photo = null);
      if (wanted !== photo) ((photo = wanted), begin());
      for (const card of cards) card.setAttribute("aria-pressed", String(card.model.id === model));
    },
  };
}
