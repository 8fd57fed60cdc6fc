// The pane where two models answer the same prompt, side by side.

import { receive, tellWait } from "./answer.js";
import * as talk from "./conversation.js";
import { MessageView } from "./message.js";
import * as store from "./store.js";
import { button, el, icon, iconButton, notice, say, short } from "./dom.js";

let app;
let root = null;
// Two conversations, of which nothing is kept unless one of them goes on as a chat.
let sides = [];
let prompt, send;
let control = null;

export function setUp(shared) { app = shared; }

export const isShown = () => Boolean(root?.isConnected);
export const stop = () => control?.abort();

export function open(main) {
  if (!root) build();
  main.replaceChildren(root);
  showModels();
  prompt.focus();
}

function build() {
  sides = ["First model", "Second model"].map((label) => {
    const side = { chat: talk.create() };
    side.select = el("select", { "aria-label": label, onchange: () => { side.chat.model = side.select.value; } });
    side.list = el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": "Answers of the " + label.toLowerCase() });
    side.more = button("Go on as a chat", () => goOn(side), { hidden: true });
    side.element = el("section", { class: "side" }, el("div", { class: "row" }, side.select, el("span", { class: "grow" }), side.more), side.list);
    return side;
  });
  prompt = el("textarea", { rows: "2", "aria-label": "Prompt for both", placeholder: "Ask both", autocomplete: "off", maxLength: 4000000 });
  send = el("button", { class: "main icon", id: "send-both" });
  const form = el("form", { id: "compose" }, prompt, el("div", { class: "bar" },
    iconButton("trash", "Begin anew", reset), send));
  form.addEventListener("submit", (event) => { event.preventDefault(); if (control) stop(); else ask(); });
  prompt.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !event.ctrlKey) { event.preventDefault(); if (!control) ask(); }
  });
  root = el("div", { class: "page compare" },
    el("header", { class: "top" }, app.menuButton(), el("h2", {}, "Compare")),
    el("div", { class: "sides" }, sides.map((side) => side.element)),
    el("div", { class: "below" }, form));
  showState();
}

const canTalk = (model) => !model.capabilities.length || model.capabilities.includes("completion");

export function showModels() {
  if (!root) return;
  const models = app.models().filter(canTalk);
  sides.forEach((side, n) => {
    side.select.replaceChildren(...models.map((model) => el("option", { value: model.name }, short(model.name))));
    const isThere = models.some((model) => model.name === side.chat.model);
    if (!isThere) side.chat.model = (models[n] ?? models[0])?.name ?? "";
    side.select.value = side.chat.model;
  });
}

function showState() {
  const isBusy = control !== null;
  send.replaceChildren(icon(isBusy ? "stop" : "send"));
  send.setAttribute("aria-label", isBusy ? "Stop" : "Send to both");
  send.title = isBusy ? "Stop (Esc)" : "Send (Enter)";
  for (const { chat, more, select } of sides) {
    select.disabled = isBusy;
    more.hidden = isBusy || chat.leaf === null;
  }
}

function reset() {
  stop();
  for (const side of sides) {
    side.chat = talk.create(side.select.value);
    side.list.replaceChildren();
  }
  showState();
  prompt.focus();
}

// A message shows itself; there are no branches here.
const actions = {
  place: () => ({ index: 0, total: 1 }),
  retry: null,
  edit: null,
};

async function ask() {
  const text = prompt.value.trim();
  if (!text || control) return;
  if (sides.some(({ chat }) => !chat.model)) { notice("There is no model yet.", { label: "Get one", run: () => { location.hash = "#/models"; } }); return; }
  prompt.value = "";
  control = new AbortController();
  const mine = control;
  showState();
  say("Both answer");
  await Promise.all(sides.map((side) => answer(side, text, mine.signal)));
  if (control !== mine) return;
  control = null;
  showState();
  say(mine.signal.aborted ? "Stopped" : "Both have answered");
}

async function answer(side, text, signal) {
  const { chat, list } = side;
  const show = (node, isWhole) => {
    const view = new MessageView(node, actions);
    view.update(isWhole);
    list.append(view.element);
    return view;
  };
  show(talk.add(chat, chat.leaf, { role: "user", content: text }), true);
  const node = talk.add(chat, chat.leaf, { role: "assistant", model: chat.model, unfinished: true });
  const view = show(node, false);
  list.scrollTop = list.scrollHeight;
  const waiting = setTimeout(() => tellWait(view, chat.model), 700);
  let frame = 0;
  const draw = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
      view.update(false);
      if (isAtEnd) list.scrollTop = list.scrollHeight;
    });
  };
  const model = app.models().find((it) => it.name === chat.model);
  await receive(chat, node, model, signal, (stats) => { if (stats.first) clearTimeout(waiting); draw(); });
  clearTimeout(waiting);
  cancelAnimationFrame(frame);
  view.update(true);
  list.scrollTop = list.scrollHeight;
}

async function goOn(side) {
  if (await store.isFull()) {
    notice("This browser keeps a thousand conversations already: export and delete some.");
    return;
  }
  side.chat.updated = Date.now();
  await store.save(side.chat);
  app.listChanged();
  const { id } = side.chat;
  // The chat is its own from here on.
  side.chat = talk.create(side.chat.model);
  side.list.replaceChildren();
  showState();
  location.hash = "#/c/" + id;
}
