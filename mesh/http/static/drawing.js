// Drawings of the page: topology, sparklines, strips of states. Text of others becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";
const MANY = 16;            // brokers in a ring above which labels point outwards
const BUSY_MSGS_S = 1;

export function element(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  for (const child of children) made.append(child);
  return made;
}

// By name, with numbers in their order: broker-9 before broker-10.
export function byName(a, b) {
  return a.broker.name.localeCompare(b.broker.name, undefined, { numeric: true }) || a.place - b.place;
}

function shortened(text, length) {
  return text.length <= length ? text : text.slice(0, length - 1) + "…";
}

// --- topology

// Draws the frame into `svg`, which is as wide as its place; returns words for the legend.
export function drawTopology(svg, frame) {
  const width = Math.max(260, svg.clientWidth || 260);
  const shown = frame.brokers.map((broker, place) => ({ broker, place }))
    .filter(({ broker }) => broker.state !== "left").sort(byName);
  const inParts = new Set(frame.parts.flat());
  const split = frame.parts.length > 1;
  const rings = split
    ? frame.parts.map((part) => shown.filter(({ broker }) => part.includes(broker.id)))
    : [shown];
  const below = split ? shown.filter(({ broker }) => !inParts.has(broker.id)) : [];
  const largest = Math.max(1, ...rings.map((ring) => ring.length));
  const stacked = split && width < 520;
  const height = stacked ? 0 : Math.min(420, Math.max(220, largest > MANY ? Math.min(width, 420) : width * 0.8));
  const drawn = [];
  const spots = new Map();
  let bottom = height;
  if (stacked) {
    bottom = 0;
    rings.forEach((ring, number) => {
      const tall = ring.length === 1 ? 60 : ring.length > MANY ? width : 190;
      if (number) drawn.push(element("line", { class: "wall", x1: 8, x2: width - 8, y1: bottom, y2: bottom }));
      placeRing(ring, 0, width, bottom, bottom + tall, spots);
      bottom += tall;
    });
  } else {
    const weight = rings.reduce((sum, ring) => sum + Math.sqrt(ring.length || 1), 0);
    let left = 0;
    rings.forEach((ring, number) => {
      const right = left + (width * Math.sqrt(ring.length || 1)) / weight;
      if (number) drawn.push(element("line", { class: "wall", x1: left, x2: left, y1: 8, y2: height - 8 }));
      placeRing(ring, left, right, 0, height, spots);
      left = right;
    });
    if (!split && spots.size > 2 && largest <= MANY) {  // a ring of an odd number has room left below
      bottom = Math.max(...[...spots.values()].map((spot) => spot.y)) + 34;
    }
  }
  if (below.length) {
    const each = 96, columns = Math.max(1, Math.floor(width / each));
    below.forEach(({ place }, number) => {
      const x = (number % columns) * each + 14, y = bottom + 14 + Math.floor(number / columns) * 26;
      spots.set(place, { x, y, anchor: "start", dx: 14, dy: 4, turn: 0, chars: 10 });
    });
    bottom += 28 + 26 * Math.floor((below.length - 1) / columns);
  }
  const lines = element("g");
  for (const [a, b, kind, rtt, rate] of frame.links) {
    const from = spots.get(a), to = spots.get(b);
    if (!from || !to) continue;
    const busy = kind === "whole" && rate >= BUSY_MSGS_S ? " busy" : "";
    const line = element("line", { class: `edge ${kind}${busy}`, x1: from.x, y1: from.y, x2: to.x, y2: to.y });
    if (busy) line.setAttribute("stroke-width", Math.min(5, 1 + Math.log10(1 + rate)).toFixed(1));
    const words = [`${frame.brokers[a].name} - ${frame.brokers[b].name}: ${kind === "whole" ? "up" : kind}`];
    if (rtt != null) words.push(`${rtt} ms`);
    if (rate != null) words.push(`${rate} messages/s`);
    line.append(element("title", {}, words.join(", ")));
    lines.append(line);
  }
  const many = largest > MANY;
  const nodes = element("g", { class: many ? "many" : "" });
  for (const { broker, place } of shown) {
    if (spots.has(place)) nodes.append(node(broker, spots.get(place), many ? 5 : 8, broker.id === frame.connected));
  }
  if (many && !split) {
    const middle = { class: "note", x: width / 2, y: bottom / 2 };
    drawn.push(element("text", middle, `${frame.links_up} links up`));
  }
  svg.setAttribute("viewBox", `0 0 ${width} ${bottom}`);
  svg.style.height = `${bottom}px`;
  svg.replaceChildren(lines, ...drawn, nodes);
  return legend(frame);
}

function legend(frame) {
  const all = frame.links.filter((link) => link[2] === "whole").length === frame.links_up - count(frame, "half", "losing");
  const words = [all || !frame.links_up ? "" : "Links that are up are not drawn."];
  for (const [kind, said] of [["missing", "Red dots: no link."], ["half", "Dashes: one end only."], ["losing", "Amber: lost messages."]]) {
    if (count(frame, kind)) words.push(said);
  }
  return words.filter(Boolean).join(" ");
}

