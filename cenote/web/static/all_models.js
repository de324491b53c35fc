// The maps of all models for one photograph, requested when they scroll into view, a few at a time.
import { TaskQueue, cancelled } from "./api.js";
import { bestClass, el, roving, status } from "./dom.js";
import { draw, fit } from "./overlay.js";
import { requestPhoto, loadPhoto } from "./photos.js";

const LONGER = 400;

export function allModels(models, view, signal, onChoose) {
  const statusLine = status();
  const grid = el("div", { class: "cards" });
  const element = el("section", { class: "beside", "aria-label": "All models side by side" },
    el("h2", {}, "The same photograph, the attention of every model"), statusLine, grid);
  element.hidden = models.length < 2;
  let [photo, cards, own] = [null, [], null];
  const near = new IntersectionObserver((seen) => seen.forEach((one) => one.isIntersecting && load(one.target)),
    { rootMargin: "400px" });
  signal.addEventListener("abort", () => (near.disconnect(), own?.abort()));

  const begin = () => {
    own?.abort();
    own = new AbortController();
    own.line = new TaskQueue(2);
    near.disconnect();
    cards = models.map((model) => {
      const canvas = el("canvas", { width: 4, height: 3, role: "img", "aria-label": `The map of ${model.name}` });
      const told = el("span", { class: "told" }, "…");
      const name = el("span", { class: "name" }, model.recommended ? `${model.name} ★` : model.name);
      const card = el("button", { type: "button", class: "card", onclick: () => onChoose(model) }, canvas, name, told);
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
    const more = busy || done === cards.length ? "" : "; the others are computed when they scroll into view";
    statusLine.say(done === cards.length ? `Maps of all ${done} models` : `${done} of ${cards.length} maps${more}`, busy);
  }

  async function load(card) {
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
      const { id, maps } = card.model;
      // Not the default, the object map: it is the same for all models of a backbone.
      const query = { photo: asked, model: id, map: maps[0] ?? "auto" };
      const look = await line.add(() => requestPhoto(asked, "/api/look", query, {
        signal: stop, waiting: (why) => statusLine.say(why, true),
      }), stop);
      if (stop.aborted) return;
      card.look = look;
      card.told.textContent = bestClass(look);
      paint(card);
      progress();
    } catch (error) {
      if (cancelled(error)) return;
      card.failed = true;
      card.told.textContent = error.message;
      progress();
    }
  }

  // Each with its model's threshold: the one in the panel belongs to one model.
  const paint = ({ canvas, image, look }) =>
    image && draw(canvas, image, look, { ...view, threshold: null, patch: null });

  return {
    element,
    redraw: () => cards.forEach(paint),
    show(nextPhoto, model) {
      element.hidden = models.length < 2 || !nextPhoto;
      if (element.hidden) return own?.abort(), near.disconnect(), (photo = null);
      if (nextPhoto !== photo) ((photo = nextPhoto), begin());
      for (const card of cards) card.setAttribute("aria-pressed", String(card.model.id === model));
    },
  };
}
