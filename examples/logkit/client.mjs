// Log calls from JavaScript, and follow the log: Node 18 and later, Deno, Bun, browsers.
//
//     LOGKIT_URL=http://127.0.0.1:8080 node client.mjs

const URL = process.env.LOGKIT_URL ?? "http://127.0.0.1:8080";
const headers = process.env.LOGKIT_API_KEY ? { Authorization: `Bearer ${process.env.LOGKIT_API_KEY}` } : {};

async function log(entry) {
  for (;;) {
    const response = await fetch(`${URL}/log`, { method: "POST", headers, body: JSON.stringify(entry) });
    if (response.ok) return response.json();
    if (response.status !== 429 && response.status !== 503) throw new Error(await response.text());
    // The server says when to come back.
    await new Promise((go) => setTimeout(go, 1000 * (response.headers.get("Retry-After") ?? 1)));
  }
}

// New entries as they come; stop by leaving the loop.
async function* follow(query) {
  const response = await fetch(`${URL}/logs/stream?${new URLSearchParams(query)}`, { headers });
  let text = "";
  for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
    const events = (text + chunk).split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
      if (data) yield JSON.parse(data);
    }
  }
}

const stream = follow({ env: "example", language: "javascript" });
const first = stream.next();
// The stream begins when the server has answered; until then try again.
let seen = false;
first.then(() => { seen = true; });
while (!seen) {
  const { id } = await log({ cmd: "render", args: ["index.html", 3], language: "javascript", env: "example", success: true });
  console.log("stored as row", id);
  await new Promise((go) => setTimeout(go, 50));
}
const { value: row } = await first;
console.log("followed", row.function_name, row.args);
await stream.return();
process.exit(0);
