// The pane with one conversation.

import { receive, tellWait } from "./answer.js";
import * as api from "./api.js";
import { bytes, confirm, count, download, el, icon, iconButton, ask, notice, say, short } from "./dom.js";
import * as talk from "./conversation.js";
import { MessageView, resultsForm } from "./message.js";
import { editOptions, isChanged } from "./options.js";
import * as store from "./store.js";

// Messages that are built at once; earlier ones come when one scrolls up.
const SCREENFUL = 40;
// How often an answer that comes is kept.
const KEEP_EVERY = 1500;
const MAX_IMAGES = 8, MAX_IMAGE_BYTES = 30e6, MAX_SIDE = 2048;

// Answers on their way, by conversation; they go on while another one is shown.
const running = new Map();
export const isRunning = (id) => running.has(id);

let app;
let chat = null;
let views = [];
// How many messages of the path are not built yet.
let earlier = 0;
let images = [];
// What was written and not sent, by conversation.
const drafts = new Map();
let follows = true;
// The browser ends all connections then, which is no failure of the server.
let isLeaving = false;
let root = null;
let parts = {};

export function setUp(shared) {
  app = shared;
  addEventListener("pagehide", () => {
    isLeaving = true;
    for (const run of running.values()) keep(run.chat);
  });
  // One that comes back as it was left has answers that will never end.
  addEventListener("pageshow", () => { if (isLeaving && running.size) location.reload(); isLeaving = false; });
}

export const shown = () => (root?.isConnected ? chat : null);

// ---- the pane ----

function buildPane() {
  const select = el("select", { id: "model", "aria-label": "Model", onchange: () => chooseModel(select.value) });
  const options = el("button", { type: "button", id: "options", onclick: changeOptions }, icon("tune"), el("span", {}, "Options"));
  const menu = el("details", { class: "menu" },
    el("summary", { "aria-label": "More", title: "More" }, icon("more")),
    el("div", {},
      entry("Rename", rename), entry("Export as Markdown", exportMarkdown), entry("Export as JSON", exportJson), entry("Delete", remove, "danger")));
  function entry(label, act, kind) {
    return el("button", { type: "button", class: kind, onclick: () => { menu.open = false; act(); } }, label);
  }
  const list = el("div", { id: "talk", tabindex: "0", role: "group", "aria-label": "Conversation" });
  const inner = el("div", { class: "inner" });
  list.append(inner);
  const latest = el("button", { type: "button", id: "latest", hidden: true, onclick: () => toEnd(true) }, icon("down"), "Latest");
  const prompt = el("textarea", { id: "prompt", rows: "1", "aria-label": "Message", placeholder: "Message", autocomplete: "off", maxLength: 4000000 });
  const file = el("input", { type: "file", accept: "image/*", multiple: true, hidden: true, onchange: () => { takeFiles(file.files); file.value = ""; } });
  const attach = iconButton("image", "Add images", () => file.click(), { id: "attach", hidden: true });
  const send = el("button", { id: "send", class: "main icon", "aria-label": "Send", title: "Send (Enter)" }, icon("send"));
  const meter = el("div", { id: "meter", hidden: true }, el("span", {}), el("progress", { max: "1", value: "0", "aria-label": "Context used" }));
  const pictures = el("div", { class: "pictures" });
  const form = el("form", { id: "compose" }, pictures, prompt, el("div", { class: "bar" }, attach, file, meter, send));
  form.addEventListener("submit", (event) => { event.preventDefault(); if (running.has(chat.id)) stop(); else submit(); });
  prompt.addEventListener("keydown", onPromptKey);
  prompt.addEventListener("input", () => { grow(); drafts.set(chat.id, prompt.value); });
  prompt.addEventListener("paste", (event) => {
    const files = [...event.clipboardData.files].filter((it) => it.type.startsWith("image/"));
    if (files.length) { event.preventDefault(); takeFiles(files); }
  });
  list.addEventListener("scroll", onScroll, { passive: true });
  root = el("div", { class: "chat" },
    el("header", { class: "top" }, app.menuButton(), el("h2", { class: "unseen" }, "Conversation"), select, el("span", { class: "grow" }), options, menu),
    list, el("div", { class: "below" }, latest, form, el("p", { class: "hint" }, "Models make mistakes. ", el("kbd", {}, "Enter"), " sends, ", el("kbd", {}, "Shift"), " ", el("kbd", {}, "Enter"), " begins a line.")));
  // Pictures, and messages whose height was only guessed while they were out of sight.
  new ResizeObserver(() => toEnd(false)).observe(inner);
  root.addEventListener("dragover", (event) => { if (event.dataTransfer.types.includes("Files")) { event.preventDefault(); root.classList.add("drop"); } });
  root.addEventListener("dragleave", () => root.classList.remove("drop"));
  root.addEventListener("drop", (event) => {
    root.classList.remove("drop");
    if (!event.dataTransfer.files.length) return;
    event.preventDefault();
    takeFiles(event.dataTransfer.files);
  });
  parts = { select, options, menu, list, inner, latest, prompt, attach, send, meter, pictures };
}

