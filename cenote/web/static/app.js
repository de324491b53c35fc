// Every link of the navigation is a view: /look is look.js. The query string is its state.
import { request } from "./api.js";
import { counted, el, errorBox } from "./dom.js";
import { isPhoto } from "./photos.js";

const links = [...document.querySelectorAll("nav [data-view]")];
const modules = {}; // path -> { title, enter }
const main = document.getElementById("view");
let about = null;
let open = null; // { path, view, controller }
let carried = null; // a photograph

// `set` changes parameters of the URL; undefined or "" removes one. `replace`: without a history entry.
function contextOf(path, signal) {
  return {
    about,
    signal,
    go,
    refresh,
    set(changes, { replace = false } = {}) {
      const query = new URLSearchParams(location.search);
      for (const [name, value] of Object.entries(changes)) {
        query.delete(name);
        for (const one of Array.isArray(value) ? value : [value]) {
          if (one !== undefined && one !== null && one !== "") query.append(name, one);
        }
      }
      go(`${path}${query.size ? `?${query}` : ""}`, { replace });
    },
  };
}

export function go(address, { replace = false } = {}) {
  const over = history.state?.over; // an entry of a dialog, which is replaced
  const moved = new URL(address, location).pathname !== location.pathname;
  if (over || address !== location.pathname + location.search) {
    history[replace || over ? "replaceState" : "pushState"](null, "", address);
  }
  show();
  if (moved) scrollTo({ top: 0, behavior: "instant" }); // Back returns to where it was
}

function first() {
  if (about.models.length) return "/look";
  return about.index ? "/search" : "/tournament";
}

function show() {
  const path = modules[location.pathname] ? location.pathname : first();
  if (open?.path !== path) {
    open?.controller.abort();
    const controller = new AbortController();
    main.replaceChildren();
    main.dataset.view = path.slice(1);
    open = { path, controller, view: modules[path].enter(main, contextOf(path, controller.signal)) };
    for (const link of links) {
      if (link.pathname === path) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${modules[path].title} · ${about.title || "Cenote"}`;
  }
  const query = new URLSearchParams(location.search);
  carry(path, query.get("photo"));
  open.view.show(query);
}

// The photograph stays when the view changes; a search without one keeps the last one for the other views.
function carry(path, photo) {
  if (isPhoto(photo)) carried = photo;
  else if (path === "/look" || path === "/compare") carried = null;
  for (const link of links) {
    if (link.pathname !== "/tournament") link.search = carried ? `?photo=${carried}` : "";
  }
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-view]");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  const moved = link.pathname !== location.pathname;
  go(link.pathname + link.search);
  if (moved) main.focus({ preventScroll: true });
});
addEventListener("popstate", show);

const root = document.documentElement;
const button = document.getElementById("theme");
const dark = matchMedia("(prefers-color-scheme: dark)");
const current = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
function nameTheme() {
  const other = current() === "dark" ? "light" : "dark";
  button.textContent = other === "dark" ? "☾" : "☀";
  button.setAttribute("aria-label", `Use ${other} colours`);
  button.title = `Use ${other} colours`;
}
button.addEventListener("click", () => {
  root.dataset.theme = current() === "dark" ? "light" : "dark";
  try {
    localStorage.setItem("cenote-theme", root.dataset.theme);
  } catch {
    // Without storage, it lasts as long as the page.
  }
  nameTheme();
});
dark.addEventListener("change", nameTheme);
nameTheme();

// Load what is served, summarize it in the footer, and return it.
async function refresh() {
  const waiting = (why) => !open && main.replaceChildren(el("p", { class: "lead busy" }, why));
  about = await request("/api/about", {}, { waiting });
  const served = [`Cenote ${about.version}`];
  if (about.models.length) served.push(counted(about.models.length, "model"));
  if (about.index) served.push(`${counted(about.index.images, "image")} indexed`);
  document.getElementById("served").textContent = served.join(" · ");
  document.getElementById("report").hidden = !about.report || Boolean(about.tournament?.running);
  return about;
}

async function begin() {
  main.replaceChildren(el("p", { class: "lead busy" }, "Loading …"));
  try {
    await Promise.all(links.map(async ({ pathname }) => (modules[pathname] = await import(`.${pathname}.js`))));
    await refresh();
  } catch (error) {
    return main.replaceChildren(errorBox(error, begin));
  }
  if (history.state?.over) history.replaceState(null, ""); // of a dialog that was open before the page was reloaded
  show();
}
begin();
