// Several photographs: they are uploaded and looked at one after the other, and each has a card.
import { Latest, cancelled } from "./api.js";
import { counted, el, roving, status } from "./dom.js";
import { lookCard } from "./look_card.js";
import { upload } from "./photos.js";

const MOST = 100;

// `element.start(files, query)`: query has the parameters of /api/look without the photograph.
export function batch({ limits, signal, choose }) {
  const latest = new Latest();
  signal.addEventListener("abort", () => latest.cancel());
  const statusLine = status();
  const grid = el("div", { class: "cards" });
  const close = el("button", {
    type: "button", class: "small", onclick: () => (latest.cancel(), (element.hidden = true)),
  }, "Close");
  const element = el("section", { class: "batch", hidden: true, "aria-label": "Several photographs" },
    el("div", { class: "row" }, statusLine, close), grid);

  element.start = (files, query) => latest.run(async (own) => {
    const taken = files.slice(0, MOST);
    const cards = taken.map(({ name }) => {
      const card = lookCard(name, () => card.photo && choose(card.photo));
      return card;
    });
    grid.replaceChildren(...cards);
    roving(grid);
    element.hidden = false;
    const options = { signal: own, waiting: (why) => statusLine.say(why, true) };
    let failed = 0;
    for (const [i, card] of cards.entries()) {
      statusLine.say(`Photograph ${i + 1} of ${cards.length} …`, true);
      try {
        const { photo } = await upload(taken[i], limits, options);
        await card.show({ ...query, photo }, options);
        card.photo = photo;
      } catch (error) {
        if (cancelled(error)) return;
        failed += 1;
        card.fail(error);
      }
    }
    statusLine.say(`${counted(cards.length - failed, "photograph")} by ${query.model}; choose one to see it larger.` +
      (failed ? ` ${counted(failed, "file")} could not be used.` : "") +
      (taken.length < files.length ? ` Only the first ${MOST} of ${files.length} files were taken.` : ""));
  });
  return element;
}
