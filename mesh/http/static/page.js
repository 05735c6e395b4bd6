// The live mesh: takes frames from /live and shows the latest. What is kept is bounded, however long it is open.

import { byName, drawTopology, sparkline, stateStrip, element } from "./drawing.js";

const SAMPLES_MAX = 150;    // as many as the broker keeps
const STALE_S = 15;
const LATE_MS = 100;
const RETRY_MS = 5000;
const MANY_ROWS = 12;       // brokers above which their table has a column of its own

const byId = (id) => document.getElementById(id);
const samples = new Map();  // of each broker: [in, out, round trip, drops] a look
const rows = new Map();     // of each broker: its row and its details
const open = new Set();     // ids of brokers whose details are shown
let frame = null;
let broken = false;         // the connection is over, and another one is tried
let told = 0;               // the time in the last frame that went into the samples
let came = 0;               // when the last frame came, on this page's clock

// --- words

function number(value) {
  if (value == null) return "–";
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(value) >= size * 0.9995) {
      const scaled = value / size;
      return (scaled >= 99.95 ? scaled.toFixed(0) : scaled.toPrecision(3)) + unit;
    }
  }
  return value >= 10 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

function milliseconds(value) {
  if (value == null) return "–";
  if (value >= 9999.5) return `${(value / 1000).toFixed(0)} s`;
  return value < 9.995 ? value.toFixed(2) : value.toFixed(0);
}

function duration(seconds) {
  if (seconds == null) return "–";
  for (const [unit, size, limit] of [["s", 1, 100], ["m", 60, 100], ["h", 3600, 100]]) {
    if (seconds / size < limit) return `${(seconds / size).toFixed(0)} ${unit}`;
  }
  return `${(seconds / 86400).toFixed(0)} d`;
}

function html(name, className, ...children) {
  const made = document.createElement(name);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

function say(target, text, className) {
  if (target.textContent !== text) target.textContent = text;
  if (className !== undefined && target.className !== className) target.className = className;
}

const clock = (ts) => new Date(ts).toLocaleTimeString([], { hour12: false });

// --- frames

function remember(broker) {
  const row = samples.get(broker.id) ?? [];
  row.push([broker.in_s, broker.out_s, broker.rtt_ms, broker.drops_s]);
  if (row.length > SAMPLES_MAX) row.splice(0, row.length - SAMPLES_MAX);
  samples.set(broker.id, row);
}

function take(next) {
  frame = next;
  came = performance.now();
  if (frame.at > told) {
    told = frame.at;
    frame.brokers.forEach(remember);
  }
  const here = new Set(frame.brokers.map((broker) => broker.id));
  for (const table of [samples, open]) for (const id of [...table.keys()]) if (!here.has(id)) table.delete(id);
  show();
}

function sum(key) {
  return frame.brokers.reduce((total, broker) => total + (broker[key] ?? 0), 0);
}

function show() {
  const states = {};
  for (const { state } of frame.brokers) states[state] = (states[state] ?? 0) + 1;
  say(byId("mesh"), frame.mesh);
  document.title = `${frame.mesh}: ${states.alive ?? 0} alive${states.dead ? `, ${states.dead} dead` : ""}`;
  say(byId("counts"), ["alive", "suspect", "dead", "left"].filter((state) => states[state])
    .map((state) => `${states[state]} ${state}`).join(" · "));
  arrange(frame.brokers.length > MANY_ROWS);
  showTrouble();
  showFigures(states);
  say(byId("legend"), drawTopology(byId("topology"), frame));
  showBrokers();
  showQueues();
  showReasons();
  showEvents();
  showLink();
}

// A long table of brokers has a column of its own, and the rest stands below the topology.
function arrange(many) {
  document.body.classList.toggle("many", many);
  const column = byId(many ? "left" : "right");
  if (byId("feed").parentElement !== column) column.append(byId("durable"), byId("feed"));
}

function showTrouble() {
  byId("trouble").replaceChildren(...frame.trouble.map(({ level, text }) => html("li", level, text)));
}

function showFigures(states) {
  const late = Math.max(0, ...frame.brokers.map((broker) => broker.late_ms ?? 0));
  const drops = sum("drops_s");
  const figures = [
    ["brokers alive", `${states.alive ?? 0} of ${frame.brokers.length - (states.left ?? 0) + frame.hidden}`, states.dead ? "bad" : ""],
    ["messages in/s", number(sum("in_s"))],
    ["messages out/s", number(sum("out_s"))],
    ["bytes/s", number(sum("bytes_s"))],
    ["drops/s", number(drops), drops ? "bad" : ""],
    ["links up", number(frame.links_up), frame.links_bad ? "warn" : ""],
    ["longest round trip, ms", milliseconds(frame.rtt_ms_max)],
    ["loop late at worst, ms", milliseconds(late), late > LATE_MS ? "warn" : ""],
    ["clients", number(sum("sessions"))],
  ];
  byId("figures").replaceChildren(...figures.map(([name, value, level]) =>
    html("div", `figure ${level ?? ""}`.trim(), html("b", "", value), html("span", "", name))));
}

// --- brokers

// Minutes that the strips of states show: as far back as somebody remembers, at most half an hour.
function span() {
  const oldest = Math.min(frame.at * 1000, ...frame.brokers.flatMap((broker) => broker.changes.slice(0, 1).map(([ts]) => Date.parse(ts))));
  return Math.min(30, Math.max(1, Math.ceil((frame.at * 1000 - oldest) / 60_000)));
}

function rowOf(id) {
  let row = rows.get(id);
  if (row) return row;
  const main = html("tr", "main");
  main.tabIndex = 0;
  const cells = {};
  for (const [key, className] of [["name", ""], ["state", ""], ["in_s", "number"], ["out_s", "number roomy"],
    ["traffic", "wide"], ["rtt", "number"], ["trip", "wide"], ["drops", "number"], ["late", "number medium"],
    ["queued", "number medium"], ["strip", "medium"]]) {
    cells[key] = html("td", className);
    main.append(cells[key]);
  }
  const drawings = { traffic: element("svg"), trip: element("svg"), strip: element("svg") };
  for (const [key, drawing] of Object.entries(drawings)) cells[key].append(drawing);
  const details = html("tr", "details");
  const inside = html("td");
  inside.colSpan = 11;
  details.append(inside);
  const toggle = () => {
    if (!open.delete(id)) open.add(id);
    showBrokers();
  };
  main.addEventListener("click", toggle);
  main.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); toggle(); }
  });
  row = { main, cells, drawings, details, inside };
  rows.set(id, row);
  return row;
}

