// Tournament: the standings while it runs, then the table and the plot of its report.
import { Latest, ask, cancelled, pause } from "./ask.js";
import { counted, el, hero, status, trouble } from "./dom.js";
import { plot } from "./plot.js";
import { standings } from "./standings.js";

export const title = "Tournament";
const [EVERY, SLOWLY] = [2000, 15000]; // milliseconds, while it runs, and while nobody knows

export function enter(main, { about, signal, refresh }) {
  if (!about.tournament) {
    main.append(hero("Tournament", "No tournament is served here. ",
      el("code", {}, "cenote tournament DATA -o RUN"), " lets every pooling play on your images; ",
      el("code", {}, "cenote serve RUN"), " shows it, also while it runs."));
    return { show() {} };
  }
  const latest = new Latest();
  signal.addEventListener("abort", () => latest.cancel());
  const head = hero("Tournament", "Reading its folder …");
  const [heading, lead] = head.children;
  const said = status();
  const bar = el("progress", { max: 1, "aria-label": "Progress of the tournament" });
  const running = el("div", { class: "running", hidden: true }, bar, said);
  const fault = el("div");
  const [table, picture, notes] = [el("div"), el("div"), el("div", { class: "notes" })];
  const full = el("p", {}, el("a", { class: "button", href: "/report" }, "The full report"),
    el("span", { class: "hint" }, " with maps of every candidate, notes and the command that made it"));
  full.hidden = true;
  main.append(head, running, fault, table, picture, notes, full);
  let [board, drawn] = [null, null];

  function tell(found) {
    const { report, contenders } = found;
    heading.textContent = report ? `Which pooling suits ${report.data}?` : `Tournament: ${found.name}`;
    running.hidden = !found.running;
    full.hidden = !(report && found.page);
    if (found.running) {
      if (found.total) bar.value = found.done / found.total;
      else bar.removeAttribute("value");
      said.say([found.stage, found.total ? `${found.done} of ${found.total} epochs` : ""].filter(Boolean).join(", "), true);
    }
    lead.textContent = report?.recommendation ?? (found.running
      ? `Training ${counted(contenders.length, "candidate")}, the best first so far.`
      : `${found.stage[0].toUpperCase()}${found.stage.slice(1)}.`);
    board ??= standings(table);
    board.show(report?.standings ?? contenders.map(training), report?.recommended, report?.table);
    if (report && drawn !== JSON.stringify(report.standings)) {
      drawn = JSON.stringify(report.standings);
      picture.replaceChildren(plot(report));
      notes.replaceChildren(el("p", {}, `${report.backbone}, frozen; ${counted(report.seeds, "seed")}; trained on ` +
        `${counted(report.train_images, "image")}, judged on ${counted(report.images, `${report.judged} image`)}. ` +
        `= tied with the first (differences up to ${report.noise.toFixed(1)}); ★ recommended.`));
    }
  }

  async function follow() {
    fault.replaceChildren();
    try {
      await latest.run(async (own) => {
        for (let before = null; ;) {
          const found = await ask("/api/tournament", {}, { signal: own, waiting: (why) => said.say(why, true) });
          if (own.aborted) return;
          tell(found);
          const state = `${found.running} ${found.stage}`;
          if (before !== null && before !== state) refresh(); // there may be more models to look through
          before = state;
          if (found.report && found.page) return;
          await pause(found.running ? EVERY : SLOWLY, own); // also for the report's page, which comes after it
        }
      });
    } catch (error) {
      if (!cancelled(error)) fault.replaceChildren(trouble(error, follow));
    }
  }

  return {
    show() {
      if (!board) follow();
    },
  };
}

const mean = (values) => (values?.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

// While it runs: test accuracy of the seeds that are over, else the best on validation so far.
function training({ name, group, accuracy, val, epoch }) {
  return { name, group, mean: mean(accuracy) ?? mean(val), sure: Boolean(accuracy?.length), epoch };
}
