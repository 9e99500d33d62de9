// experiments: long prompts beside a stream that is being read, so that one sees what each of them costs it.

import { by, count, element, ms, percent, setText } from "./format.js";
import { setChunked, store } from "./feed.js";
import { ask, freshId, reader, send } from "./chat.js";

const WORDS = ("harbour lantern window garden river stone paper winter engine meadow silver thread market candle " +
  "bridge forest letter morning copper island story basket mirror valley").split(" ");
const WHALE_TOKENS = 3000, STORM = 8, STORM_TOKENS = 300;
const TOKENS_PER_WORD = 1.25;
const READER_TOKENS = 700, READER_HEAD_START = 60; // tokens
const LOOK_MS = 50, MAX_LOOKS = 1200;
const MAX_RESULTS = 5;
const STOPPED_MS = 1500;

let whale = null; // its words

// Different words each time: nothing of a new prompt can be in the cache.
function prose(tokens) {
  const n = Math.max(8, Math.round(tokens / TOKENS_PER_WORD));
  return Array.from({ length: n }, () => WORDS[Math.floor(Math.random() * WORDS.length)]);
}

function whaleTokens() {
  return Math.min(WHALE_TOKENS, Math.round(0.4 * (store.server?.max_context || 2048)));
}

async function until(condition) {
  for (let i = 0; i < MAX_LOOKS && !condition(); i++) await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
}

// A stream that has begun, and has most of its tokens still to come: it must not end before what is sent beside it.
async function withReader() {
  const tokens = Math.min(READER_TOKENS, Math.round(0.3 * (store.server?.max_context || 2048)));
  if (reader.isOpen && reader.gaps.length < tokens / 3) return;
  await until(() => !reader.isOpen);
  send(by("prompt").value || "Tell me a story.", tokens, true);
  await until(() => reader.gaps.length >= Math.min(READER_HEAD_START, tokens / 3) || !reader.isOpen);
}

function question(words) {
  return { messages: [{ role: "user", content: `${words.join(" ")}\nWhich of these words comes first?` }], max_tokens: 4, temperature: 0 };
}

function longest(gaps) {
  return gaps.length ? Math.max(...gaps) : null;
}

function tell(title, text) {
  const list = by("results");
  list.prepend(element("li", {}, element("b", {}, title), ` ${text}`));
  while (list.children.length > MAX_RESULTS) list.lastChild.remove();
}

// What became of the prompts, and of the stream beside them.
function summary(results, before, during) {
  const tokens = results.reduce((sum, r) => sum + (r.usage?.prompt_tokens || 0), 0);
  const cached = results.reduce((sum, r) => sum + (r.usage?.prompt_tokens_details?.cached_tokens || 0), 0);
  const ttfts = results.map((r) => r.usage?.kvick?.ttft_ms).filter((t) => t).sort((a, b) => a - b); // the first token may have no text
  const first = ttfts.length === 1 ? ms(ttfts[0]) : `${ms(ttfts[0])} to ${ms(ttfts[ttfts.length - 1])}`;
  const beside = longest(during);
  return `${count(tokens)} tokens, ${percent(tokens ? cached / tokens : 0)} of them cached: first token after ${first}. ` +
    (beside === null ? "" : `The stream beside it ${beside < STOPPED_MS ? "went on" : "stopped"}: longest gap ${ms(beside)}${before === null ? "" : ` (${ms(before)} before)`}.`);
}

async function run(button, title, prompts) {
  button.disabled = true;
  try {
    await withReader();
    const before = longest(reader.gaps.slice(-100)), seen = reader.gaps.length, id = reader.id;
    const results = await Promise.all(prompts.map(({ name, words }) => ask(question(words), freshId(name))));
    const now = reader.gaps.length; // its next token ends the gap that the prompts made
    await until(() => reader.id !== id || !reader.isOpen || reader.gaps.length > now + 1);
    const during = reader.id === id ? reader.gaps.slice(seen) : [];
    tell(`${title}${store.server?.chunked === false ? ", unchunked" : ""}:`, summary(results, before, during));
  } catch (error) {
    tell(`${title}:`, error.message);
  }
  button.disabled = false;
}

async function toggle() {
  const box = by("unchunked");
  try {
    await setChunked(!box.checked);
    setText(by("unchunked-hint"), box.checked
      ? "Each prompt is one step now: send a whale and watch the stream stop. No answer changes by it."
      : "Prompts run in chunks, beside the stream. No answer changes by it.");
  } catch (error) {
    box.checked = !box.checked;
    setText(by("unchunked-hint"), error.message);
  }
}

export function start() {
  by("whale").addEventListener("click", async () => {
    whale = prose(whaleTokens());
    await run(by("whale"), "Whale", [{ name: "whale", words: whale }]);
    by("repeat").disabled = by("edit").disabled = false;
  });
  by("repeat").addEventListener("click", () => run(by("repeat"), "Repeated", [{ name: "again", words: whale }]));
  by("edit").addEventListener("click", () => {
    const edited = [...whale];
    edited[Math.floor(edited.length / 2)] = `word${Math.floor(Math.random() * 1e6)}`;
    return run(by("edit"), "One word edited, in the middle", [{ name: "edited", words: edited }]);
  });
  by("storm").addEventListener("click", () => run(by("storm"), `Storm of ${STORM}`,
    Array.from({ length: STORM }, () => ({ name: "storm", words: prose(STORM_TOKENS) }))));
  by("unchunked").addEventListener("change", toggle);
}

export function draw() {
  const server = store.server;
  if (!server?.demo || !by("unchunked").disabled) return;
  by("unchunked").disabled = false;
  by("unchunked").checked = !server.chunked;
  setText(by("unchunked-hint"), "Unchunked: each prompt is one step, and streams wait for it. No answer changes by it.");
}
