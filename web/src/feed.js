// feed: what the server tells once a second, merged into what is known already. Bounded, whatever comes.

const MAX_STEPS = 20000;
const MAX_ENDED = 400;
const MAX_SAMPLES = 900;

export const store = {
  server: null, // the last reply without its lists
  samples: [], // {at (s since 1970), ttft_p50, ...}
  steps: [], // {number, start_us, took_us, ..., parts: [{run, rows, from}]}
  ended: [], // requests, oldest first
  running: [],
  byRun: new Map(), // request by the engine's number
  offset: 0, // ms since 1970 at the server's time 0
};

let next = { sample: 0, request: null, step: null };
let key = "";

export function setKey(value) {
  key = value;
}

export function authorization() {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

function rows(reply, list, fields) {
  return reply[list].map((row) => Object.fromEntries(reply[fields].map((name, i) => [name, row[i]])));
}

function readParts(flat) {
  const parts = [];
  for (let i = 0; i < flat.length; i += 3) parts.push({ run: flat[i], rows: flat[i + 1], from: flat[i + 2] });
  return parts;
}

function cut(list, max) {
  if (list.length > max) list.splice(0, list.length - max);
}

function forget() {
  store.samples.length = store.steps.length = store.ended.length = 0;
  next = { sample: 0, request: null, step: null };
}

function merge(reply) {
  // Times begin anew with the server.
  if (reply.next_sample < next.sample || (next.step !== null && reply.last_step < next.step)) {
    forget();
    return false;
  }
  store.offset = reply.wall_ms - reply.now_us / 1000;
  for (const sample of rows(reply, "samples", "sample_fields"))
    store.samples.push({ ...sample, at: (store.offset + sample.at_us / 1000) / 1000 });
  for (const step of rows(reply, "steps", "step_fields")) store.steps.push({ ...step, parts: readParts(step.parts) });
  store.ended.push(...reply.ended);
  store.running = reply.running_requests;
  cut(store.samples, MAX_SAMPLES);
  cut(store.steps, MAX_STEPS);
  cut(store.ended, MAX_ENDED);
  store.byRun = new Map([...store.ended, ...store.running].filter((r) => r.run).map((r) => [r.run, r]));
  next = { sample: reply.next_sample, request: reply.next_request, step: reply.last_step };
  store.server = reply;
  return true;
}

// Throws what keeps the data away: {status, message}.
export async function poll(wantsMap) {
  const query = new URLSearchParams({ sample: next.sample });
  if (next.request !== null) query.set("request", next.request);
  if (next.step !== null) query.set("step", next.step);
  if (wantsMap) query.set("map", 1);
  let reply;
  try {
    reply = await fetch(`/debug/dashboard?${query}`, { headers: authorization(), cache: "no-store" });
  } catch {
    throw { status: 0, message: "no answer" };
  }
  if (!reply.ok) {
    const text = await reply.json().then((body) => body.error.message, () => "");
    throw { status: reply.status, message: text || `status ${reply.status}` };
  }
  return merge(await reply.json());
}

export async function setChunked(isChunked) {
  const reply = await fetch(`/debug/chunking?chunked=${isChunked ? 1 : 0}`, {
    method: "POST", headers: { "Content-Type": "application/json", ...authorization() },
  });
  if (!reply.ok) throw new Error((await reply.json()).error.message);
}

// The steps that overlap [from, to], by the server's time; steps are in order.
export function stepsBetween(from, to) {
  let low = 0, high = store.steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (store.steps[middle].start_us + store.steps[middle].took_us < from) low = middle + 1;
    else high = middle;
  }
  const found = [];
  for (let i = low; i < store.steps.length && store.steps[i].start_us < to; i++) found.push(store.steps[i]);
  return found;
}
