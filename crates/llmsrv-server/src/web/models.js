// The pane with the models: what is there, pulling, deleting.

import * as api from "./api.js";
import { find } from "./catalogue.js";
import { bytes, confirm, count, dialog, el, iconButton, notice, say, seconds, short } from "./dom.js";

let app;
// Pulls on their way and those that failed; they go on while another pane is shown.
const pulls = new Map();
let root = null, list = null, pulling = null, finding = null;

export function setUp(shared) { app = shared; }

export async function open(main) {
  root = el("div", { class: "page" });
  main.replaceChildren(root);
  root.append(el("header", { class: "top" }, app.menuButton(), el("h2", {}, "Models")));
  if (!api.mayManage()) {
    root.append(app.mayNot("The models"));
    return;
  }
  const name = el("input", { type: "text", id: "pull-name", placeholder: "qwen3:0.6b, hf.co/user/repository:Q4_K_M", "aria-label": "Name of a model to pull", autocomplete: "off", autocapitalize: "off", spellcheck: "false", maxLength: 500, required: true });
  const insecure = el("input", { type: "checkbox", id: "pull-insecure" });
  const form = el("form", { class: "row" }, name, el("button", { class: "main" }, "Pull"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = name.value.trim();
    if (!wanted) return;
    name.value = "";
    pull(wanted, insecure.checked);
  });
  finding = find((wanted) => pull(wanted, insecure.checked), (wanted) => app.models().some((it) => it.name === wanted));
  pulling = el("ul", { class: "pulls", "aria-label": "Transfers" });
  list = el("ul", { class: "models", "aria-label": "Models of this machine" });
  root.append(el("div", { class: "scroll" }, el("div", { class: "inner" },
    el("section", { "aria-label": "Pull a model" }, form, el("p", { class: "hint" }, "A name of the registry, or a GGUF repository of Hugging Face. An interrupted pull goes on where it was."),
      el("label", { class: "hint check" }, insecure, "Allow plain http to a registry of this network"), pulling, finding.element),
    el("section", { "aria-label": "Models" }, list))));
  for (const state of pulls.values()) pulling.append(state.element);
  await refresh();
}

const isShown = () => root?.isConnected;

// The newest one: an answer to an earlier question comes too late.
let asked = 0;

async function refresh() {
  const mine = ++asked;
  await app.refreshModels();
  let loaded = [];
  try {
    loaded = (await api.get("api/ps")).models;
  } catch (error) { notice(error.message); }
  if (!isShown() || mine !== asked) return;
  const models = app.models();
  list.replaceChildren(...models.map((model) => row(model, loaded.find((it) => it.name === model.name))));
  finding.draw();
  if (!models.length) list.append(el("li", { class: "hint" }, "There is no model yet."));
}

function row(model, loaded) {
  const { details } = model;
  const facts = [details.parameter_size, details.quantization_level, details.family, model.size ? bytes(model.size) : ""].filter(Boolean);
  const act = (label, run, kind = "") => el("button", { type: "button", class: kind, "aria-label": label + ": " + short(model.name), onclick: run }, label);
  const canTalk = !model.capabilities.length || model.capabilities.includes("completion");
  const state = loaded ? "In memory" + (loaded.size ? ", " + bytes(loaded.size) : "") + (loaded.size_vram > 0 ? ", " + bytes(loaded.size_vram) + " of it on the GPU" : "") + unloads(loaded.expires_at) : "";
  return el("li", {},
    el("div", { class: "about" },
      el("h3", {}, short(model.name), model.isDefault ? el("span", { class: "badge main" }, "default") : null),
      el("p", {}, facts.join(" · ")),
      el("p", { class: "badges" }, model.capabilities.map((it) => el("span", { class: "badge" }, it))),
      state ? el("p", { class: "loaded" }, state) : null),
    el("div", { class: "acts" },
      canTalk ? act("Chat", () => app.chatWith(model.name), "main") : null,
      act("Details", () => showDetails(model)),
      canTalk ? act("Variant", () => makeVariant(model)) : null,
      loaded ? act("Unload", () => change("Unloaded " + short(model.name), () => api.post("api/generate", { model: model.name, keep_alive: 0 }))) : null,
      !model.isDefault && canTalk ? act("Make default", () => change(short(model.name) + " is the default", () => api.request("api/copy", { method: "POST", body: { source: model.name, destination: "default" } }))) : null,
      act("Delete", () => remove(model), "danger")));
}

function unloads(moment) {
  const left = (new Date(moment) - Date.now()) / 1000;
  return left > 366 * 86400 ? "" : left > 0 ? ", unloads in " + seconds(left) : "";
}

async function change(done, act) {
  try {
    await act();
    say(done);
  } catch (error) { notice(error.message); }
  await refresh().catch((error) => notice(error.message));
}

async function remove(model) {
  const isSure = await confirm("Delete " + short(model.name) + "?", "Its files are removed from this machine" + (model.size ? "; that frees up to " + bytes(model.size) + "." : "."), "Delete");
  if (isSure) await change("Deleted " + short(model.name), () => api.request("api/delete", { method: "DELETE", body: { model: model.name } }));
}

