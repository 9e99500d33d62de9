// e2e.mjs PAGE CHROMIUM FOLDER: looks at a running server's dashboard in a real browser, and pictures it into FOLDER. The
// server is one with --demo; requests named light-... have been answered. Last line: 'N passed, N failed, N skipped'.
// Environment: ONLY=WORD leaves out tests whose name does not hold it.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const [address, executablePath, folder] = process.argv.slice(2);
const origin = new URL(address).origin;
const faults = [], requests = [];
let n_passed = 0, n_failed = 0;

mkdirSync(folder, { recursive: true });
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-background-networking"] });
const page = await browser.newPage({ viewport: { width: 1600, height: 1000 }, colorScheme: "light" });
page.setDefaultTimeout(60_000);
page.on("console", (message) => { if (["error", "warning"].includes(message.type())) faults.push(message.text()); });
page.on("pageerror", (error) => faults.push(error.message));
page.on("request", (request) => requests.push(request.url()));

const text = (selector) => page.locator(selector).innerText();
const feed = () => page.evaluate(() => fetch("/debug/dashboard").then((reply) => reply.json()));
const number = (words) => Number(words.replaceAll(",", "").match(/-?[\d.]+/)[0]);

async function metric(name) {
  const all = await page.evaluate(() => fetch("/metrics").then((reply) => reply.text()));
  return Number(all.match(new RegExp(`^${name}\\{[^}]*\\} (\\S+)$`, "m"))[1]);
}

async function until(condition, what, seconds = 60) {
  for (const deadline = Date.now() + seconds * 1000; !(await condition());) {
    assert.ok(Date.now() < deadline, `not within ${seconds} s: ${what}`);
    await page.waitForTimeout(100);
  }
}

async function tile(title) {
  return (await page.locator(".tile", { hasText: title }).innerText()).split("\n").slice(1).join(" ");
}

async function attempt(name, test) {
  const began = Date.now();
  try {
    await test();
    n_passed++;
    console.log(`ok   ${((Date.now() - began) / 1000).toFixed(1).padStart(5)} s ${name}`);
  } catch (error) {
    n_failed++;
    console.log(`FAIL ${name}\n${error.stack}`);
    await page.screenshot({ path: join(folder, `failed-${n_failed}.png`), fullPage: true });
  }
}

// ---- data ----

async function itComesAlive() {
  const reply = await page.goto(address);
  assert.equal(reply.status(), 200);
  await until(async () => (await text("#state")) === "live", "live");
  await until(async () => (await page.locator("#row-labels button").count()) > 0, "requests");
  assert.equal(await text("#model"), "smollm2");
  assert.match(await text("#diagnosis"), /\S/);
  assert.match(await page.title(), /smollm2/);
}

async function itAgreesWithTheMetrics() {
  await until(async () => (await metric("vllm:num_requests_running")) === 0, "idle");
  const [prompt, cached, output] = [await metric("vllm:prompt_tokens_total"), await metric("vllm:prefix_cache_hits_total"),
    await metric("vllm:generation_tokens_total")];
  assert.ok(prompt > 0 && output > 0);
  await until(async () => (await tile("Prompt tokens")).includes(`${prompt.toLocaleString("en-US")} in all`), "prompt tokens");
  await until(async () => (await tile("Output tokens")).includes(`${output.toLocaleString("en-US")} in all`), "output tokens");
  assert.equal(number((await tile("Prompt tokens")).split("in all")[1]), cached);
  assert.ok(Math.abs(number(await tile("KV cache held")) - 100 * (await metric("vllm:kv_cache_usage_perc"))) < 0.1);
  const [sum, n] = [await metric("vllm:time_to_first_token_seconds_sum"), await metric("vllm:time_to_first_token_seconds_count")];
  const told = await feed(); // all came within the minute that its quantiles are of
  assert.equal(told.ttft_ms.n, n);
  assert.ok(told.ttft_ms.p50 <= told.ttft_ms.p95 && told.ttft_ms.p95 <= told.ttft_ms.p99);
  const mean = (1000 * sum) / n;
  assert.ok(told.ttft_ms.p99 > 0.9 * mean && told.ttft_ms.p50 < 2 * mean, JSON.stringify([told.ttft_ms, mean]));
  const shown = await tile("Time to first token"), factor = / s$/.test(shown.split(" p95")[0]) ? 1000 : 1;
  assert.ok(Math.abs(number(shown) * factor - told.ttft_ms.p50) < 0.02 * told.ttft_ms.p50 + 0.01, `${shown}, ${told.ttft_ms.p50}`);
}

async function aRequestShowsItsPhases() {
  const light = (await feed()).ended.filter((request) => request.id.includes("light-")).at(-1);
  await page.selectOption("#span", "300");
  const row = page.locator(`#row-labels button[title="${light.id}"]`);
  await row.click();
  const detail = await text("#request-detail");
  assert.ok(detail.includes(light.id), detail);
  assert.match(detail, /prefill own/);
  assert.match(detail, new RegExp(`${light.prompt_tokens} prompt tokens`));
  assert.equal(await row.getAttribute("aria-pressed"), "true");
  assert.match(await row.getAttribute("aria-label"), /first token after .*in all/);
  await page.selectOption("#span", "15");
}