export function closeMenu() {
  if (!parts.menu?.open) return false;
  parts.menu.open = false;
  return true;
}

// Shows a conversation, or a new one, unless somebody has gone elsewhere before it is read.
export async function open(main, id, isCurrent) {
  let next = id ? running.get(id)?.chat ?? (chat?.id === id && root ? chat : await store.load(id).catch(() => null)) : null;
  if (!isCurrent()) return;
  if (id && !next) {
    notice("This conversation is not in this browser.");
    location.hash = "#/";
    return;
  }
  next ??= talk.create(store.setting("model"));
  if (!root) buildPane();
  if (chat !== next) {
    chat = next;
    images = [];
    parts.prompt.value = drafts.get(chat.id) ?? "";
  }
  main.replaceChildren(root);
  showModels();
  rebuild();
  grow();
  showImages();
  // Where it would not open a keyboard on the screen.
  if (!matchMedia("(pointer: coarse)").matches) parts.prompt.focus();
}

// Another tab has changed a conversation.
export async function changedElsewhere(id) {
  const isOpen = () => shown() && chat.id === id;
  if (!isOpen() && !running.has(id)) return;
  const next = await store.load(id);
  const run = running.get(id);
  // While an answer comes here, what is new there is only added.
  if (next && run) run.chat.nodes = { ...next.nodes, ...run.chat.nodes };
  else if (next && isOpen()) {
    chat = next;
    rebuild();
  }
}

export function showModels() {
  if (!root) return;
  const { select, prompt } = parts;
  const models = app.models().filter((model) => !model.capabilities.length || model.capabilities.includes("completion"));
  if (!chat.model || (!models.some((model) => model.name === chat.model) && !talk.path(chat).length)) chat.model = models[0]?.name ?? "";
  select.replaceChildren(...models.map((model) => el("option", { value: model.name }, short(model.name) + (model.isDefault ? " (default)" : ""))));
  if (chat.model && !models.some((model) => model.name === chat.model)) select.prepend(el("option", { value: chat.model }, short(chat.model) + (app.hasModels() ? " (not here)" : "")));
  select.value = chat.model;
  select.disabled = !select.options.length;
  prompt.placeholder = chat.model ? "Message " + short(chat.model) : "Message";
  const sees = can("vision");
  parts.attach.hidden = !sees;
  if (!sees && images.length) { images = []; showImages(); }
  showState();
  showEmpty();
}

const model = () => app.models().find((it) => it.name === chat.model);
const can = (what) => Boolean(model()?.capabilities.includes(what));

function chooseModel(name) {
  chat.model = name;
  store.setting("model", name);
  showModels();
  if (Object.keys(chat.nodes).length) keep(chat);
}

// What depends on whether an answer is on its way.
function showState() {
  const isBusy = running.has(chat.id);
  parts.send.replaceChildren(icon(isBusy ? "stop" : "send"));
  parts.send.setAttribute("aria-label", isBusy ? "Stop" : "Send");
  parts.send.title = isBusy ? "Stop (Esc)" : "Send (Enter)";
  parts.options.classList.toggle("changed", isChanged(chat));
  document.title = (talk.path(chat).length ? talk.titleOf(chat) + " · " : "") + "llmsrv";
  showMeter();
}

// ---- messages ----