function showBrokers() {
  const order = ["dead", "suspect", "alive", "unknown", "left"];
  const brokers = frame.brokers.map((broker, place) => ({ broker, place }))
    .sort((a, b) => order.indexOf(a.broker.state) - order.indexOf(b.broker.state) || byName(a, b));
  const minutes = span();
  say(byId("span"), `last ${minutes} min`);
  const wanted = [];
  for (const { broker } of brokers) {
    const row = rowOf(broker.id);
    fill(row, broker);
    wanted.push(row.main);
    row.main.setAttribute("aria-expanded", open.has(broker.id));
    if (open.has(broker.id)) {
      fillDetails(row, broker);
      wanted.push(row.details);
    }
  }
  const body = byId("brokers").tBodies[0];
  const same = body.children.length === wanted.length && wanted.every((row, at) => body.children[at] === row);
  if (!same) body.replaceChildren(...wanted);
  const here = new Set(frame.brokers.map((broker) => broker.id));
  for (const id of [...rows.keys()]) if (!here.has(id)) rows.delete(id);
  say(byId("hidden"), frame.hidden ? `${frame.hidden} more brokers are not shown.` : "");
}

function fill({ main, cells, drawings }, broker) {
  const self = broker.id === frame.connected;
  main.className = self ? "main self" : "main";
  say(cells.name, broker.name);
  cells.name.title = `${broker.name} ${broker.url}`;
  const mode = broker.state === "alive" && broker.mode && broker.mode !== "ready" ? broker.mode : broker.state;
  const doubted = broker.observers && broker.agree < broker.observers ? ` ${broker.agree}/${broker.observers}` : "";
  say(cells.state, mode + doubted, `state ${broker.state}`);
  say(cells.in_s, number(broker.in_s));
  say(cells.out_s, number(broker.out_s));
  say(cells.rtt, self ? "self" : milliseconds(broker.rtt_ms));
  say(cells.drops, number(broker.drops_s), `number${broker.drops_s ? " alarm" : ""}`);
  say(cells.late, milliseconds(broker.late_ms), `number medium${broker.late_ms > LATE_MS ? " worry" : ""}`);
  say(cells.queued, number(broker.queued), `number medium${broker.queued > 10_000 ? " worry" : ""}`);
  const past = samples.get(broker.id) ?? [];
  sparkline(drawings.traffic, past.map((each) => each[0]), past.map((each) => each[1]));
  sparkline(drawings.trip, past.map((each) => each[2]));
  stateStrip(drawings.strip, broker.changes, broker.state, frame.at * 1000, span());
}

