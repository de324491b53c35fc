// Pictures open in a dialogue. Each gallery is one stop of the Tab key; arrows go from picture to picture.
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