async function chartsHaveTables() {
  const chart = page.locator(".chart").first();
  await chart.locator("summary").click();
  await until(async () => (await chart.locator("tbody tr").count()) > 0, "rows");
  assert.match(await chart.locator("table").innerText(), /p50.*p95.*p99/s);
  await chart.locator("summary").click();
  assert.equal(await page.locator(".chart canvas").count(), 6);
}

// ---- chat and experiments ----

async function theChatStreams() {
  await page.fill("#prompt", "What is a lighthouse? Answer in one sentence.");
  await page.click("#send");
  await until(async () => /first token after/.test(await text("#chat-status")), "a first token");
  await until(async () => page.locator("#send").isEnabled(), "the end");
  assert.ok((await text("#answer")).length > 10);
  assert.match(await text("#own-phases .words"), /prefill .* decode .* tokens/s);
  await until(async () => /chatcmpl-chat-/.test(await text("#request-detail")), "its own row is chosen");
}

async function newResult(button, words) {
  const before = await page.locator("#results li").count();
  const was = before ? await text("#results li:first-child") : "";
  await page.click(button);
  await until(async () => (await page.locator("#results li").count()) > 0 && (await text("#results li:first-child")) !== was, words, 120);
  const result = await text("#results li:first-child");
  assert.ok(result.startsWith(words), result);
  return { result, cached: number(result.match(/([\d.]+) % of them/)[1]), gap: result.match(/longest gap ([\d.]+) (ms|s)/) };
}

const gapMs = ({ gap }) => Number(gap[1]) * (gap[2] === "s" ? 1000 : 1);

async function experimentsTellWhatTheyCost() {
  await page.fill("#prompt", "Tell me a long story about a lighthouse keeper.");
  const whale = await newResult("#whale", "Whale:");
  assert.ok(whale.cached < 5 && whale.gap, whale.result); // nothing of it but the template is known
  const again = await newResult("#repeat", "Repeated:");
  assert.ok(again.cached > 95, again.result);
  const edited = await newResult("#edit", "One word edited");
  assert.ok(edited.cached > 35 && edited.cached < 65, edited.result);
  // While it ran, the stream's row had chunks of the whale in it.
  const stream = (await feed()).running_requests.find((request) => request.id.includes("chat-"));
  await newResult("#storm", "Storm of 8:");
  if (stream) assert.ok(stream.output_tokens > 0);
}

async function interferenceNamesItsCause() {
  const causes = (await feed()).ended.filter((request) => /(whale|edited|storm)-/.test(request.id));
  await page.selectOption("#span", "300");
  const chat = page.locator('#row-labels button[title*="chat-"]').filter({ hasText: "chat-" }).first();
  await chat.click();
  if ((await chat.getAttribute("aria-pressed")) !== "true") await chat.click();
  const blamed = await page.locator("#request-detail table", { hasText: "Whose chunks" }).innerText();
  assert.ok(causes.some((request) => blamed.includes(request.id)), `${blamed}, none of ${causes.map((request) => request.id)}`);
  await page.selectOption("#span", "15");
}

async function unchunkedStopsTheStream() {
  const chunked = await newResult("#whale", "Whale:");
  await page.locator("#unchunked").check();
  await until(async () => (await feed()).chunked === false, "unchunked");
  const whole = await newResult("#whale", "Whale, unchunked:");
  await page.locator("#unchunked").uncheck();
  await until(async () => (await feed()).chunked === true, "chunked again");
  assert.ok(gapMs(whole) > 3 * gapMs(chunked), `${whole.result} ${chunked.result}`);
}

// ---- the second screen ----

async function theMachineIsShown() {
  await page.click("#tab-machine");
  await until(async () => (await page.locator("#roofline .mark").count()) === 2, "both phases");
  await until(async () => (await page.locator("#blocks-table tbody tr").count()) === 5, "blocks");
  assert.equal(await page.locator("#roofline .roof").count(), 1);
  const cells = await page.locator("#blocks-table tbody tr td:nth-child(2)").allInnerTexts();
  assert.equal(cells.reduce((sum, words) => sum + number(words), 0), (await feed()).blocks);
  const shares = await page.locator("#roofline-table tbody tr td:nth-child(5)").allInnerTexts();
  assert.ok(shares.every((words) => number(words) > 0 && number(words) < 120), shares.join());
}

// ---- for everybody ----

