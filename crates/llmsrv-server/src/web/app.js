// Where the app begins: the panes and the way between them, the list of conversations, keys of the keyboard.

import * as api from "./api.js";
import * as chats from "./chat.js";
import * as compare from "./compare.js";
import * as machine from "./machine.js";
import * as modelPane from "./models.js";
import * as store from "./store.js";
import * as talk from "./conversation.js";
import { $, ago, dialog, download, el, iconButton, notice, say } from "./dom.js";

let models = [];
let hasModels = false;
// How often they were asked for, and the last time's end.
let asked = 0;
let refreshing = null;

const app = {
  models: () => models,
  hasModels: () => hasModels,
  menuButton: () => iconButton("menu", "Menu", () => openSide(true), { class: "icon menu-button" }),
  refreshModels() {
    const mine = ++asked;
    refreshing = (async () => {
      const found = await api.models();
      // Somebody asked again meanwhile: that answer is the one to wait for.
      if (mine !== asked) return refreshing;
      models = found;
      hasModels = true;
      chats.showModels();
      compare.showModels();
    })();
    return refreshing;
  },
  // Goes to an address that is shown already.
  go(hash) {
    history.pushState(null, "", hash);
    mark();
  },
  newChat() {
    if (location.hash === "#/" || location.hash === "") route();
    else location.hash = "#/";
  },
  chatWith(model) {
    store.setting("model", model);
    app.newChat();
  },
  listChanged() {
    clearTimeout(listing);
    listing = setTimeout(list, 100);
  },
  // What stands in a pane that the caller's role does not reach.
  mayNot(what) {
    const text = api.hasKey()
      ? what + " are for keys with the role “manage” or “admin”. Yours may chat."
      : what + " are for this server’s own machine, or for keys with the role “manage” or “admin”. From here you may chat.";
    return el("div", { class: "scroll" }, el("div", { class: "inner" }, el("div", { class: "empty" },
      el("h2", {}, "Not with this role"), el("p", {}, text),
      el("button", { type: "button", onclick: otherKey }, "Use another key"))));
  },
};

async function otherKey() {
  if (!await api.askKey(false)) return;
  await start();
  route();
}

// ---- panes ----

const main = $("main");

let turn = 0;
function route() {
  const mine = ++turn;
  openSide(false);
  const [, pane = "", id = ""] = location.hash.split("/");
  mark();
  if (pane === "models") { document.title = "Models · llmsrv"; modelPane.open(main).catch((error) => notice(error.message)); }
  else if (pane === "compare") { document.title = "Compare · llmsrv"; compare.open(main); }
  else if (pane === "machine") { document.title = "Machine · llmsrv"; machine.open(main); }
  else chats.open(main, pane === "c" ? id : null, () => mine === turn);
}