const actions = {
  place(node) {
    const all = talk.siblings(chat, node);
    return { index: all.indexOf(node), total: all.length };
  },
  branch(node, step) {
    if (running.has(chat.id)) return;
    const all = talk.siblings(chat, node);
    const next = all[all.indexOf(node) + step];
    if (!next) return;
    chat.leaf = talk.newestLeaf(chat, next);
    rebuild(next.id);
    keep(chat);
  },
  edit(node, text) {
    if (running.has(chat.id)) return;
    talk.add(chat, node.parent, { role: "user", content: text, ...(node.images && { images: node.images }) });
    rebuild();
    answer();
  },
  retry(node) {
    if (running.has(chat.id)) return;
    chat.leaf = node.parent;
    rebuild();
    answer();
  },
};

// Builds the end of the path anew.
function rebuild(focused) {
  const path = talk.path(chat);
  earlier = Math.max(0, path.length - SCREENFUL);
  const at = focused ? path.findIndex((node) => node.id === focused) : -1;
  if (at >= 0) earlier = Math.min(earlier, at);
  views = path.slice(earlier).map(viewOf);
  parts.inner.replaceChildren(...views.map((view) => view.element));
  showEarlier();
  showEmpty();
  showResults();
  showState();
  if (at >= 0) {
    const view = views[at - earlier];
    view.element.scrollIntoView({ block: "nearest" });
    view.element.focus({ preventScroll: true });
  } else toEnd(true);
}

function viewOf(node) {
  const view = new MessageView(node, actions);
  const run = running.get(chat.id);
  if (run?.node === node) { run.view = view; view.update(false); } else view.update(true);
  return view;
}

function append(node) {
  const view = viewOf(node);
  views.push(view);
  parts.inner.querySelector(".results")?.remove();
  parts.inner.querySelector(".empty")?.remove();
  parts.inner.append(view.element);
  return view;
}

let watcher = null;
function showEarlier() {
  watcher?.disconnect();
  parts.inner.querySelector(".earlier")?.remove();
  if (!earlier) return;
  const more = el("button", { type: "button", class: "earlier", onclick: buildEarlier }, count(earlier) + " earlier messages");
  parts.inner.prepend(more);
  watcher = new IntersectionObserver((seen) => { if (seen.some((it) => it.isIntersecting)) buildEarlier(); }, { root: parts.list, rootMargin: "400px" });
  // What is built first is at the end; only a scroll leads here.
  requestAnimationFrame(() => { if (more.isConnected) watcher.observe(more); });
}

function buildEarlier() {
  const path = talk.path(chat);
  const start = Math.max(0, earlier - SCREENFUL);
  const more = path.slice(start, earlier).map(viewOf);
  const { list } = parts;
  const bottom = list.scrollHeight - list.scrollTop;
  parts.inner.querySelector(".earlier")?.after(...more.map((view) => view.element));
  views.unshift(...more);
  earlier = start;
  showEarlier();
  // What one reads stays where it is.
  list.scrollTop = list.scrollHeight - bottom;
}

function showEmpty() {
  if (!root) return;
  parts.inner.querySelector(".empty")?.remove();
  if (talk.path(chat).length) return;
  const all = app.models();
  const name = chat.model ? short(chat.model) : "";
  const lines = [el("h2", {}, !app.hasModels() ? "One moment" : name ? "Ask " + name : "There is no model yet")];
  if (app.hasModels() && all.length <= 1) {
    lines.push(el("p", {}, name ? "The built-in model is small: it greets, writes short functions and commands. " : "", el("a", { href: "#/models" }, name ? "Get a larger one" : "Get one"), name ? " for real work." : ""));
  }
  if (name) {
    lines.push(el("div", { class: "ideas" }, IDEAS.map((text) => el("button", { type: "button", onclick: () => { parts.prompt.value = text; submit(); } }, text))));
  }
  parts.inner.append(el("div", { class: "empty" }, lines));
}

const IDEAS = ["Who are you?", "Write a Python function that reverses a string.", "Which command finds large files?"];

// Fields for the results of tools, below an answer that calls some.
function showResults() {
  parts.inner.querySelector(".results")?.remove();
  const last = chat.nodes[chat.leaf];
  if (!last?.tool_calls?.length || running.has(chat.id)) return;
  parts.inner.append(resultsForm(last, (results) => {
    for (const result of results) append(talk.add(chat, chat.leaf, result));
    answer();
  }));
}

// ---- scrolling ----

function isAtEnd() {
  const { list } = parts;
  return list.scrollHeight - list.scrollTop - list.clientHeight < 60;
}