function fillDetails({ inside }, broker) {
  const facts = [
    ["id", broker.id], ["address", broker.url], ["host", broker.host],
    ["in this state for", duration(broker.since_s)], ["up for", duration(broker.uptime_s)],
    ["bytes/s", number(broker.bytes_s)], ["dropped since its start", number(broker.dropped)],
    ["lost with links", number(broker.lost)], ["queued for links", number(broker.queued)],
    ["loop late, ms", milliseconds(broker.late_ms)],
    ["clients", number(broker.sessions)], ["subscriptions", number(broker.subscriptions)],
    ["memory", broker.rss_bytes == null ? "–" : `${(broker.rss_bytes / 1e6).toFixed(0)} MB`],
    ...broker.disk.map((said) => ["disk", said]),
  ];
  const past = samples.get(broker.id) ?? [];
  const charts = [["messages in and out", past.map((each) => each[0]), past.map((each) => each[1])],
    ["round trip", past.map((each) => each[2])], ["drops", past.map((each) => each[3])]];
  const strip = element("svg");
  stateStrip(strip, broker.changes, broker.state, frame.at * 1000, span());
  inside.replaceChildren(
    html("dl", "", ...facts.map(([name, value]) => html("div", "", html("dt", "", name), html("dd", "", value)))),
    html("div", "charts", ...charts.map(([name, ...lines]) => {
      const svg = element("svg");
      sparkline(svg, ...lines);
      const known = lines.flat().filter((value) => value != null);
      const most = known.length ? `, at most ${name === "round trip" ? `${milliseconds(Math.max(...known))} ms` : `${number(Math.max(...known))}/s`}` : "";
      return html("div", "", html("span", "", name + most), svg);
    }), html("div", "", html("span", "", `state, last ${span()} min`), strip)),
    html("ol", "", ...[...broker.changes].reverse().map(([ts, state, reason]) =>
      html("li", "", html("time", "", clock(ts)), html("span", `state ${state}`, state),
        html("span", "", reason && reason !== state ? reason : "")))),
  );
}

// --- durable subscriptions, events

function showQueues() {
  byId("durable").hidden = !frame.queues.length;
  byId("queues").tBodies[0].replaceChildren(...frame.queues.map((queue) => html("tr", "",
    html("td", "", queue.name ?? "?"), html("td", "medium", queue.home ?? "?"),
    html("td", "number", number(queue.waiting)), html("td", "number medium", duration(queue.oldest_s)),
    html("td", `number${queue.waiting && !queue.consumers ? " worry" : ""}`, number(queue.consumers)),
    html("td", "number medium", number(queue.in_flight)), html("td", "number medium", number(queue.redelivered)),
    html("td", `number${queue.buried ? " worry" : ""}`, number(queue.buried)))));
  const more = frame.queues_count - frame.queues.length;
  say(byId("more-queues"), more > 0 ? `${more} more are not shown.` : "");
}

function showReasons() {
  const rows = [["dropped", frame.drops], ["refused", frame.refused]].flatMap(([what, counts]) =>
    Object.entries(counts).map(([reason, count]) => html("tr", "",
      html("td", "", reason.replaceAll("_", " ")), html("td", "", what), html("td", "number", number(count)))));
  byId("reasons").hidden = !rows.length;
  byId("counts-by-reason").tBodies[0].replaceChildren(...rows);
}

function showEvents() {
  byId("events").replaceChildren(...[...frame.news].reverse().map(({ ts, text, state, by }) =>
    html("li", "", html("time", "", clock(ts)), html("span", state, text + (by > 1 ? ` · ${by} brokers` : "")))));
}

// --- the connection

function showLink() {
  const quiet = came ? (performance.now() - came) / 1000 : 0;
  const stale = quiet > Math.max(STALE_S, 3 * (frame?.interval_s ?? 0));
  document.body.classList.toggle("stale", stale || (broken && frame !== null));
  const seen = frame?.brokers.find((broker) => broker.id === frame.connected)?.name ?? "the broker";
  if (broken || stale) say(byId("link"), frame ? `no word from ${seen} for ${duration(quiet)}; trying again` : "no answer; trying again", "broken");
  else if (!frame) say(byId("link"), "asking the mesh", "waiting");
  else say(byId("link"), `live, seen from ${seen}`, "");
}

function connect() {
  const source = new EventSource("live");
  source.addEventListener("open", () => { broken = false; showLink(); });
  source.addEventListener("past", (event) => {
    const past = JSON.parse(event.data);
    if (past.at < told) return;  // of a broker that was started again: what this page has seen is more
    told = past.at;
    samples.clear();
    for (const [id, row] of Object.entries(past.samples)) samples.set(id, row);
  });
  source.addEventListener("mesh", (event) => { broken = false; take(JSON.parse(event.data)); });
  source.addEventListener("error", () => {
    broken = true;
    showLink();
    // The browser tries again by itself, but gives up when it was refused, as by a broker that leaves.
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, RETRY_MS);
  });
}

connect();
setInterval(showLink, 1000);
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => { if (frame) drawTopology(byId("topology"), frame); }, 100);
});
