// Light colouring of code, line by line, so that a stream is coloured as it comes: what a line
// leaves open (a comment, a text of several lines) is the state of the next one.

const words = (text) => new Set(text.split(" "));

const C_LIKE = "break case continue default do else for goto if return switch while const static struct enum union typedef sizeof void int char float double long short unsigned signed bool true false NULL";
const JS = "async await break case catch class const continue debugger default delete do else export extends finally for from function get if import in instanceof let new of return set static super switch this throw try typeof var void while with yield true false null undefined interface type enum implements readonly as declare namespace";
const LANGUAGES = {
  python: { line: "#", long: ['"""', "'''"], words: words("and as assert async await break class continue def del elif else except finally for from global if import in is lambda match case nonlocal not or pass raise return try while with yield True False None self") },
  javascript: { line: "//", block: ["/*", "*/"], long: ["`"], words: words(JS) },
  rust: { line: "//", block: ["/*", "*/"], lifetimes: true, words: words("as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while") },
  go: { line: "//", block: ["/*", "*/"], long: ["`"], words: words("break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var true false nil") },
  c: { line: "//", block: ["/*", "*/"], words: words(C_LIKE + " auto catch class constexpr delete explicit friend inline namespace new nullptr operator override private protected public template this throw try typename using virtual #include #define #if #ifdef #ifndef #endif #else #pragma") },
  java: { line: "//", block: ["/*", "*/"], words: words(C_LIKE + " abstract as async await boolean byte catch class data extends final finally fun func guard implements import in init inline instanceof interface internal is lateinit let namespace native new nil null object operator out override package private protected public readonly sealed self string super suspend synchronized this throw throws trait try using val var virtual when where yield") },
  shell: { line: "#", plainStrings: true, words: words("if then else elif fi for while until do done case esac in function return local export set unset echo exit cd source sudo") },
  sql: { line: "--", block: ["/*", "*/"], anyCase: true, words: words("select from where and or not null is in like between join left right inner outer full on as group by order having limit offset insert into values update set delete create table index view drop alter add primary key foreign references unique default distinct union all exists case when then else end asc desc with begin commit rollback count sum avg min max integer text varchar boolean date timestamp") },
  json: { words: words("true false null") },
  yaml: { line: "#", plainStrings: true, words: words("true false null yes no on off") },
  css: { block: ["/*", "*/"], words: words("important media supports keyframes from to and not only") },
  markup: { block: ["<!--", "-->"], tags: true, words: words("") },
  ruby: { line: "#", words: words("alias and begin break case class def defined do else elsif end ensure false for if in module next nil not or redo rescue retry return self super then true undef unless until when while yield require puts attr_accessor") },
  lua: { line: "--", words: words("and break do else elseif end false for function goto if in local nil not or repeat return then true until while") },
};
const NAMES = {
  py: "python", python3: "python", js: "javascript", jsx: "javascript", ts: "javascript", tsx: "javascript", typescript: "javascript", mjs: "javascript", node: "javascript",
  rs: "rust", golang: "go", cpp: "c", "c++": "c", cc: "c", h: "c", hpp: "c", objc: "c", cs: "java", csharp: "java", "c#": "java", kotlin: "java", kt: "java", swift: "java", scala: "java", dart: "java", php: "java",
  sh: "shell", bash: "shell", zsh: "shell", fish: "shell", console: "shell", dockerfile: "shell", makefile: "shell", powershell: "shell",
  postgres: "sql", sqlite: "sql", mysql: "sql", jsonc: "json", json5: "json", yml: "yaml", toml: "yaml", ini: "yaml", conf: "yaml", scss: "css", less: "css",
  html: "markup", xml: "markup", svg: "markup", vue: "markup", rb: "ruby",
};

export function language(name) {
  const lower = name.toLowerCase();
  if (lower === "diff" || lower === "patch") return "diff";
  const known = Object.hasOwn(NAMES, lower) ? NAMES[lower] : lower;
  return Object.hasOwn(LANGUAGES, known) ? LANGUAGES[known] : null;
}

const TOKEN = /[A-Za-z_$#@][\w$]*|\d(?:\w|\.\d)*|["'`]|\s+|[^\w\s"'`]/gy;
// Longer lines are data, not something to read.
const LONGEST = 2000;

// Returns `[class, text]` pairs of a line, and what it leaves open for the next one.
export function colour(rules, line, open) {
  if (!rules || line.length > LONGEST) return [[["", line]], null];
  if (rules === "diff") return [[[line.startsWith("+") ? "add" : line.startsWith("-") ? "del" : line.startsWith("@@") ? "k" : "", line]], null];
  const out = [];
  const push = (kind, text) => {
    if (!text) return;
    const last = out[out.length - 1];
    if (last && last[0] === kind) last[1] += text;
    else out.push([kind, text]);
  };
  let at = 0;
  while (at < line.length) {
    if (open) {
      const end = line.indexOf(open.end, at);
      const stop = end < 0 ? line.length : end + open.end.length;
      push(open.kind, line.slice(at, stop));
      at = stop;
      if (end >= 0) open = null;
      continue;
    }
    if (rules.line && line.startsWith(rules.line, at) && (rules.line !== "#" || at === 0 || /\s/.test(line[at - 1]))) {
      push("c", line.slice(at));
      break;
    }
    if (rules.block && line.startsWith(rules.block[0], at)) {
      open = { end: rules.block[1], kind: "c" };
      push("c", rules.block[0]);
      at += rules.block[0].length;
      continue;
    }
    const long = rules.long?.find((mark) => line.startsWith(mark, at));
    if (long) {
      open = { end: long, kind: "s" };
      push("s", long);
      at += long.length;
      continue;
    }
    TOKEN.lastIndex = at;
    const token = TOKEN.exec(line)?.[0] ?? line[at];
    const first = token[0];
    if (first === '"' || first === "'" || first === "`") {
      const end = text(line, at, first, rules);
      push(end > at + 1 ? "s" : "", line.slice(at, end));
      at = end;
      continue;
    }
    at += token.length;
    if (/[0-9]/.test(first)) push("n", token);
    else if (/[A-Za-z_$#@]/.test(first)) push(word(rules, token, line, at), token);
    else push(rules.tags && (first === "<" || first === ">" || first === "/") ? "k" : "", token);
  }
  return [out, open];
}

// Where a text that begins at `at` ends; `at + 1` if it is none.
function text(line, at, quote, rules) {
  if (quote === "'" && rules.lifetimes && !/^'(\\.[^']*|[^'\\])'/.test(line.slice(at, at + 14))) return at + 1;
  for (let n = at + 1; n < line.length; n++) {
    if (line[n] === "\\" && !(quote === "'" && rules.plainStrings)) n++;
    else if (line[n] === quote) return n + 1;
  }
  return quote === "'" && rules.tags ? at + 1 : line.length;
}

function word(rules, token, line, end) {
  if (rules.words.has(rules.anyCase ? token.toLowerCase() : token)) return "k";
  if (rules.tags) return /[<\/]\s*$/.test(line.slice(Math.max(0, end - token.length - 3), end - token.length)) ? "k" : "";
  if (line[end] === "(" || line[end] === "!") return "f";
  return /^[A-Z][a-z]/.test(token) ? "t" : token[0] === "@" || token[0] === "#" ? "f" : "";
}
