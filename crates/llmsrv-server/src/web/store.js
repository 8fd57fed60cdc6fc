// The conversations that this browser keeps, in IndexedDB. Where there is none (private windows of some
// browsers), they last as long as the page.

import { titleOf } from "./conversation.js";

let database = null;
const inMemory = new Map();
// More would make the list slow; nothing is thrown away unasked.
const MOST = 1000;

const promise = (request) => new Promise((done, failed) => {
  request.onsuccess = () => done(request.result);
  request.onerror = () => failed(request.error);
});

export async function open() {
  try {
    const request = indexedDB.open("llmsrv", 1);
    request.onupgradeneeded = () => {
      for (const name of ["chats", "titles"]) request.result.createObjectStore(name, { keyPath: "id" });
    };
    database = await promise(request);
    // A later version of the app, in another tab, may need another form.
    database.onversionchange = () => { database.close(); database = null; };
  } catch {
    database = null;
  }
  return database !== null;
}

const stores = (mode) => {
  const transaction = database.transaction(["chats", "titles"], mode, { durability: "relaxed" });
  return { chats: transaction.objectStore("chats"), titles: transaction.objectStore("titles"), transaction };
};

// What is committed at once is kept also where the page is left right after.
const finished = (transaction) => new Promise((done, failed) => {
  transaction.commit();
  transaction.oncomplete = () => done();
  transaction.onerror = transaction.onabort = () => failed(transaction.error);
});

// What the list shows: { id, title, updated }, newest first.
export async function titles() {
  const list = database ? await promise(stores("readonly").titles.getAll()) : [...inMemory.values()].map(titleRow);
  return list.sort((a, b) => b.updated - a.updated);
}

const titleRow = (chat) => ({ id: chat.id, title: titleOf(chat), updated: chat.updated });

export async function load(id) {
  return database ? promise(stores("readonly").chats.get(id)) : structuredClone(inMemory.get(id));
}

export async function all() {
  return database ? promise(stores("readonly").chats.getAll()) : [...inMemory.values()];
}

// Tells other tabs what has changed.
const tabs = "BroadcastChannel" in window ? new BroadcastChannel("llmsrv") : null;
export function onChange(act) {
  if (tabs) tabs.onmessage = ({ data }) => act(data);
}

export async function save(chat) {
  if (database) {
    const { chats, titles, transaction } = stores("readwrite");
    chats.put(chat);
    titles.put(titleRow(chat));
    await finished(transaction);
  } else inMemory.set(chat.id, structuredClone(chat));
  tabs?.postMessage(chat.id);
}

export async function remove(id) {
  if (database) {
    const { chats, titles, transaction } = stores("readwrite");
    chats.delete(id);
    titles.delete(id);
    await finished(transaction);
  } else inMemory.delete(id);
  tabs?.postMessage(id);
}

// Tells whether there are so many that somebody should tidy up before more are made.
export async function isFull() {
  return (database ? await promise(stores("readonly").titles.count()) : inMemory.size) >= MOST;
}

// ---- what was chosen last ----

export function setting(name, value) {
  try {
    if (value === undefined) return localStorage.getItem("llmsrv-" + name) ?? "";
    localStorage.setItem("llmsrv-" + name, value);
  } catch { /* nothing is remembered then */ }
  return "";
}