async function itHasNames() {
  for (const tag of ["header", "nav", "main", "footer"]) assert.equal(await page.locator(tag).count(), 1, tag);
  assert.equal(await page.locator("#diagnosis").getAttribute("aria-live"), "polite");
  const bare = await page.evaluate(() => [...document.querySelectorAll("button, select, input, textarea, canvas, section")].filter((node) => {
    if (node.tagName === "CANVAS") return !node.closest('[aria-hidden="true"]') && !node.getAttribute("aria-labelledby");
    if (node.tagName === "SECTION") return !node.getAttribute("aria-labelledby");
    return !(node.innerText || node.getAttribute("aria-label") || node.labels?.length);
  }).map((node) => node.outerHTML.slice(0, 80)));
  assert.deepEqual(bare, []);
}

async function theKeyboardIsEnough() {
  await page.evaluate(() => { // where a reader begins
    document.body.tabIndex = -1;
    document.body.focus();
    document.body.removeAttribute("tabindex");
  });
  const seen = [];
  for (let i = 0; i < 60 && !seen.includes("chart-span"); i++) {
    await page.keyboard.press("Tab");
    const focus = await page.evaluate(() => {
      const node = document.activeElement, style = getComputedStyle(node);
      return { id: node.id || node.className || node.tagName, outline: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1 };
    });
    assert.ok(focus.outline, `${focus.id} does not show its focus`);
    seen.push(focus.id);
  }
  assert.equal(seen[0], "skip");
  for (const id of ["tab-live", "tab-machine", "theme", "span", "pause", "prompt", "send", "answer", "whale", "repeat", "edit", "storm", "unchunked", "chart-span"])
    assert.ok(seen.includes(id), `${id} is not among ${seen}`);
  await page.selectOption("#span", "300");
  await page.locator("#row-labels button").first().focus();
  await page.keyboard.press("ArrowDown");
  const second = page.locator("#row-labels button").nth(1), before = await second.getAttribute("aria-pressed");
  await page.keyboard.press("Enter");
  await page.waitForTimeout(1500); // two rounds: the focus must stay where it is
  assert.equal(await page.evaluate(() => document.activeElement === document.querySelectorAll("#row-labels button")[1]), true);
  assert.equal(await second.getAttribute("aria-pressed"), String(before === "false")); // an earlier test may have chosen it
  await page.locator("#tab-machine").focus();
  await page.keyboard.press("Enter");
  assert.ok(await page.locator("#screen-machine").isVisible());
  await page.locator("#tab-live").focus();
  await page.keyboard.press("Space");
  assert.ok(await page.locator("#screen-live").isVisible());
}

async function colourFollowsTheSystemOrTheSwitch() {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: "light" });
  const light = await ground();
  await page.emulateMedia({ colorScheme: "dark" });
  await until(async () => (await ground()) !== light, "dark");
  await page.click("#theme");
  assert.equal(await ground(), light);
  await page.click("#theme");
}

async function picture(name, width, scheme) {
  await page.setViewportSize({ width, height: 1000 });
  await page.evaluate((theme) => { if (document.documentElement.dataset.theme !== theme) document.getElementById("theme").click(); }, scheme);
  await page.waitForTimeout(1300);
  await page.screenshot({ path: join(folder, `${name}-${scheme}-${width}.png`), fullPage: true });
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(wide <= 0, `${name} is ${wide} px wider than ${width}`);
  const torn = await page.evaluate(() => [...document.querySelectorAll("th, td")].filter((node) => node.offsetHeight > 90).map((node) => node.innerText));
  assert.deepEqual(torn, []);
  const cut = await page.evaluate(() => [...document.querySelectorAll("button, .tile .value, .tile dt, h2, h3, .legend li")]
    .filter((node) => node.offsetParent && node.scrollWidth > node.clientWidth + 1 && !node.closest("#row-labels, .hidden")).map((node) => node.innerText));
  assert.deepEqual(cut, []);
}

async function itIsPicturedAtThreeWidths() {
  await page.click("#tab-live");
  await page.selectOption("#span", "60");
  for (const scheme of ["light", "dark"])
    for (const width of [1600, 900, 400]) {
      await page.click("#tab-live");
      await picture("live", width, scheme);
      await page.click("#tab-machine");
      await picture("machine", width, scheme);
    }
  await page.setViewportSize({ width: 1600, height: 1000 });
  await page.click("#tab-live");
}

async function nothingWentWrong() {
  assert.deepEqual(faults, []);
  assert.deepEqual(requests.filter((url) => !url.startsWith(origin) && !url.startsWith("data:")), []);
}

const tests = { itComesAlive, itAgreesWithTheMetrics, aRequestShowsItsPhases, chartsHaveTables, theChatStreams,
  experimentsTellWhatTheyCost, interferenceNamesItsCause, unchunkedStopsTheStream, theMachineIsShown, itHasNames,
  colourFollowsTheSystemOrTheSwitch, itIsPicturedAtThreeWidths, theKeyboardIsEnough, nothingWentWrong };
for (const [name, test] of Object.entries(tests))
  if (name === "itComesAlive" || name.includes(process.env.ONLY ?? "")) await attempt(name, test);
await browser.close();
console.log(`${n_passed} passed, ${n_failed} failed, 0 skipped`);
process.exit(n_failed ? 1 : 0);