// Shows where one is.
function mark() {
  const [, pane = ""] = location.hash.split("/");
  // From another pane it leads back to the conversation.
  if (pane === "c") $("to-chat").href = location.hash;
  for (const [id, name] of [["to-chat", ""], ["to-compare", "compare"], ["to-models", "models"], ["to-machine", "machine"]]) {
    const isHere = name === pane || (name === "" && pane === "c");
    if (isHere) $(id).setAttribute("aria-current", "page");
    else $(id).removeAttribute("aria-current");
  }
  for (const link of $("chats").querySelectorAll("a")) {
    if (link.hash === location.hash) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// ---- the side ----

function openSide(isOpen) {
  const wasOpen = document.body.classList.contains("side-open");
  document.body.classList.toggle("side-open", isOpen);
  $("shade").hidden = !isOpen;
  main.inert = isOpen;
  if (isOpen) $("new").focus();
  else if (wasOpen) document.querySelector(".menu-button")?.focus();
}

let listing = 0;
let titles = [];
async function list() {
  titles = await store.titles().catch(() => []);
  drawList();
}

// Rows of the list at once; the search finds the others.
const ROWS = 200;

function drawList() {
  const words = $("find").value.trim().toLowerCase();
  const found = titles.filter((it) => it.title.toLowerCase().includes(words));
  $("no-chats").hidden = titles.length > 0;
  $("find").hidden = titles.length < 8;
  const focused = document.activeElement?.closest?.("#chats li")?.dataset.id;
  $("chats").replaceChildren(...found.slice(0, ROWS).map((it) => el("li", { "data-id": it.id },
    el("a", { href: "#/c/" + it.id, title: it.title }, el("span", {}, it.title), el("time", {}, chats.isRunning(it.id) ? "…" : ago(it.updated))),
    iconButton("edit", "Rename " + it.title, () => chats.rename(it.id)),
    iconButton("trash", "Delete " + it.title, () => chats.remove(it.id)))));
  if (focused) $("chats").querySelector('li[data-id="' + CSS.escape(focused) + '"] a')?.focus();
  mark();
}

$("find").addEventListener("input", drawList);
$("new").addEventListener("click", () => { openSide(false); app.newChat(); });
$("close-side").replaceWith(iconButton("close", "Close the menu", () => openSide(false), { id: "close-side" }));
$("shade").addEventListener("click", () => openSide(false));
$("version").after(iconButton("keys", "Keyboard (?)", showKeys), iconButton("theme", "Light or dark", switchTheme, { id: "theme" }));

$("export-all").addEventListener("click", async () => {
  const all = await store.all();
  if (!all.length) { notice("There is nothing to export yet."); return; }
  download("llmsrv-conversations.json", "application/json", talk.toJson(all));
});
$("import").addEventListener("click", () => $("import-file").click());
$("import-file").addEventListener("change", async () => {
  const [file] = $("import-file").files;
  $("import-file").value = "";
  if (!file) return;
  try {
    if (file.size > 64 << 20) throw new talk.Unreadable("The file is larger than 64 MB.");
    const read = talk.fromFile(await file.text());
    for (const chat of read) await store.save(chat);
    await list();
    notice(read.length === 1 ? "One conversation was imported." : read.length + " conversations were imported.");
    location.hash = "#/c/" + read[0].id;
  } catch (error) {
    notice(error.message);
  }
});

// ---- light and dark ----

function switchTheme() {
  const root = document.documentElement;
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = isDark ? "light" : "dark";
  store.setting("theme", root.dataset.theme);
}
const theme = store.setting("theme");
if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;

// ---- the keyboard ----

const KEYS = [
  [["n"], "New chat (Alt N in a field)"], [["/"], "To the message"], [["Enter"], "Send"], [["Shift", "Enter"], "New line"],
  [["Esc"], "Stop the answer"], [["↑"], "Edit the last message, in an empty field"], [["m"], "Menu on a narrow screen"], [["?"], "This list"],
];

function showKeys() {
  dialog("Keyboard", el("dl", { class: "keys" }, KEYS.flatMap(([keys, text]) => [el("dt", {}, keys.map((key) => el("kbd", {}, key))), el("dd", {}, text)])), [{ label: "Close", value: "" }], { class: "small" });
}

addEventListener("keydown", (event) => {
  if ($("dialog").open) return;
  if (event.key === "Escape") {
    if (document.body.classList.contains("side-open")) openSide(false);
    else if (compare.isShown()) compare.stop();
    else if (!chats.closeMenu() && chats.shown()) chats.stop();
    return;
  }
  const isField = /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName);
  if (event.altKey && event.code === "KeyN") { event.preventDefault(); app.newChat(); return; }
  if (isField || event.ctrlKey || event.metaKey || event.altKey) return;
  const act = { n: app.newChat, "/": chats.focusPrompt, "?": showKeys, m: () => openSide(true) }[event.key];
  if (act) { event.preventDefault(); act(); }
});
document.addEventListener("click", (event) => { if (!event.target.closest(".menu")) chats.closeMenu(); });

// ---- the start ----

async function start() {
  try {
    await api.learnRole();
    await app.refreshModels();
    const { llmsrv_version: version } = await api.get("api/version");
    $("version").textContent = version ?? "";
  } catch (error) {
    hasModels = models.length > 0;
    notice(error.message, { label: "Try again", run: start });
  }
}

// What nobody was prepared for is told, and stays on the console.
addEventListener("unhandledrejection", ({ reason }) => notice(reason?.message ?? "Something went wrong."));
for (const part of [chats, compare, modelPane, machine]) part.setUp(app);
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); main.focus(); });
store.onChange((id) => { app.listChanged(); chats.changedElsewhere(id); });
if (!await store.open()) say("This browser keeps no conversations");
// From here on conversations can be found. The pane is there before the server has answered.
addEventListener("hashchange", route);
route();
list();
const could = api.mayManage();
await start();
// What the role allows is known now; a pane that allows it already is left as it is.
if (api.mayManage() !== could && /^#\/(models|machine)/.test(location.hash)) route();