function toEnd(force) {
  if (force) follows = true;
  if (follows) parts.list.scrollTop = parts.list.scrollHeight;
  parts.latest.hidden = follows;
}

let lastTop = 0;
function onScroll() {
  const { list, latest } = parts;
  // Only somebody who scrolls up stops following: a text that shrinks leaves one at its end.
  if (isAtEnd()) follows = true;
  else if (list.scrollTop < lastTop - 2) follows = false;
  lastTop = list.scrollTop;
  latest.hidden = follows;
}

// ---- writing ----

function grow() {
  const { prompt } = parts;
  prompt.style.height = "auto";
  prompt.style.height = Math.min(prompt.scrollHeight, innerHeight * 0.4) + "px";
}

function onPromptKey(event) {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !event.ctrlKey) {
    event.preventDefault();
    if (!running.has(chat.id)) submit();
  } else if (event.key === "ArrowUp" && !parts.prompt.value) {
    const mine = views.findLast((view) => view.node.role === "user");
    if (mine && !running.has(chat.id)) { event.preventDefault(); mine.edit(); }
  }
}

export function focusPrompt() {
  if (shown()) parts.prompt.focus();
}

async function takeFiles(files) {
  if (!can("vision")) {
    notice((chat.model ? short(chat.model) : "This model") + " cannot see images. Choose a model with “vision”.");
    return;
  }
  for (const file of files) {
    if (images.length >= MAX_IMAGES) { notice("A message holds up to " + MAX_IMAGES + " images."); break; }
    try {
      images.push(await readImage(file));
    } catch (error) {
      notice(file.name + ": " + error.message);
    }
  }
  showImages();
}

// Images are sent as PNG or JPEG; larger ones than models look at are made smaller.
async function readImage(file) {
  if (file.size > MAX_IMAGE_BYTES) throw new Error("larger than " + bytes(MAX_IMAGE_BYTES));
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error("not an image that this browser reads");
  }
  const scale = Math.min(1, MAX_SIDE / Math.max(bitmap.width, bitmap.height));
  let blob = file;
  if (scale < 1 || !/^image\/(png|jpeg)$/.test(file.type)) {
    const canvas = el("canvas");
    canvas.width = Math.max(1, Math.round(bitmap.width * scale));
    canvas.height = Math.max(1, Math.round(bitmap.height * scale));
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, canvas.height);
    blob = await new Promise((done) => canvas.toBlob(done, file.type === "image/jpeg" ? "image/jpeg" : "image/png", 0.92));
  }
  bitmap.close();
  const address = await new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => failed(new Error("cannot be read"));
    reader.readAsDataURL(blob);
  });
  return { kind: blob.type, data: address.slice(address.indexOf(",") + 1) };
}

function showImages() {
  parts.pictures.replaceChildren(...images.map((it, n) => el("span", {},
    el("img", { src: "data:" + it.kind + ";base64," + it.data, alt: "Image " + (n + 1) + " to send" }),
    iconButton("close", "Remove image " + (n + 1), () => { images.splice(n, 1); showImages(); parts.prompt.focus(); }))));
}

async function submit() {
  const text = parts.prompt.value.trim();
  if ((!text && !images.length) || running.has(chat.id)) return;
  if (!chat.model) { notice("There is no model yet.", { label: "Get one", run: () => { location.hash = "#/models"; } }); return; }
  if (!Object.keys(chat.nodes).length && await store.isFull()) {
    notice("This browser keeps a thousand conversations already: export and delete some.");
    return;
  }
  const node = talk.add(chat, chat.leaf, { role: "user", content: text, ...(images.length && { images }) });
  images = [];
  drafts.delete(chat.id);
  parts.prompt.value = "";
  grow();
  showImages();
  append(node);
  answer();
}

// ---- answers ----

