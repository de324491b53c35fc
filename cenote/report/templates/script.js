// Theme: the system preference until the reader changes it; stored where the browser allows it.
{
  const root = document.documentElement, button = document.querySelector(".theme"), key = "cenote-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const kept = (value) => {
    try {
      return value === undefined ? localStorage.getItem(key) : localStorage.setItem(key, value);
    } catch {
      return null; // some browsers have no storage for local files
    }
  };
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const tell = () => (button.textContent = dark() ? "Light theme" : "Dark theme");
  const before = kept();
  if (before === "dark" || before === "light") root.dataset.theme = before;
  button.addEventListener("click", () => {
    kept((root.dataset.theme = dark() ? "light" : "dark"));
    tell();
  });
  system.addEventListener("change", tell);
  tell();
  button.hidden = false;
}
// Sortable columns: numbers start with the largest, words with A; empty cells are last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, place) => {
    const numeric = head.classList.contains("number");
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    head.ariaSort = "none";
    button.addEventListener("click", () => {
      const first = numeric ? "descending" : "ascending";
      const way = head.ariaSort === "none" ? first : head.ariaSort === "ascending" ? "descending" : "ascending";
      for (const other of head.parentNode.cells) other.ariaSort = "none";
      head.ariaSort = way;
      const sign = way === "ascending" ? 1 : -1;
      const key = (row) => {
        const cell = row.cells[place];
        return numeric ? parseFloat(cell.dataset.sort ?? "NaN") : cell.textContent.trim();
      };
      const compare = (a, b) => {
        if (!numeric) return sign * a.localeCompare(b, undefined, { numeric: true });
        return Number.isNaN(a) || Number.isNaN(b) ? Number.isNaN(a) - Number.isNaN(b) : sign * (a - b);
      };
      body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
    });
  });
}
// The sliders of the maps. The alpha of a veil is 1 - value; SVG filters threshold or colour it.
{
  const steps = 101;
  const table = (value) => Array.from({ length: steps }, (_, i) => value(i / (steps - 1))).join(" ");
  for (const maps of document.querySelectorAll(".maps")) {
    const name = maps.dataset.filters, controls = maps.querySelector(".controls");
    const [opacity, cut] = controls.querySelectorAll("input[type=range]");
    const part = (id) => document.getElementById(`${name}-${id}-filter`).querySelector("feFuncA");
    const show = () => {
      const t = cut.value / 100, heat = controls.querySelector("input[value=heat]").checked;
      const below = (value) => t > 0 && value < t;
      if (heat) {
        part("heat").setAttribute("type", t > 0 ? "discrete" : "table");
        part("heat").setAttribute("tableValues", t > 0 ? table((v) => (below(v) ? 0 : 0.45 + v / 2)) : "0.45 0.95");
      } else {
        part("cut").setAttribute("tableValues", table((alpha) => (below(1 - alpha) ? 1 : 0)));
      }
      maps.style.setProperty("--opacity", opacity.value / 100);
      maps.style.setProperty("--veil", heat ? `url(#${name}-heat-filter)` : t > 0 ? `url(#${name}-cut-filter)` : "none");
      opacity.nextElementSibling.value = `${opacity.value}%`;
      cut.nextElementSibling.value = t > 0 ? t.toFixed(2) : "off";
      cut.setAttribute("aria-valuetext", cut.nextElementSibling.value);
    };
    controls.addEventListener("input", show);
    show(); // browsers restore sliders on reload
    controls.hidden = false;
  }
}
// Enlarged pictures. Each gallery is one tab stop; arrow keys move between its pictures.
{
  const dialog = document.createElement("dialog");
  dialog.innerHTML = `<div class="bar"><p></p><button type="button" data-step="-1" aria-label="Previous">←</button>
    <button type="button" data-step="1" aria-label="Next">→</button><button type="button">Close</button></div><div></div>`;
  const words = dialog.querySelector("p"), place = dialog.lastElementChild;
  let tiles = [], at = 0;
  const show = (next) => {
    at = (next + tiles.length) % tiles.length;
    const tile = tiles[at], frame = tile.querySelector(".shot"), copy = tile.cloneNode(true);
    copy.querySelector(".enlarge").remove();
    const own = frame.querySelector("img:not(.veil)");
    const ratio = own ? own.naturalWidth / own.naturalHeight : frame.clientWidth / frame.clientHeight;
    place.style.cssText = `${tile.closest(".row")?.getAttribute("style") ?? ""};--ratio:${ratio || 1}`;
    const maps = tile.closest(".maps");
    for (const name of ["--opacity", "--veil"]) if (maps) place.style.setProperty(name, maps.style.getPropertyValue(name));
    words.textContent = tile.dataset.about;
    dialog.setAttribute("aria-label", tile.dataset.about);
    place.replaceChildren(copy);
  };
  dialog.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button?.dataset.step) show(at + Number(button.dataset.step));
    else if (button || event.target === dialog) dialog.close();
  });
  dialog.addEventListener("keydown", (event) => {
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") show(at + (event.key === "ArrowLeft" ? -1 : 1));
  });
  dialog.addEventListener("close", () => tiles[at].querySelector(".enlarge").focus());
  document.body.append(dialog);
  for (const gallery of document.querySelectorAll(".gallery")) {
    const own = [...gallery.querySelectorAll(".tile[data-about]")];
    const buttons = own.map((tile, i) => {
      const button = Object.assign(document.createElement("button"), { type: "button", className: "enlarge" });
      button.setAttribute("aria-label", `Enlarge: ${tile.dataset.about}`);
      button.tabIndex = i ? -1 : 0;
      tile.querySelector(".shot").append(button);
      button.addEventListener("click", () => ((tiles = own), show(i), dialog.showModal()));
      return button;
    });
    gallery.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], now = buttons.indexOf(event.target);
      if (!step || now < 0) return;
      const next = buttons[(now + step + buttons.length) % buttons.length];
      buttons[now].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      event.preventDefault();
    });
  }
}
// Copies the command; where the browser refuses, selects it for manual copying.
for (const button of document.querySelectorAll("button.copy")) {
  const code = button.parentNode.querySelector("code");
  button.hidden = false;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}
