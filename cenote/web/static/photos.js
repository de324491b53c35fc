// Uploads: chosen, dropped or pasted files, with progress; sent again if the server has lost them.
import { Failure, Latest, address, request, cancelled, pause, send } from "./api.js";
import { el, percent } from "./dom.js";

const own = new Map(); // photo -> function that sends it again, for a server that was restarted
const returning = new Map(); // photo -> promise of a repeated upload
const pictures = new Map(); // address -> promise of an image

export const isPhoto = (name) => /^[0-9a-f]{32}$/.test(name ?? "");
const lost = () => new Failure("This photograph is no longer stored: upload it again, or choose another one.", 404);

export const picture = (photo, side) => address(`/api/photos/${encodeURIComponent(photo)}`, { side });
export const entryPicture = (entry, side) => address(`/api/entries/${encodeURIComponent(entry)}`, { side });

function load(source) {
  if (!pictures.has(source)) {
    if (pictures.size > 200) pictures.delete(pictures.keys().next().value);
    const image = new Image();
    image.src = source;
    pictures.set(source, image.decode().then(() => image, async () => {
      pictures.delete(source);
      const answer = await fetch(source).catch(() => null); // again, for the error message
      const told = await answer?.json?.().catch(() => null);
      throw new Failure(told?.detail ?? "The photograph could not be read from the server.", answer?.status ?? 0);
    }));
  }
  return pictures.get(source);
}

// Request an image again while the server is busy; call `gone` if it does not exist.
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

function keep(info, again) {
  own.set(info.photo, again);
  if (own.size > 20) own.delete(own.keys().next().value);
  return info;
}

export async function upload(file, limits, { progress, signal, waiting } = {}) {
  if (limits?.bytes && file.size > limits.bytes) {
    const mega = (bytes) => `${(bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0)} MB`;
    throw new Failure(`This file has ${mega(file.size)}; the limit is ${mega(limits.bytes)}.`, 413);
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

// Run a request for a photograph; if the server no longer has it, upload it again, once for all requests.
async function withPhoto(photo, work) {
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

export const requestPhoto = (photo, path, parameters, options) => withPhoto(photo, () => request(path, parameters, options));
export const loadPhoto = (photo, side) => withPhoto(photo, () => load(picture(photo, side)));

// Use an image of the index as a photograph.
export async function adopt(entry, options) {
  const info = await request(`/api/entries/${encodeURIComponent(entry)}`, {}, { ...options, method: "POST" });
  return keep(info, () => adopt(entry));
}

// A tile for uploads. `taken({photo, width, height})` is called when the server has the photograph; `several(files)`
// takes more than one file, without it the first image is used.
export function picker({ limits, signal, taken, several, target = document.body, label = "Your photograph" }) {
  const latest = new Latest();
  const input = el("input", { type: "file", accept: "image/*", multiple: Boolean(several), class: "away", tabIndex: -1, "aria-hidden": "true" });
  const bar = el("progress", { max: 1, "aria-label": "Upload" });
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
      const info = await latest.run((own) => upload(file, limits, {
        signal: own,
        progress: (share) => {
          bar.value = share;
          sentence.textContent = share < 1 ? `Sending, ${percent(share)}` : "Processing …";
        },
        waiting: (why) => (sentence.textContent = why),
      }));
      sentence.textContent = "";
      busy.hidden = true;
      taken(info);
    } catch (error) {
      busy.hidden = true;
      box.classList.toggle("bad", !cancelled(error));
      sentence.textContent = cancelled(error) ? "Cancelled." : error.message;
    }
  }

  const takeAll = (list) => {
    const files = [...list];
    if (several && files.length > 1) several(files);
    else take(files.find((file) => file.type.startsWith("image/")) ?? files[0]);
  };
  input.addEventListener("change", () => (takeAll(input.files), (input.value = "")));
  document.addEventListener("paste", (event) => {
    const files = event.clipboardData?.files;
    if (files?.length) (event.preventDefault(), takeAll(files));
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
    if (carries(event)) (event.preventDefault(), takeAll(event.dataTransfer.files));
  }, { signal });
  signal?.addEventListener("abort", () => latest.cancel());
  // Remove the message of a previous file.
  box.clear = () => {
    if (!busy.hidden) return;
    box.classList.remove("bad");
    sentence.textContent = "";
  };
  return box;
}
