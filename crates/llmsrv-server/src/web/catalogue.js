// The part of the models' pane that finds models to pull, by what this machine can do.

import * as api from "./api.js";
import { bytes, count, el, short } from "./dom.js";

// How many are shown at once; more words find the others.
const ROWS = 60;
// The list changes with the program alone.
let catalogue = null;

// An element that lists models; `pull(name)` is called with what somebody chooses, `here(name)`
// tells whether a model is on the machine.
export function find(pull, here) {
  const words = el("input", { type: "search", id: "find-model", placeholder: "code, vision, thinking, qwen …", "aria-label": "Find a model", autocomplete: "off", spellcheck: "false", maxLength: 200 });
  const hint = el("p", { class: "hint", role: "status" });
  const list = el("ul", { class: "models found", "aria-label": "Models to pull" });
  const box = el("details", { class: "find" }, el("summary", {}, "Find a model for this machine"), words, hint, list);
  const draw = () => {
    const wanted = words.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const said = (it) => [it.name, it.architecture, it.about, it.capabilities.join(" "), it.licence].join(" ").toLowerCase();
    const found = catalogue.models.filter((it) => (wanted.length ? wanted.every((word) => said(it).includes(word)) : it.suggested));
    list.replaceChildren(...found.slice(0, ROWS).map((it) => row(it, pull, here)));
    hint.textContent = (wanted.length ? count(found.length) + (found.length === 1 ? " size of a model" : " sizes of models") : "The best size of each model that fits")
      + (catalogue.memory_bytes ? ", for " + bytes(catalogue.memory_bytes) + " of memory" : "") + ". The list is of " + catalogue.date + (catalogue.refreshed ? ", refreshed on " + catalogue.refreshed : "") + "; other names can be pulled above.";
  };
  words.addEventListener("input", () => catalogue && draw());
  box.addEventListener("toggle", async () => {
    if (!box.open) return;
    hint.textContent = catalogue ? "" : "One moment: measuring the memory of this machine.";
    try {
      catalogue ??= await api.get("api/catalogue");
      draw();
    } catch (error) { hint.textContent = error.message; }
  });
  return { element: box, draw: () => { if (catalogue && box.open) draw(); } };
}

function row(it, pull, here) {
  const isGood = it.runs && it.fits;
  const speed = it.tokens_per_second ? "about " + (it.tokens_per_second < 10 ? it.tokens_per_second.toFixed(1) : count(Number(it.tokens_per_second.toPrecision(2)))) + " tok/s here" : "fits";
  const place = !it.runs ? "Does not run yet: " + it.why_not : !it.fits ? "Needs " + bytes(it.memory_bytes) + " of memory" : speed;
  return el("li", { class: isGood ? "" : "far" },
    el("div", { class: "about" },
      el("h3", {}, short(it.name), el("span", { class: "badge" }, it.about), it.capabilities.map((what) => el("span", { class: "badge" }, what))),
      el("p", {}, [bytes(it.bytes), place, it.context && count(it.context) + " tokens of context", it.licence].filter(Boolean).join(" · "))),
    el("div", { class: "acts" }, here(it.name)
      ? el("span", { class: "hint" }, "Is here")
      : el("button", { type: "button", class: isGood ? "main" : "", disabled: !it.runs, "aria-label": "Pull " + it.name, onclick: () => pull(it.name) }, "Pull")));
}