// Asks for what follows the end of the path.
async function answer() {
  const mine = chat;
  const node = talk.add(mine, mine.leaf, { role: "assistant", model: mine.model, unfinished: true });
  const run = { chat: mine, node, control: new AbortController(), view: null, drawn: 0, cost: 0, kept: performance.now(), keeping: 0 };
  running.set(mine.id, run);
  run.view = append(node);
  toEnd(true);
  showState();
  say(short(mine.model) + " answers");
  keep(mine);
  if (location.hash !== "#/c/" + mine.id) app.go("#/c/" + mine.id);
  const waiting = setTimeout(() => tellWait(run.view, mine.model), 700);
  const model = app.models().find((it) => it.name === mine.model);
  const stats = await receive(mine, node, model, run.control.signal, (stats) => {
    if (stats.first) clearTimeout(waiting);
    draw(run);
    if (performance.now() - run.kept > Math.max(KEEP_EVERY, 40 * run.keeping)) keep(mine, run);
  });
  clearTimeout(waiting);
  if (isLeaving) return;
  running.delete(mine.id);
  cancelAnimationFrame(run.frame);
  const isShown = shown() === mine;
  if (isShown) {
    run.view.update(true);
    showResults();
    showState();
    toEnd(false);
    say(node.error ? "Failed: " + node.error : (node.stopped ? "Stopped. " : "") + node.content.slice(0, 4000));
  }
  await keep(mine);
  if (!stats.tokens) return;
  node.stats.context = await contextOf(mine).catch(() => 0);
  if (shown() === mine) showMeter();
  await keep(mine);
}

export function stop() {
  running.get(chat?.id)?.control.abort();
}

// Draws what has come, at most once a frame, and less often where drawing takes long.
function draw(run) {
  if (run.frame || shown() !== run.chat) return;
  const frame = () => {
    run.frame = 0;
    if (!running.has(run.chat.id) || shown() !== run.chat) return;
    const now = performance.now();
    if (now - run.drawn < run.cost * 4) { run.frame = requestAnimationFrame(frame); return; }
    run.view.update(false);
    toEnd(false);
    run.drawn = performance.now();
    run.cost = run.drawn - now;
  };
  run.frame = requestAnimationFrame(frame);
}

async function contextOf(mine) {
  if (mine.options.num_ctx) return mine.options.num_ctx;
  const { models } = await api.get("api/ps");
  return models.find((it) => it.name === mine.model)?.context_length ?? 0;
}

function showMeter() {
  const last = talk.path(chat).findLast((node) => node.stats?.tokens);
  const { meter } = parts;
  meter.hidden = !last;
  if (!last) return;
  const used = last.stats.prompt + last.stats.tokens, total = last.stats.context;
  meter.firstChild.textContent = count(used) + (total ? " of " + count(total) : "") + " tokens";
  meter.lastChild.hidden = !total;
  meter.lastChild.value = total ? Math.min(1, used / total) : 0;
  meter.classList.toggle("full", Boolean(total) && used / total > 0.9);
}

// Conversations that were deleted while an answer came; its end must not bring them back.
const gone = new Set();

async function keep(it, run) {
  if (gone.has(it.id)) return;
  if (!run) it.updated = Date.now();
  try {
    const at = performance.now();
    const saved = store.save(it);
    // A long conversation takes its time to be copied.
    if (run) Object.assign(run, { kept: performance.now(), keeping: performance.now() - at });
    await saved;
    app.listChanged();
  } catch (error) {
    notice(error.name === "QuotaExceededError" ? "This browser has no room for more conversations: export and delete some." : "The conversation could not be kept: " + error.message);
  }
}

// ---- the menu ----

async function changeOptions() {
  if (!await editOptions(chat, model())) return;
  showState();
  if (Object.keys(chat.nodes).length) keep(chat);
  parts.prompt.focus();
}

export async function rename(id = chat.id) {
  const it = running.get(id)?.chat ?? (chat?.id === id ? chat : await store.load(id));
  if (!it) return;
  const title = await ask("Rename the conversation", "Title", talk.titleOf(it));
  if (title === null) return;
  it.title = title;
  if (!Object.keys(it.nodes).length) return;
  await keep(it);
  if (shown() === it) showState();
}

export async function remove(id = chat.id) {
  const it = chat?.id === id ? chat : await store.load(id);
  if (!it || !await confirm("Delete this conversation?", "“" + talk.titleOf(it) + "” is removed from this browser.", "Delete")) return;
  gone.add(id);
  running.get(id)?.control.abort();
  await store.remove(id);
  drafts.delete(id);
  app.listChanged();
  if (chat?.id === id) { chat = null; app.newChat(); }
}

const fileName = () => talk.titleOf(chat).replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 50) || "conversation";
function exportMarkdown() { download(fileName() + ".md", "text/markdown", talk.toMarkdown(chat)); }
function exportJson() { download(fileName() + ".json", "application/json", talk.toJson([chat])); }
