// Photographs of the visitor's own: chosen, dropped or pasted; sent with progress, cancelled, sent again if forgotten.
import { Failure, Latest, address, ask, cancelled, pause, send } from "./ask.js";
import { el, percent } from "./dom.js";

const own = new Map(); // photo -> how to send it again: a server that started anew has forgotten it, this page has not
const returning = new Map(); // photo -> promise of its being sent again
const pictures = new Map(); // address -> promise of an image

export const isPhoto = (name) => /^[0-9a-f]{32}$/.test(name ?? "");
const lost = () => new Failure("This photograph is not here any more: upload it again, or choose another one.", 404);

export const picture = (photo, side) => address(`/api/photos/${encodeURIComponent(photo)}`, { side });
export const entryPicture = (entry, side) => address(`/api/entries/${encodeURIComponent(entry)}`, { side });

function load(source) {
  if (!pictures.has(source)) {
    if (pictures.size > 200) pictures.delete(pictures.keys().next().value);
    const image = new Image();
    image.src = source;
    pictures.set(source, image.decode().then(() => image, async () => {
      pictures.delete(source);
      const answer = await fetch(source).catch(() => null); // once more, for the sentence
      const told = await answer?.json?.().catch(() => null);
      throw new Failure(told?.detail ?? "The photograph could not be read from the server.", answer?.status ?? 0);
    }));
  }
  return pictures.get(source);
}

// A picture on the page that was refused because many were asked for is asked for again; `gone` if it is not there.
export function patient(image, gone) {
  let tries = 0;
  image.addEventListener("error", async () => {
    const answer = (tries += 1) < 20 ? await fetch(image.src).catch(() => null) : null;
    if (answer?.status === 503) await pause(1000 * (Number(answer.headers.get("retry-after")) || 1));
    else if (!answer?.ok) return gone();
    image.src = image.src;
  });
  return image;
}

function keep(found, again) {
  own.set(found.photo, again);
  if (own.size > 20) own.delete(own.keys().next().value);
  return found;
}

async function upload(file, limits, { progress, signal, waiting } = {}) {
  if (limits?.bytes && file.size > limits.bytes) {
    const mega = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
    throw new Failure(`This file has ${mega(file.size)}; at most ${mega(limits.bytes)} are taken here.`, 413);
  }
  for (;;) {
    try {
      return keep(await send(file, { progress, signal }), () => upload(file));
    } catch (error) {
      if (error.code !== 503) throw error;
      waiting?.(`The server is busy. Sending again in ${error.after} s.`);
      await pause(1000 * error.after, signal);
    }
  }
}

// What asks about a photograph; if the server no longer has it and this page does, it is sent again, once for all.
async function insisting(photo, work) {
  if (!isPhoto(photo)) throw lost();
  try {
    return await work();
  } catch (error) {
    if (![404, 410].includes(error.code) || !error.message.includes("photograph")) throw error;
    if (!own.has(photo)) throw lost();
    if (!returning.has(photo)) {
      returning.set(photo, own.get(photo)().finally(() => returning.delete(photo)));
    }
    await returning.get(photo);
    return work();
  }
}

export const askAbout = (photo, path, parameters, options) => insisting(photo, () => ask(path, parameters, options));
export const loadPhoto = (photo, side) => insisting(photo, () => load(picture(photo, side)));

// An indexed image as a photograph that can be looked at: the server has its file.
export async function adopt(entry, options) {
  const found = await ask(`/api/entries/${encodeURIComponent(entry)}`, {}, { ...options, method: "POST" });
  return keep(found, () => adopt(entry));
}

// A tile that takes a photograph. `taken({photo, width, height})` is called once it is at the server.
export function picker({ limits, signal, taken, target = document.body, label = "Your photograph" }) {
  const latest = new Latest();
  const input = el("input", { type: "file", accept: "image/*", class: "away", tabIndex: -1, "aria-hidden": "true" });
  const bar = el("progress", { max: 1, "aria-label": "sent" });
  const stop = el("button", { type: "button", class: "small", onclick: () => latest.cancel() }, "Cancel");
  const sentence = el("p", { class: "hint", role: "status" });
  const button = el("button", { type: "button", class: "pick", onclick: () => input.click() },
    el("span", { class: "plus", "aria-hidden": "true" }, "+"), el("span", {}, label),
    el("small", {}, "drop, paste or choose"));
  const busy = el("div", { class: "sending", hidden: true }, bar, stop);
  const box = el("div", { class: "picker" }, input, button, busy, sentence);

  async function take(file) {
    if (!file) return;
    box.classList.remove("bad");
    busy.hidden = false;
    bar.removeAttribute("value");
    sentence.textContent = "Sending …";
    try {
      const found = await latest.run((own) => upload(file, limits, {
        signal: own,
        progress: (share) => {
          bar.value = share;
          sentence.textContent = share < 1 ? `Sending, ${percent(share)}` : "Being read …";
        },
        waiting: (why) => (sentence.textContent = why),
      }));
      sentence.textContent = "";
      busy.hidden = true;
      taken(found);
    } catch (error) {
      busy.hidden = true;
      box.classList.toggle("bad", !cancelled(error));
      sentence.textContent = cancelled(error) ? "Cancelled; nothing was sent." : error.message;
    }
  }

  const imageIn = (list) => [...(list ?? [])].find((file) => file.type.startsWith("image/")) ?? list?.[0];
  input.addEventListener("change", () => (take(input.files[0]), (input.value = "")));
  document.addEventListener("paste", (event) => {
    const file = imageIn(event.clipboardData?.files);
    if (file) (event.preventDefault(), take(file));
  }, { signal });
  const carries = (event) => event.dataTransfer?.types.includes("Files");
  target.addEventListener("dragover", (event) => {
    if (carries(event)) (event.preventDefault(), box.classList.add("over"));
  }, { signal });
  target.addEventListener("dragleave", (event) => {
    if (!event.relatedTarget) box.classList.remove("over");
  }, { signal });
  target.addEventListener("drop", (event) => {
    box.classList.remove("over");
    if (carries(event)) (event.preventDefault(), take(imageIn(event.dataTransfer.files)));
  }, { signal });
  signal?.addEventListener("abort", () => latest.cancel());
  // What was told of a file before, when something else is asked.
  box.clear = () => {
    if (!busy.hidden) return;
    box.classList.remove("bad");
    sentence.textContent = "";
  };
  return box;
}
