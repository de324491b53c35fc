// The exampleStrip of examples, with the upload tile in front.
import { el, roving } from "./dom.js";
import { isPhoto, picture } from "./photos.js";

export function exampleStrip(examples, onChoose, pickerTile) {
  const tileOf = (photo, name, kind = "tile") =>
    el("button", { type: "button", class: kind, data: { photo }, title: name, onclick: () => onChoose(photo) },
      el("img", { src: picture(photo, 160), alt: name }));
  const tiles = examples.map(({ photo, name }) => tileOf(photo, name || "An example"));
  const list = el("div", { class: "tiles", role: "group", "aria-label": "Examples" }, tiles);
  const element = el("div", { class: "strip" }, pickerTile, list);
  const focus = tiles.length ? roving(list) : null;

  // An uploaded photograph becomes a tile, too.
  element.choose = (photo) => {
    pickerTile.clear();
    if (isPhoto(photo) && !tiles.some((tile) => tile.dataset.photo === photo)) {
      const tile = tileOf(photo, "Your photograph", "tile own");
      tile.firstChild.addEventListener("error", () => (tile.remove(), tiles.splice(tiles.indexOf(tile), 1)));
      tiles.unshift(tile);
      list.prepend(tile);
    }
    for (const tile of tiles) tile.setAttribute("aria-pressed", String(tile.dataset.photo === photo));
    focus?.hold(tiles.find((tile) => tile.dataset.photo === photo) ?? tiles[0]);
  };
  element.photos = () => tiles.map((tile) => tile.dataset.photo);
  return element;
}