async function showDetails(model) {
  let shown;
  try {
    shown = await api.show(model.name);
  } catch (error) { notice(error.message); return; }
  const info = shown.model_info ?? {};
  const architecture = info["general.architecture"];
  const rows = [
    ["Architecture", architecture], ["Parameters", info["general.parameter_count"] && count(info["general.parameter_count"])],
    ["Quantization", model.details.quantization_level], ["Context it was trained for", info[architecture + ".context_length"] && count(info[architecture + ".context_length"]) + " tokens"],
    ["Layers", info[architecture + ".block_count"]], ["Vector length", info[architecture + ".embedding_length"]],
    ["Size on disk", model.size && bytes(model.size)], ["Changed", model.modified_at && new Date(model.modified_at).toLocaleString()], ["Digest", model.digest?.slice(0, 12)],
  ].filter(([, value]) => value);
  const text = (title, value) => (value ? el("details", {}, el("summary", {}, title), el("pre", { tabindex: "0" }, value.slice(0, 100000))) : null);
  await dialog(short(model.name), [
    el("dl", {}, rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, String(value))])),
    text("Options of its own", shown.parameters), text("System prompt", shown.system), text("Template", shown.template), text("Licence", shown.license),
  ], [{ label: "Close", value: "" }], { class: "wide" });
}

// Another name on the same weights, with words and options of its own.
async function makeVariant(model) {
  const name = el("input", { type: "text", autofocus: true, required: true, maxLength: 200, spellcheck: "false", autocapitalize: "off", placeholder: short(model.name).split(/[:/]/).at(-1) + "-reviewer" });
  const system = el("textarea", { rows: "4", placeholder: "You review code: name the faults, worst first." });
  const number = (attributes) => el("input", { type: "number", inputmode: "decimal", ...attributes });
  const parameters = { temperature: number({ min: "0", max: "5", step: "any", placeholder: "the model’s" }), num_ctx: number({ min: "4", max: "10000000", step: "1", placeholder: "the model’s" }) };
  const answer = await dialog("Variant of " + short(model.name), [
    el("p", {}, "It shares the weights, and takes no further space."),
    el("label", {}, "Name", name), el("label", {}, "System prompt", system),
    el("div", { class: "grid" }, el("label", {}, "Temperature", parameters.temperature), el("label", {}, "Context (tokens)", parameters.num_ctx)),
  ], [{ label: "Cancel", value: "" }, { label: "Create", value: "yes", kind: "main" }], { class: "wide" });
  const called = name.value.trim();
  if (answer !== "yes" || !called) return;
  if (app.models().some((it) => it.name === called || it.name === called + ":latest") && !await confirm("Replace " + called + "?", "There is a model of this name already.", "Replace")) return;
  const set = Object.entries(parameters).filter(([, field]) => field.value !== "").map(([key, field]) => [key, Number(field.value)]);
  await change("Created " + called, () => api.post("api/create", { model: called, from: model.name, system: system.value.trim() || undefined, parameters: set.length ? Object.fromEntries(set) : undefined, stream: false }));
}

// ---- pulling ----

async function pull(name, insecure) {
  if (pulls.get(name)?.control) return;
  pulls.get(name)?.element.remove();
  const bar = el("progress", { max: "1", "aria-label": "Progress of " + name });
  const status = el("span", { class: "status" }, "Starting");
  const cancel = iconButton("close", "Cancel " + name, () => state.control.abort());
  const state = { control: new AbortController(), element: el("li", {}, el("strong", {}, name), status, cancel, bar) };
  pulls.set(name, state);
  if (isShown()) pulling.prepend(state.element);
  // Bytes of each file, and when they came, for the speed.
  const files = new Map();
  const came = [];
  let isDone = false;
  try {
    for await (const piece of api.lines("api/pull", { model: name, insecure }, state.control.signal)) {
      if (piece.digest && piece.total) {
        files.set(piece.digest, { total: piece.total, completed: piece.completed ?? 0 });
        const all = [...files.values()];
        const total = all.reduce((sum, it) => sum + it.total, 0), completed = all.reduce((sum, it) => sum + it.completed, 0);
        const now = performance.now();
        came.push([now, completed]);
        while (came.length > 2 && now - came[0][0] > 5000) came.shift();
        const rate = came.length > 1 && now - came[0][0] > 500 ? (completed - came[0][1]) / (now - came[0][0]) * 1000 : 0;
        bar.value = completed / total;
        status.textContent = bytes(completed) + " of " + bytes(total) + (rate > 0 ? ", " + bytes(rate) + "/s, " + seconds((total - completed) / rate) + " left" : "");
      } else {
        status.textContent = piece.status ?? "";
        isDone ||= piece.status === "success";
      }
    }
    if (!isDone) throw new Error("The server ended the connection.");
    pulls.delete(name);
    state.element.remove();
    say(name + " is here");
    notice(name + " is here.", { label: "Chat", run: () => app.chatWith(name) });
  } catch (error) {
    const text = state.control.signal.aborted ? "Cancelled; what has come is kept for the next time" : error.message;
    status.textContent = text;
    status.classList.add("bad");
    bar.remove();
    say(name + ": " + text);
    cancel.replaceWith(
      el("button", { type: "button", "aria-label": "Try again: " + name, onclick: () => pull(name, insecure) }, "Try again"),
      iconButton("close", "Remove " + name + " from the list", () => { pulls.delete(name); state.element.remove(); }));
  } finally {
    state.control = null;
  }
  if (isShown()) await refresh().catch(() => {});
  else await app.refreshModels();
}
