// main: the page's life: it asks once a second and draws what it was told.

import * as charts from "./charts.js";
import * as chat from "./chat.js";
import * as experiments from "./experiments.js";
import { poll, setKey, store } from "./feed.js";
import { by, count, element, ms, percent, setText, split } from "./format.js";
import * as machine from "./machine.js";
import * as waterfall from "./waterfall.js";

const POLL_MS = 1000, CHAT_POLL_MS = 400, HIDDEN_POLL_MS = 5000;

let screen = "live";

// ---- figures ----

const tiles = [
  ["Time to first token, p50", (s) => [ms(s.ttft_ms.p50), `p95 ${ms(s.ttft_ms.p95)} · p99 ${ms(s.ttft_ms.p99)}`]],
  ["Between tokens, p50", (s) => [ms(s.itl_ms.p50), `p95 ${ms(s.itl_ms.p95)} · p99 ${ms(s.itl_ms.p99)}`]],
  ["Running", (s) => [count(s.running), `${count(s.waiting)} waiting`]],
  ["KV cache held", (s) => [percent(s.held_blocks / s.blocks), `${percent(s.reusable_blocks / s.blocks)} reusable`]],
  ["Prefix hits", () => {
    const recent = store.samples.slice(-60), asked = recent.reduce((a, b) => a + b.asked, 0), found = recent.reduce((a, b) => a + b.found, 0);
    return [percent(asked ? found / asked : null), `${count(found)} of ${count(asked)} tokens`];
  }],
  ["Prompt tokens", (s) => [`${count(store.samples.at(-1)?.computed)} /s`, `${count(s.prompt_tokens)} in all, ${count(s.cached_tokens)} cached`]],
  ["Engine busy", () => [percent(Math.min(1, store.samples.at(-1)?.busy ?? 0)), "of the last second, steps"]],
  ["Output tokens", (s) => [`${count(store.samples.at(-1)?.output)} /s`, `${count(s.output_tokens)} in all`]],
];

function startTiles() {
  for (const tile of tiles) {
    tile.value = element("span", {});
    tile.unit = element("small", {});
    tile.more = element("dd", { class: "more" });
    by("tiles").append(element("div", { class: "tile" }, element("dt", {}, tile[0]),
      element("dd", { class: "value" }, tile.value, " ", tile.unit), tile.more));
  }
}

function drawTiles() {
  for (const tile of tiles) {
    const [text, more] = tile[1](store.server), [value, unit] = split(text);
    setText(tile.value, value);
    setText(tile.unit, unit);
    setText(tile.more, more);
  }
}

function drawDiagnosis() {
  const found = store.server.diagnosis, list = by("diagnosis");
  const texts = found.length ? found.map((d) => (d.advice ? `${d.sentence} ${d.advice}` : d.sentence)) : ["Nothing unusual."];
  by("diagnosis").parentElement.classList.toggle("unusual", found.length > 0);
  if (texts.join("\n") === [...list.children].map((item) => item.textContent).join("\n")) return;
  list.replaceChildren(...texts.map((text) => element("li", {}, text)));
}

function setState(text, kind) {
  setText(by("state"), text);
  by("state").className = `pill ${kind}`;
}

function draw() {
  if (!store.server) return;
  setText(by("model"), store.server.model);
  setText(by("version"), store.server.version);
  document.title = `${store.server.model} · kvick`;
  by("key-field").hidden = !store.server.needs_key;
  drawDiagnosis();
  chat.draw();
  experiments.draw();
  if (screen === "machine") {
    machine.draw();
    return;
  }
  drawTiles();
  charts.draw();
  waterfall.draw();
}

// ---- the loop ----

function tellFailure(failure) {
  const words = { 0: "no answer", 401: "needs an API key", 403: "this key may not see it", 503: failure.message };
  setState(words[failure.status] || failure.message, "bad");
  if (failure.status === 401 || failure.status === 403) by("key-field").hidden = false;
}

async function turn() {
  try {
    if (!(await poll(screen === "machine"))) await poll(screen === "machine"); // the server is a new one
    setState("live", "good");
    draw();
  } catch (failure) {
    if (failure.status === undefined) throw failure;
    tellFailure(failure);
  }
}

async function loop() {
  for (;;) {
    await turn();
    const wait = document.hidden ? HIDDEN_POLL_MS : chat.reader.isOpen ? CHAT_POLL_MS : POLL_MS;
    await new Promise((resolve) => setTimeout(resolve, wait));
  }
}

// ---- screens and themes ----

function show(name) {
  screen = name;
  for (const other of ["live", "machine"]) {
    by(`screen-${other}`).hidden = other !== name;
    if (other === name) by(`tab-${other}`).setAttribute("aria-current", "page");
    else by(`tab-${other}`).removeAttribute("aria-current");
  }
  draw();
  if (name === "machine") turn();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  setText(by("theme"), theme === "dark" ? "Light" : "Dark");
  by("theme").setAttribute("aria-label", theme === "dark" ? "Switch to light colours" : "Switch to dark colours");
  charts.redraw();
  draw();
}

function startTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let isChosen = false;
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => { if (!isChosen) setTheme(dark.matches ? "dark" : "light"); });
  by("theme").addEventListener("click", () => {
    isChosen = true;
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
  });
}

startTiles();
charts.start();
waterfall.start();
machine.start();
chat.start();
experiments.start();
startTheme();
by("tab-live").addEventListener("click", () => show("live"));
by("tab-machine").addEventListener("click", () => show("machine"));
by("chart-span").addEventListener("change", charts.draw);
by("key-field").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey(by("key").value);
  turn();
});
addEventListener("resize", draw);
loop();
