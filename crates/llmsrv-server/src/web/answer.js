// Asking a model, and what comes back.

import * as api from "./api.js";
import * as talk from "./conversation.js";
import { forRequest } from "./options.js";

// Fills the answer `node` of a conversation with what comes; `came` is called after each piece.
// Returns { first, thought } in seconds, and what the last piece says: tokens, nanos, prompt, …
export async function receive(chat, node, model, signal, came) {
  const began = performance.now();
  const elapsed = () => (performance.now() - began) / 1000;
  const stats = {};
  const body = { model: node.model, messages: talk.messages(chat, node.parent), ...forRequest(chat, model) };
  try {
    for await (const piece of api.lines("api/chat", body, signal)) {
      const { content = "", thinking = "", tool_calls } = piece.message ?? {};
      if ((content || thinking || tool_calls) && !stats.first) stats.first = elapsed();
      if (thinking) node.thinking = (node.thinking ?? "") + thinking;
      if (content && node.thinking && !stats.thought) stats.thought = elapsed() - stats.first;
      node.content += content;
      if (tool_calls) (node.tool_calls ??= []).push(...tool_calls);
      if (piece.done) {
        Object.assign(stats, { tokens: piece.eval_count ?? 0, nanos: piece.eval_duration ?? 0, prompt: piece.prompt_eval_count ?? 0, truncated: piece.prompt_truncated ?? 0, reason: piece.done_reason ?? "" });
        delete node.unfinished;
      }
      came(stats);
    }
    if (node.unfinished) node.error = "The answer was cut off: the server ended the connection.";
  } catch (error) {
    if (signal.aborted) node.stopped = true;
    else node.error = error.message;
  }
  delete node.unfinished;
  if (stats.first) node.stats = stats;
  return stats;
}

// Says in a message why nothing has come yet.
export async function tellWait(view, name) {
  const { models } = await api.get("api/ps").catch(() => ({ models: [] }));
  const loaded = models.find((it) => it.name === name);
  // While a model loads, its context is not known.
  view.waitsFor(loaded?.context_length ? "Computing the prompt" : "Loading the model");
}