function count(frame, ...kinds) {
  return frame.links.filter((link) => kinds.includes(link[2])).length;
}

function placeRing(ring, left, right, top, bottom, spots) {
  const x = (left + right) / 2, y = (top + bottom) / 2;
  if (ring.length === 1) {
    spots.set(ring[0].place, { x, y, anchor: "middle", dx: 0, dy: 24, turn: 0, chars: Math.floor((right - left) / 8) });
    return;
  }
  const many = ring.length > MANY;
  const label = many ? 62 : 0;
  const room = many ? label + 8 : Math.min(92, (right - left) * 0.27);
  const rx = Math.max(20, (right - left) / 2 - room);
  const ry = Math.max(20, many ? (bottom - top) / 2 - label - 8 : (bottom - top) / 2 - 34);
  const [radiusX, radiusY] = many ? [Math.min(rx, ry), Math.min(rx, ry)] : [Math.min(rx, ry * 1.25), ry];
  const start = ring.length === 2 ? Math.PI : -Math.PI / 2;
  ring.forEach(({ place }, number) => {
    const angle = start + (2 * Math.PI * number) / ring.length;
    const cos = Math.cos(angle), sin = Math.sin(angle);
    const spot = { x: x + radiusX * cos, y: y + radiusY * sin };
    if (many) {
      const flip = cos < -0.001;
      Object.assign(spot, { anchor: flip ? "end" : "start", dx: flip ? -10 : 10, dy: 4,
        turn: (angle * 180) / Math.PI + (flip ? 180 : 0), chars: 9 });
    } else if (Math.abs(cos) < 0.25) {
      Object.assign(spot, { anchor: "middle", dx: 0, dy: sin < 0 ? -15 : 24, turn: 0, chars: 14 });
    } else {
      const side = cos > 0 ? right - spot.x : spot.x - left;
      Object.assign(spot, { anchor: cos > 0 ? "start" : "end", dx: cos > 0 ? 14 : -14, dy: 4, turn: 0,
        chars: Math.max(4, Math.floor((side - 16) / 7.2)) });
    }
    spots.set(place, spot);
  });
}

function node(broker, spot, radius, here) {
  const group = element("g", { class: `node ${broker.state}`, transform: `translate(${spot.x} ${spot.y})` });
  group.append(element("circle", { r: radius }));
  if (broker.state === "dead") group.append(element("path", { d: `M${-radius / 2} ${-radius / 2}L${radius / 2} ${radius / 2}M${radius / 2} ${-radius / 2}L${-radius / 2} ${radius / 2}` }));
  if (here) group.append(element("circle", { class: "here", r: radius + 4 }));
  const text = element("text", { "text-anchor": spot.anchor, x: spot.dx, y: spot.dy }, shortened(broker.name, spot.chars));
  if (spot.turn) text.setAttribute("transform", `rotate(${spot.turn})`);
  group.append(text, element("title", {}, `${broker.name}: ${broker.state}, ${broker.url}`));
  return group;
}

// --- sparklines

// One polyline for each row of numbers; null breaks it. All share a scale from zero.
export function sparkline(svg, ...rows) {
  const top = Math.max(1e-9, ...rows.flat().map((value) => value ?? 0));
  const size = Math.max(30, longest(rows));
  const lines = rows.flatMap((row, number) => pieces(row).map((piece) => element("polyline", {
    class: number ? "second" : "first",
    points: piece.map(([at, value]) => `${((size - row.length + at) / (size - 1)) * 100},${(21 - (value / top) * 19).toFixed(1)}`).join(" "),
  })));
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 100 22");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren(...lines);
}

function longest(rows) {
  return Math.max(0, ...rows.map((row) => row.length));
}

function pieces(row) {
  const found = [];
  let piece = [];
  row.forEach((value, at) => {
    if (value == null) {
      if (piece.length) found.push(piece);
      piece = [];
    } else piece.push([at, value]);
  });
  if (piece.length) found.push(piece);
  return found;
}

// --- states over time

// `changes` are [time, state, reason]; the strip shows the `minutes` before `now` (milliseconds).
export function stateStrip(svg, changes, state, now, minutes = 30) {
  const from = now - minutes * 60_000;
  const bars = [];
  changes.forEach(([ts, was], number) => {
    const begin = Math.max(from, Date.parse(ts));
    const end = number + 1 < changes.length ? Date.parse(changes[number + 1][0]) : now;
    if (end > begin) bars.push([begin, end, number + 1 < changes.length ? was : state]);
  });
  if (!changes.length) bars.push([from, now, state]);
  svg.setAttribute("class", "strip");
  svg.setAttribute("viewBox", "0 0 1000 12");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren(element("rect", { x: 0, y: 0, width: 1000, height: 12 }), ...bars.map(([begin, end, was]) => {
    const x = ((begin - from) / (now - from)) * 1000;
    const wide = Math.max(6, ((end - begin) / (now - from)) * 1000);
    return element("rect", { class: was, x: Math.min(x, 994).toFixed(1), y: 0, width: wide.toFixed(1), height: 12 },
      element("title", {}, `${was} from ${new Date(begin).toLocaleTimeString()}`));
  }));
}
