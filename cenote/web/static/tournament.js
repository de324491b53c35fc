// Tournament: live standings; then the recommendation, maps of the recommended model, table and plot of the report.
import { Latest, address, request, cancelled, pause } from "./api.js";
import { counted, el, hero, roving, status, errorBox } from "./dom.js";
import { lookCard } from "./look_card.js";
import { plot } from "./plot.js";
import { standings } from "./standings.js";

export const title = "Tournament";
const [EVERY, SLOWLY] = [2000, 15000]; // milliseconds between requests, while it runs and otherwise
const PHOTOS = 5; // with maps of the recommended model

export function enter(main, { about, signal, go, refresh }) {
  if (!about.tournament) {
    main.append(hero("Tournament", "No tournament is served here. ",
      el("code", {}, "cenote tournament DATA -o RUN"), " compares all poolings on your images; ",
      el("code", {}, "cenote serve RUN"), " shows it, also while it runs."));
    return { show() {} };
  }
  const latest = new Latest();
  signal.addEventListener("abort", () => latest.cancel());
  const head = hero("Tournament", "Loading …");
  const [heading, lead] = head.children;
  const statusLine = status();
  const bar = el("progress", { max: 1, "aria-label": "Progress of the tournament" });
  const running = el("div", { class: "running", hidden: true }, bar, statusLine);
  const errorArea = el("div");
  const [winner, table, picture, notes] = [el("div", { class: "winner" }), el("div"), el("div"), el("div", { class: "notes" })];
  const full = el("p", {}, el("a", { class: "button", href: "/report" }, "The full report"),
    el("span", { class: "hint" }, " with maps of every candidate, notes and the command that made it"));
  full.hidden = true;
  main.append(head, running, errorArea, winner, table, picture, notes, full);
  let [board, drawn] = [null, null];

  function showStandings(response) {
    const { report, contenders } = response;
    heading.textContent = report ? `Which pooling suits ${report.data}?` : `Tournament: ${response.name}`;
    running.hidden = !response.running;
    full.hidden = !(report && response.page);
    if (response.running) {
      if (response.total) bar.value = response.done / response.total;
      else bar.removeAttribute("value");
      statusLine.say([response.stage, response.total ? `${response.done} of ${response.total} epochs` : ""].filter(Boolean).join(", "), true);
    }
    lead.textContent = report?.recommendation ?? (response.running
      ? `Training ${counted(contenders.length, "candidate")}, the best first so far.`
      : `${response.stage[0].toUpperCase()}${response.stage.slice(1)}.`);
    board ??= standings(table);
    board.show(report?.standings ?? contenders.map(training), report?.recommended, report?.table);
    if (report && drawn !== JSON.stringify(report.standings)) {
      drawn = JSON.stringify(report.standings);
      showWinner();
      picture.replaceChildren(plot(report));
      const training = report.recipe ? `trained end to end by ${report.recipe}` : "frozen";
      notes.replaceChildren(el("p", {}, `${report.backbone}, ${training}; ${counted(report.seeds, "seed")}; trained on ` +
        `${counted(report.train_images, "image")}, evaluated on ${counted(report.images, `${report.judged} image`)}. ` +
        `= tied with the first; ★ recommended.`),
      ...(report.table?.notes ?? []).map((note) => el("p", { class: "hint" }, note)));
    }
  }

  // Its own maps: the object map is the same for all models.
  async function showWinner() {
    const { models, examples } = await refresh();
    const model = models.find(({ recommended }) => recommended);
    if (!model || !examples.length || signal.aborted) return;
    const query = { model: model.id, map: model.maps[0] ?? "auto" };
    const cards = examples.slice(0, PHOTOS).map(({ photo, name }) =>
      Object.assign(lookCard(name || "An example", () => go(address("/look", { photo, ...query }))), { photo }));
    winner.replaceChildren(el("h2", {}, `Where ${model.name} attends`), el("div", { class: "cards" }, cards));
    roving(winner);
    for (const card of cards) await card.show({ photo: card.photo, ...query }, { signal }).catch(card.fail);
  }

  async function follow() {
    errorArea.replaceChildren();
    try {
      await latest.run(async (own) => {
        for (let before = null; ;) {
          const response = await request("/api/tournament", {}, { signal: own, waiting: (why) => statusLine.say(why, true) });
          if (own.aborted) return;
          showStandings(response);
          const state = `${response.running} ${response.stage}`;
          if (before !== null && before !== state) refresh(); // there may be new models
          before = state;
          if (response.report && response.page) return;
          await pause(response.running ? EVERY : SLOWLY, own); // also for /report, which is written later
        }
      });
    } catch (error) {
      if (!cancelled(error)) errorArea.replaceChildren(errorBox(error, follow));
    }
  }

  return {
    show() {
      if (!board) follow();
    },
  };
}

const mean = (values) => (values?.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

// While it runs: the test accuracy of finished seeds, else the validation accuracy so far.
function training({ name, group, accuracy, val, epoch }) {
  return { name, group, mean: mean(accuracy) ?? mean(val), sure: Boolean(accuracy?.length), epoch };
}
