
/* ==== the map: groups of layers that open and close, laid out by dagre ==== */
const mostKids = 28; /* of one group; more are made into groups of neighbours */
const fewBoxes = 10; /* at first; below that the next level opens too */
const mostBoxes = 220; /* at once; then the group that was opened first closes */
const openBelow = 40; /* layers: such a network is open at first */
const graph = byId("graph");
const panel = byId("panel");

/* ---- groups ---- */
const mapped = data.layers.filter((x) => x.inputs.length || x.outputs.length);
const tail = new Set(raw.tail);
const scoped = (x) => { /* the scopes of /layer1/conv1/Conv or layer1.conv1.Conv */
  const parts = (x.name.includes("/") ? x.name.split("/") : x.name.split(".")).filter(Boolean);
  return parts.slice(0, -1);
};
const runs = new Map(); /* a layer on the GPU -> the run of neighbours on the GPU that it is in */
mapped.forEach((x, i) => {
  if (x.subgraph < 0) runs.set(x.index, i && mapped[i - 1].subgraph < 0 ? runs.get(mapped[i - 1].index) : x.index);
});
const groupings = {
  scope: ["name", scoped, mapped.some((x) => scoped(x).length)],
  region: ["DLA region", (x) => [x.subgraph >= 0 ? `DLA region ${x.subgraph}` : `GPU, from ${x.op} ${runs.get(x.index)}`], mapped.some((x) => x.subgraph >= 0)],
  part: ["part", (x) => [tail.has(x.name) ? "tail" : "DLA part"], tail.size > 0],
  order: ["neighbours", () => [], true],
};
function grow(kind) {
  const root = { id: "g", name: "", kids: [], layers: mapped.map((x) => x.index), parent: null };
  const byPath = new Map([["", root]]);
  for (const x of mapped) {
    let [group, path] = [root, ""];
    for (const part of groupings[kind][1](x)) {
      path += `\u0000${part}`;
      if (!byPath.has(path)) {
        const child = { id: "", name: part, kids: [], layers: [], parent: group };
        byPath.set(path, child);
        group.kids.push(child);
      }
      group = byPath.get(path);
      group.layers.push(x.index);
    }
    group.kids.push(x.index);
  }
  settle(root);
  return root;
}
const isGroup = (kid) => typeof kid === "object";
const firstOf = (kid) => (isGroup(kid) ? kid.layers[0] : kid);
let groupCount = 0;
function settle(group) {
  group.id = `g${groupCount++}`;
  for (;;) { /* a group of one group, or of one layer, says nothing */
    const inner = group.kids.length === 1 && isGroup(group.kids[0]) ? group.kids[0] : null;
    if (!inner) break;
    group.name = [group.name, inner.name].filter(Boolean).join("/");
    group.kids = inner.kids;
  }
  group.kids = group.kids.map((kid) => (isGroup(kid) && kid.layers.length === 1 ? kid.layers[0] : kid));
  if (group.kids.length > mostKids) {
    const kids = group.kids.sort((a, b) => firstOf(a) - firstOf(b));
    const each = Math.ceil(kids.length / Math.min(mostKids, Math.ceil(kids.length / 14)));
    group.kids = [];
    for (let i = 0; i < kids.length; i += each) {
      const some = kids.slice(i, i + each);
      const layers = some.flatMap((kid) => (isGroup(kid) ? kid.layers : [kid])).sort((a, b) => a - b);
      const ends = [some[0], some[some.length - 1]];
      const name = ends.every(isGroup) ? ends.map((kid) => kid.name).join(" to ") : `layers ${layers[0]}\u2013${layers[layers.length - 1]}`;
      group.kids.push({ id: "", name, kids: some, layers, parent: group });
    }
  }
  for (const kid of group.kids) {
    if (!isGroup(kid)) { home.set(kid, group); continue; }
    kid.parent = group;
    settle(kid);
  }
}
const home = new Map(); /* layer -> the group that it is in */
let root = null;
let open = new Set(); /* groups, the first that was opened first */
function regroup(kind) {
  home.clear();
  groupCount = 0;
  root = grow(kind);
  open = new Set([root]);
  const inside = (group) => group.kids.filter(isGroup).forEach((kid) => { open.add(kid); inside(kid); });
  if (mapped.length <= openBelow) inside(root);
  for (;;) {
    const closed = boxesOf(root).filter(isGroup);
    const next = closed.reduce((all, group) => all + group.kids.length, boxesOf(root).length - closed.length);
    if (!closed.length || boxesOf(root).length >= fewBoxes || next > 45) return;
    closed.forEach((group) => open.add(group));
  }
}
function closeFor(opened) { /* keeps what shows below `mostBoxes` */
  for (const old of open) {
    if (boxesOf(root).length <= mostBoxes) return;
    let above = opened;
    while (above && above !== old) above = above.parent;
    if (!above) close(old);
  }
}
function close(group) {
  open.delete(group);
  group.kids.filter(isGroup).forEach(close);
}
const boxesOf = (group) => group.kids.flatMap((kid) => (isGroup(kid) && open.has(kid) ? boxesOf(kid) : [kid]));

/* ---- what a colour says: one kind or one number for each layer, with a sum or a largest for a group ---- */
const unfusedAt = new Map(); /* layer -> the Q/DQ beside it that did not fuse */
for (const row of raw.unfused) for (const name of row.readers) unfusedAt.set(name, [...(unfusedAt.get(name) || []), row]);
const keptLayers = new Set(); /* all that the reader's choice keeps in FP16 */
const timeOf = (x) => (keptLayers.has(x.index) ? x.fp16 : x.ms);
function gain(x, time) { /* of a layer that both sides have; what is fused into another layer takes no time of its own */
  const [before, after] = [x.a ? time(x.a) : null, time(x)].map((v) => v ?? null);
  return !x.a || (before === null && after === null) ? null : (after || 0) - (before || 0);
}
const signed = (value) => (value ? `${value < 0 ? "\u2212" : "+"}${milliseconds(Math.abs(value))}` : "");
const colours = {
  changed: { title: "what changed", of: (x) => x.changed, kinds: { worse: ["avoidable", "\u25bc", "runs worse"], better: ["int8", "\u25b2", "runs better"], new: ["limit", "+", "only in B"], "": ["none", "=", "as in A"] }, on: data.layers.some((x) => x.a) },
  engine: { title: "planned against engine", of: (x) => (unfusedAt.has(x.name) ? "qdq" : x.engine ? (x.engine.against ? "against" : x.engine.verdict) : "free"), kinds: { qdq: ["avoidable", "Q", "reads a Q/DQ that did not fuse"], against: ["avoidable", "\u2260", "against the plan"], disobeyed: ["expected", "16", "other, by design"], missing: ["gpu", "?", "not in the engine"], unseen: ["limit", "\u2026", "not visible"], obeyed: ["int8", "\u2713", "as planned"], dissolved: ["none", "-", "merged"], free: ["none", "", "no plan"] }, on: has("engine") },
  precision: { title: "precision", of: (x) => (keptLayers.has(x.index) ? "kept" : x.kind), kinds: { ...Object.fromEntries(Object.entries(raw.kinds).map(([key, row]) => [key, [key, ...row]])), kept: ["expected", "16*", "FP16, as you chose"] }, on: true },
  device: { title: "device", of: (x) => x.device, kinds: { "dla-int8": ["int8", "8", "DLA, INT8"], "dla-fp16": ["limit", "16", "DLA, FP16"], gpu: ["gpu", "GPU", "GPU"], folded: ["none", "-", "computed while building"] }, on: has("device") },
  ms: { title: "estimated ms", number: timeOf, words: milliseconds, on: has("ms") },
  real: { title: "measured ms", number: (x) => x.engine && x.engine.milliseconds, words: milliseconds, on: data.layers.some((x) => x.engine && x.engine.milliseconds) },
  moreMs: { title: "estimated ms, B \u2212 A", number: (x) => gain(x, (side) => side.ms), words: signed, on: raw.before.rows.length > 0 && has("ms") },
  moreReal: { title: "measured ms, B \u2212 A", number: (x) => gain(x, (side) => side.engine && side.engine.milliseconds), words: signed, on: data.layers.some((x) => x.a && x.a.engine && x.a.engine.milliseconds) },
  noise: { title: "noise share", number: (x) => x.noise, words: percent, on: has("noise") },
  bits: { title: "bits lost", number: (x) => x.bits, words: (v) => (v === null ? "" : v.toFixed(1)), most: true, on: has("bits") },
};
let colour = Object.entries(colours).find(([, row]) => row.on)[0];
function numberOf(kid) { /* null where nothing is known */
  const { number, most } = colours[colour];
  const known = (isGroup(kid) ? kid.layers : [kid]).map((i) => number(data.layers[i])).filter((v) => v !== null && v !== undefined);
  return !known.length ? null : most ? Math.max(...known) : known.reduce((a, b) => a + b, 0);
}
const sum = (layers, value) => layers.reduce((all, i) => all + (value(data.layers[i]) || 0), 0);
const timeShown = () => (colours.real.on && colour !== "ms" ? colours.real.number : timeOf); /* measured, if it is known and not the estimate is asked for */
function totals(group) {
  const int8 = group.layers.filter((i) => data.layers[i].kind === "int8" && !keptLayers.has(i)).length;
  const time = colours.ms.on || colours.real.on ? timeShown() : null;
  return [`${group.layers.length} layers`, `${int8} INT8`, ...(time ? [milliseconds(sum(group.layers, time))] : [])];
}

/* ---- layout ---- */
const sizes = { layer: [176, 46], group: [216, 62], end: [150, 34] };
function lines() { /* what shows, by key, and the edges between: from, to, tensors */
  const boxes = new Map();
  const place = new Map(); /* layer -> key of the box that it is in */
  for (const kid of boxesOf(root)) {
    const key = isGroup(kid) ? kid.id : `l${kid}`;
    boxes.set(key, isGroup(kid) ? { key, kind: "group", group: kid } : { key, kind: "layer", layer: kid });
    for (const layer of isGroup(kid) ? kid.layers : [kid]) place.set(layer, key);
  }
  const edges = new Map();
  const join = (from, to, tensor) => {
    if (!from || !to || from === to) return;
    const key = `${from} ${to}`;
    if (!edges.has(key)) edges.set(key, { from, to, tensors: new Set() });
    edges.get(key).tensors.add(tensor);
  };
  const inputs = new Map();
  for (const t of raw.inputs.slice(0, 24)) {
    if (data.tensors[t].producer >= 0) continue;
    boxes.set(`i${t}`, { key: `i${t}`, kind: "end", tensor: t, title: "input" });
    inputs.set(t, `i${t}`);
  }
  for (const x of mapped) {
    for (const t of x.inputs) join(place.get(data.tensors[t].producer) || inputs.get(t), place.get(x.index), t);
  }
  for (const t of raw.outputs.slice(0, 24)) {
    const from = place.get(data.tensors[t].producer) || inputs.get(t);
    if (!from) continue;
    boxes.set(`o${t}`, { key: `o${t}`, kind: "end", tensor: t, title: "output" });
    join(from, `o${t}`, t);
  }
  return { boxes, edges: [...edges.values()] };
}
function layOut(shown) {
  const plan = new dagre.graphlib.Graph({ compound: true });
  plan.setGraph({ rankdir: "TB", nodesep: 26, edgesep: 14, ranksep: 34, marginx: 30, marginy: 30, ranker: shown.boxes.size > 90 ? "tight-tree" : "network-simplex" });
  plan.setDefaultEdgeLabel(() => ({}));
  for (const box of shown.boxes.values()) {
    const [width, height] = sizes[box.kind];
    plan.setNode(box.key, { width, height });
    let inner = box.key;
    for (let group = box.kind === "layer" ? home.get(box.layer) : box.group && box.group.parent; group && group !== root; group = group.parent) {
      if (!plan.hasNode(group.id)) plan.setNode(group.id, { frame: group });
      plan.setParent(inner, group.id);
      inner = group.id;
    }
  }
  for (const { from, to } of shown.edges) plan.setEdge(from, to, {});
  dagre.layout(plan);
  return plan;
}
function curve(points) {
  const at = (p) => `${Math.round(p.x)} ${Math.round(p.y)}`;
  let path = `M${at(points[0])}`;
  for (let i = 1; i < points.length - 1; i++) {
    const next = points[i + 1];
    path += `Q${at(points[i])} ${at(i + 2 < points.length ? { x: (points[i].x + next.x) / 2, y: (points[i].y + next.y) / 2 } : next)}`;
  }
  return points.length > 2 ? path : `${path}L${at(points[points.length - 1])}`;
}
const styleOf = (t) => (t.assumed ? "inferred" : !t.scale ? "missing" : t.explicit ? "explicit" : "inferred");

/* An operator's name ends before the mark, and inside the box. */
const pen = document.createElement("canvas").getContext("2d");
const family = getComputedStyle(document.body).fontFamily;
function fitted(text, font, room, end = false) {
  pen.font = font;
  if (pen.measureText(text).width <= room) return text;
  let kept = text;
  while (kept.length > 1 && pen.measureText(`${kept}\u2026`).width > room) kept = end ? kept.slice(1) : kept.slice(0, -1);
  return end ? `\u2026${kept}` : `${kept}\u2026`;
}
const bold = `650 13.5px ${family}`;
const mono = "11px ui-monospace, Menlo, \"DejaVu Sans Mono\", monospace";
const monoBold = `700 ${mono}`;
const widthOf = (text, font) => { pen.font = font; return pen.measureText(text).width; };

let shown = { boxes: new Map(), edges: [] };
let elements = new Map(); /* key -> the box as it is drawn */
let around = { after: new Map(), before: new Map() };
let whole = [0, 0, 100, 100];
function redraw() {
  shown = lines();
  const plan = layOut(shown);
  elements = new Map();
  around = { after: new Map(), before: new Map() };
  const [frames, paths, labels, boxes] = ["frames", "edges", "labels", "boxes"].map((name) => draw("g", { class: name }));
  const inner = plan.nodes().filter((id) => plan.node(id).frame).sort((a, b) => plan.node(b).width - plan.node(a).width);
  for (const id of inner) {
    const { x, y, width, height, frame } = plan.node(id);
    const [left, top] = [x - width / 2, y - height / 2];
    const title = draw("g", { class: "b close", role: "button", tabindex: -1, "aria-description": `Closes the group ${frame.name}`, "data-close": id, transform: `translate(${left} ${top - 4})` },
      draw("rect", { class: "grip", width: Math.min(width, 24 + widthOf(frame.name, mono)), height: 18, rx: 4 }),
      draw("text", { x: 6, y: 13, class: "n" }, `\u2212 ${fitted(frame.name, mono, Math.max(40, width - 24))}`));
    frames.append(draw("rect", { class: "frame", x: left, y: top, width, height, rx: 10 }), title);
  }
  for (const edge of shown.edges) {
    const tensors = [...edge.tensors].map((t) => data.tensors[t]);
    const style = tensors.some((t) => styleOf(t) === "missing") ? "missing" : tensors.some((t) => styleOf(t) === "inferred") ? "inferred" : "explicit";
    const { points } = plan.edge(edge.from, edge.to);
    const text = tensors.length > 1 ? `${tensors.length} tensors` : tensors[0].assumed ? "" : tensors[0].scale ? four(Number(tensors[0].scale)) : "no scale";
    edge.path = draw("path", { class: `e ${style}`, d: curve(points), "data-t": tensors[0].index });
    edge.label = draw("text", { class: `l ${style}`, x: Math.round(points[0].x) + 6, y: Math.round(points[0].y) + 14, "data-t": tensors[0].index }, text);
    paths.append(edge.path);
    if (text && !shown.edges.some((other) => other !== edge && other.label && other.from === edge.from && other.tensors.has(tensors[0].index))) labels.append(edge.label);
    for (const [map, from, to] of [[around.after, edge.from, edge.to], [around.before, edge.to, edge.from]]) map.set(from, [...(map.get(from) || []), to]);
  }
  for (const box of shown.boxes.values()) {
    const { x, y } = plan.node(box.key);
    const [width, height] = sizes[box.kind];
    box.at = [x, y];
    const element = draw("g", { role: "button", tabindex: -1, "data-key": box.key, id: box.kind === "layer" ? `layer-${box.layer}` : undefined, transform: `translate(${Math.round(x - width / 2)} ${Math.round(y - height / 2)})` });
    elements.set(box.key, element);
    boxes.append(element);
  }
  const size = plan.graph();
  whole = [0, 0, size.width || 100, size.height || 100];
  graph.replaceChildren(frames, paths, labels, boxes);
  paint();
}

/* ---- colours and legend: the boxes are filled again, and nothing is laid out ---- */
function paint() {
  const { of, kinds, words } = colours[colour];
  const numbers = of ? [] : [...shown.boxes.values()].map((box) => (box.kind === "end" ? null : numberOf(box.group || box.layer)));
  const most = Math.max(0, ...numbers.map((v) => Math.abs(v || 0)));
  const step = (value) => (value ? `${value < 0 ? "f" : words === signed ? "s" : "h"}${Math.max(1, Math.ceil(5 * Math.sqrt(Math.abs(value) / most)))}` : "h0");
  for (const box of shown.boxes.values()) {
    const element = elements.get(box.key);
    if (box.kind === "end") {
      const tensor = data.tensors[box.tensor];
      element.setAttribute("class", "b end");
      element.setAttribute("aria-description", tensor.name);
      element.replaceChildren(draw("rect", { width: 150, height: 34 }), draw("text", { class: "o", x: 75, y: 15 }, box.title), draw("text", { class: "n", x: 75, y: 28 }, fitted(tensor.name, mono, 136, true)));
      continue;
    }
    const kid = box.group || box.layer;
    const value = of ? null : numberOf(kid);
    if (box.kind === "layer") {
      const layer = data.layers[kid];
      const [css, mark, said] = of ? kinds[of(layer)] : [step(value), value === null ? "" : words(value), words(value)];
      element.setAttribute("class", `b k-${css}`);
      element.setAttribute("aria-description", `${layer.name}, ${said || layer.label}`);
      element.replaceChildren(draw("rect", { width: 176, height: 46 }), draw("text", { class: "o", x: 12, y: 19 }, fitted(layer.op, bold, 140 - widthOf(mark, monoBold))),
        draw("text", { class: "m", x: 166, y: 19 }, mark), draw("text", { class: "n", x: 12, y: 36 }, fitted(layer.name, mono, 154, true)));
      if (keptLayers.has(kid) || layer.changed) element.append(draw("circle", { class: "ch", cx: 176, cy: 0, r: 7 }));
    } else {
      const said = totals(kid);
      element.setAttribute("class", `b group${of ? "" : ` k-${step(value)}`}`);
      element.setAttribute("aria-description", `Group ${kid.name}, closed: ${said.join(", ")}`);
      element.setAttribute("aria-expanded", "false");
      const mark = of ? said[2] || "" : value === null ? "" : words(value);
      element.replaceChildren(draw("rect", { width: 216, height: 62 }), draw("text", { class: "o", x: 12, y: 20 }, fitted(`+ ${kid.name}`, bold, 184 - widthOf(mark, monoBold))),
        draw("text", { class: "m", x: 206, y: 20 }, mark), draw("text", { class: "n", x: 12, y: 38 }, fitted(said.slice(0, 2).join(", "), mono, 192)));
      if (of) element.append(...share(kid));
    }
  }
  legend(most);
  markSelected();
}
function share(group) { /* how many layers of each kind, as a bar */
  const { of, kinds } = colours[colour];
  let left = 12;
  return Object.keys(kinds).flatMap((key) => {
    const number = group.layers.filter((i) => of(data.layers[i]) === key).length;
    if (!number) return [];
    const width = (192 * number) / group.layers.length;
    left += width;
    return [draw("rect", { class: `bar k-${kinds[key][0]}`, x: left - width, y: 46, width, height: 9 })];
  });
}
function swatch(css) {
  return draw("svg", { class: "swatch", width: 26, height: 14, "aria-hidden": "true" }, draw("rect", { class: `k-${css}`, x: 0.5, y: 0.5, width: 25, height: 13, rx: 3 }));
}
function legend(most) {
  const { of, kinds, words } = colours[colour];
  const items = [];
  if (of) {
    for (const [key, [css, mark, said]] of Object.entries(kinds)) {
      const found = mapped.filter((x) => of(x) === key).map((x) => x.index);
      if (!found.length) continue;
      const button = make("button");
      button.type = "button";
      button.title = "Next layer of this kind";
      button.dataset.next = key;
      button.append(swatch(css), make("span", mark, `mark m-${css}`), ` ${said} `, make("span", found.length, "dim"));
      button.addEventListener("click", () => {
        const at = current && current.kind === "layer" ? current.index : -1;
        const next = found.find((i) => i > at) ?? found[0];
        byId("said").textContent = `${found.indexOf(next) + 1} of ${found.length}`;
        go(`#layer-${next}`);
      });
      items.push([button]);
    }
  } else {
    const steps = words === signed ? ["f5", "f3", "f1", "s1", "s3", "s5"] : ["h1", "h2", "h3", "h4", "h5"];
    for (const css of most ? steps : []) items.push([swatch(css), `to ${words((css[0] === "f" ? -1 : 1) * most * (css[1] / 5) ** 2)}`]);
    items.push([swatch("h0"), words === signed ? "the same, or not known of both" : "none, or not known"]);
  }
  for (const [style, said] of [["explicit", "scale from the model"], ["inferred", "scale inferred"], ["missing", "no scale"]]) {
    items.push([draw("svg", { class: "swatch", width: 34, height: 14, "aria-hidden": "true" }, draw("path", { class: `e ${style}`, d: "M2 7H32" })), said]);
  }
  byId("legend").replaceChildren(...items.map((parts) => { const item = make("li"); item.append(...parts); return item; }));
}

/* ---- moving ---- */
let view = { x: 0, y: 0, scale: 1 }; /* scale: screen pixels for each pixel of the drawing */
let fits = "readable"; /* or "whole"; until somebody moves it, it is fitted again after a change of size */
const size = { width: 1, height: 1 };
function show() {
  graph.setAttribute("viewBox", `${view.x} ${view.y} ${size.width / view.scale} ${size.height / view.scale}`);
  graph.classList.toggle("far", view.scale < 0.45);
}
function fit(how) { /* "whole": all of it; "readable": its top, if the text would be too small */
  view.scale = Math.min(size.width / whole[2], size.height / whole[3], 1.25);
  const small = how === "readable" && view.scale < 0.55;
  if (small) view.scale = Math.max(view.scale, Math.min(0.8, size.width / whole[2]), 0.4);
  view.x = (whole[2] - size.width / view.scale) / 2;
  view.y = small ? 0 : (whole[3] - size.height / view.scale) / 2;
  fits = how;
  show();
}
function zoom(factor, x = size.width / 2, y = size.height / 2) {
  const before = view.scale;
  fits = "";
  view.scale = Math.min(Math.max(view.scale * factor, 0.02), 4);
  view.x += x / before - x / view.scale;
  view.y += y / before - y / view.scale;
  show();
}
function measure() {
  const box = graph.getBoundingClientRect();
  const middle = { x: view.x + size.width / view.scale / 2, y: view.y + size.height / view.scale / 2 };
  size.width = box.width || 1;
  size.height = box.height || 1;
  if (fits) return fit(fits);
  centre(middle.x, middle.y);
}
function centre(x, y) {
  view.x = x - size.width / view.scale / 2;
  view.y = y - size.height / view.scale / 2;
  show();
}
const pointers = new Map();
let moved = 0;
graph.addEventListener("pointerdown", (event) => {
  pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
  moved = 0;
});
graph.addEventListener("pointermove", (event) => {
  const last = pointers.get(event.pointerId);
  if (!last) return;
  const now = { x: event.clientX, y: event.clientY };
  moved += Math.hypot(now.x - last.x, now.y - last.y);
  if (moved > 4 && !graph.hasPointerCapture(event.pointerId)) {
    graph.setPointerCapture(event.pointerId);
    graph.classList.add("drag");
  }
  const others = Array.from(pointers).filter(([id]) => id !== event.pointerId);
  if (others.length) {
    const other = others[0][1];
    const box = graph.getBoundingClientRect();
    const factor = Math.hypot(now.x - other.x, now.y - other.y) / Math.max(1, Math.hypot(last.x - other.x, last.y - other.y));
    zoom(factor, (now.x + other.x) / 2 - box.left, (now.y + other.y) / 2 - box.top);
  } else if (moved > 4) {
    fits = "";
    view.x -= (now.x - last.x) / view.scale;
    view.y -= (now.y - last.y) / view.scale;
    show();
  }
  pointers.set(event.pointerId, now);
});
for (const kind of ["pointerup", "pointercancel"]) {
  graph.addEventListener(kind, (event) => {
    pointers.delete(event.pointerId);
    graph.classList.remove("drag");
  });
}
graph.addEventListener("wheel", (event) => {
  if (!event.ctrlKey && !event.metaKey && !graph.parentElement.classList.contains("full")) return;
  event.preventDefault();
  const box = graph.getBoundingClientRect();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });
for (const button of all("[data-zoom]")) {
  button.addEventListener("click", () => {
    const what = button.dataset.zoom;
    if (what === "in") zoom(1.4);
    else if (what === "out") zoom(1 / 1.4);
    else if (what === "fit") fit("whole");
    else setFull(!graph.parentElement.classList.contains("full"));
  });
}
function setFull(full) {
  graph.parentElement.classList.toggle("full", full);
  const button = document.querySelector('[data-zoom="full"]');
  button.setAttribute("aria-pressed", String(full));
  (full ? graph : button).focus();
}

/* ---- what is selected ---- */
let current = null; /* {kind: "layer", "tensor" or "group", index or group} */
function reveal(layer) { /* opens the groups around it; true if something was drawn again */
  const closed = [];
  for (let group = home.get(layer); group; group = group.parent) if (!open.has(group)) closed.push(group);
  if (!closed.length) return false;
  closed.reverse().forEach((group) => open.add(group));
  closeFor(home.get(layer));
  redraw();
  return true;
}
function markSelected() {
  for (const old of all(".on", graph)) old.classList.remove("on");
  if (!current) return;
  const { kind, index, group } = current;
  const mine = kind === "layer" ? new Set([...data.layers[index].inputs, ...data.layers[index].outputs]) : new Set(kind === "tensor" ? [index] : []);
  for (const edge of shown.edges) {
    if ([...edge.tensors].some((t) => mine.has(t))) for (const part of [edge.path, edge.label]) part.classList.add("on");
  }
  const box = elements.get(kind === "layer" ? `l${index}` : kind === "group" ? group.id : `i${index}`) || (kind === "tensor" && elements.get(`o${index}`));
  if (box) box.classList.add("on");
}
function select(kind, index, focus) {
  if (!(kind === "layer" ? data.layers : data.tensors)[index]) return;
  current = { kind, index };
  const { producer, readers } = data.tensors[index] || {};
  const at = kind === "layer" ? index : producer >= 0 ? producer : readers[0];
  if (at !== undefined && focus) reveal(at);
  const key = kind === "layer" || producer >= 0 || !elements.has(`i${index}`) ? `l${at}` : `i${index}`;
  markSelected();
  if (kind === "layer") showLayer(index);
  else showTensor(index);
  if (focus && elements.has(key)) bring(key);
}
function bring(key) {
  for (const old of all('.b[tabindex="0"]', graph)) old.setAttribute("tabindex", "-1");
  elements.get(key).setAttribute("tabindex", "0");
  fits = "";
  view.scale = Math.max(view.scale, 0.7);
  centre(...shown.boxes.get(key).at);
}
function toggle(group) { /* opens or closes it where it is on the screen */
  if (open.has(group)) close(group);
  else {
    open.add(group);
    closeFor(group);
  }
  redraw();
  current = { kind: "group", group };
  showGroup(group);
  const inner = open.has(group) ? boxesOf(group) : [group];
  const key = isGroup(inner[0]) ? inner[0].id : `l${inner[0]}`;
  if (elements.has(key)) {
    bring(key);
    elements.get(key).focus({ preventScroll: true });
  }
}
function fromHash(scroll) {
  const found = /^#(layer|tensor)-(\d+)$/.exec(location.hash);
  if (!found) return;
  select(found[1], Number(found[2]), true);
  if (scroll) byId("network").scrollIntoView({ block: "start" });
}
function go(hash) {
  history.pushState(null, "", hash);
  fromHash(false);
}
document.addEventListener("click", (event) => {
  const anchor = event.target.closest('a[href^="#layer-"], a[href^="#tensor-"]');
  if (!anchor) return;
  event.preventDefault();
  history.pushState(null, "", anchor.getAttribute("href"));
  fromHash(!graph.parentElement.contains(anchor));
});
window.addEventListener("popstate", () => fromHash(true));
graph.addEventListener("click", (event) => {
  if (moved > 4) return;
  const title = event.target.closest("[data-close]");
  if (title) return toggle(groupOf(title.dataset.close));
  const box = event.target.closest("[data-key]");
  const line = event.target.closest("[data-t]");
  if (!box && !line) return;
  const found = box ? shown.boxes.get(box.dataset.key) : { kind: "end", tensor: Number(line.dataset.t) };
  if (found.kind === "group") return toggle(found.group);
  const [kind, index] = found.kind === "layer" ? ["layer", found.layer] : ["tensor", found.tensor];
  history.replaceState(null, "", `#${kind}-${index}`);
  select(kind, index, false);
});
function groupOf(id, group = root) {
  return group.id === id ? group : group.kids.filter(isGroup).map((kid) => groupOf(id, kid)).find(Boolean);
}

/* ---- the panel ---- */
function list(title, items) {
  if (!items.length) return [];
  const ul = make("ul");
  ul.append(...items.slice(0, 40));
  if (items.length > 40) ul.append(make("li", `and ${items.length - 40} more`, "dim"));
  return [make("h4", title), ul];
}
function layerItem(index) {
  const item = make("li");
  item.append(link(data.layers[index].name, `#layer-${index}`), make("span", `  ${data.layers[index].label}`, "dim"));
  return item;
}
function tensorItem(index) {
  const tensor = data.tensors[index];
  const item = make("li");
  item.append(link(tensor.name, `#tensor-${index}`), make("br"), make("span", tensor.scale ? `${tensor.scale}  \u00b1${four(127 * tensor.scale)}` : "no scale", "dim"));
  if (tensor.hex) item.append(make("span", "  "), make("code", tensor.hex), copyButton(tensor.hex, "the hex"));
  const plot = Array.from(document.querySelectorAll(".plot[data-tensor]")).find((p) => p.dataset.tensor === tensor.name);
  if (plot) item.append(plot.querySelector("svg").cloneNode(true));
  return item;
}
const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`);
function command(words, what) {
  const text = words.map(quoted).join(" ");
  const line = make("p", undefined, "command");
  line.append(make("code", text), copyButton(text, what));
  return line;
}
const keepOption = (names) => (names.length ? ["--keep_fp16", ...names] : []);
function costWords(layer) {
  if (layer.fused) return `part of the layer of ${layer.fused}`;
  const bytes = layer.bytes === null ? "" : `${layer.bytes < 1000 ? `${layer.bytes} ` : amount(layer.bytes)}B`;
  if (layer.ms === null) return bytes;
  const parts = [`${milliseconds(layer.ms)} (estimate)`, layer.bound && `bound by ${layer.bound}`, bytes];
  if (layer.int8 !== null) parts.push(`in INT8 ${milliseconds(layer.int8)}, in FP16 ${milliseconds(layer.fp16)}`);
  if (layer.kind !== "int8" && layer.fp16 > layer.int8) parts.push(`INT8 would save ${milliseconds(layer.fp16 - layer.int8)}`);
  return parts.filter(Boolean).join(", ");
}
function engineWords({ actual, verdict, engine_layer, device, format, milliseconds: time, fused_with, why }) {
  const runs = [actual ? actual.toUpperCase() : verdict, device && `on the ${device}`, time !== null && `${milliseconds(time)} (measured)`].filter(Boolean).join(", ");
  const parts = [make("p", `Engine: ${runs}${why ? `. ${why}` : ""}`)];
  if (engine_layer) parts.push(make("p", engine_layer, "name dim"));
  if (format) parts.push(make("p", format, "dim"));
  return [...parts, ...list("Fused with", fused_with.map((name) => make("li", name, "name")))];
}
function sides(rows) { /* A and B beside each other: rows of a title and two texts */
  const table = make("table", undefined, "sides");
  for (const [title, ...texts] of [["", "A", "B"], ...rows.filter(([, a, b]) => a || b)]) {
    const line = make("tr");
    line.append(...[title, ...texts].map((text, i) => {
      const cell = make(title && i ? "td" : "th", text, title && i && texts[0] !== texts[1] ? "differs" : "");
      if (title && !i) cell.scope = "row";
      return cell;
    }));
    table.append(line);
  }
  return table;
}
const plannedWords = ({ label, deviceLabel }) => (deviceLabel.includes(label) ? deviceLabel : [label, deviceLabel].filter(Boolean).join(" \u00b7 "));
function layerSides(layer) {
  const row = (title, text) => [title, text(layer.a), text(layer)];
  const time = (value) => (value === null || value === undefined ? "" : milliseconds(value));
  return [
    row("Planned", plannedWords),
    row("Estimated", (x) => (x.fused ? `in ${x.fused}` : time(x.ms))),
    row("In INT8", (x) => (x.fused ? "" : time(x.int8))),
    row("In FP16", (x) => (x.fused ? "" : time(x.fp16))),
    row("Engine", (x) => (x.engine ? [x.engine.actual.toUpperCase() || x.engine.verdict, x.engine.device].filter(Boolean).join(", ") : "")),
    row("Measured", (x) => (x.engine ? time(x.engine.milliseconds) || (x.engine.engine_layer ? "in another layer" : "") : "")),
  ];
}
function groupSides(group) {
  const [shown, a] = [group.layers.map((i) => data.layers[i]), group.layers.map((i) => data.layers[i].a).filter(Boolean)];
  const row = (title, text) => [title, text(a), text(shown)];
  const all = (items, time) => (items.some((x) => time(x)) ? milliseconds(items.reduce((whole, x) => whole + (time(x) || 0), 0)) : "");
  return [
    row("Layers", (items) => String(items.length)),
    row("INT8", (items) => String(items.filter((x) => x.kind === "int8").length)),
    row("Estimated", (items) => all(items, (x) => x.ms)),
    row("Measured", (items) => all(items, (x) => x.engine && x.engine.milliseconds)),
  ];
}
function showLayer(index) {
  const layer = data.layers[index];
  const parts = [make("h3", layer.op), make("p", layer.name, "name")];
  parts.push(make("p", plannedWords(layer)));
  parts.push(make("p", layer.reason, `why ${layer.kind}`));
  if (layer.a && layer.a.reason !== layer.reason) parts.push(make("p", `In A: ${layer.a.reason}`));
  if (layer.a) parts.push(sides(layerSides(layer)));
  if (layer.cure) parts.push(make("p", `Cure: ${layer.cure}.`));
  const flags = raw.cures[layer.cause] || [];
  if (flags.length) parts.push(command([...raw.command, ...flags.flatMap((flag) => flag.split(" ")), ...keepOption(raw.kept)], "the command"));
  if (layer.cause >= 0) {
    const cause = make("p", "Root cause: ");
    cause.append(link(data.tensors[layer.cause].name, `#tensor-${layer.cause}`));
    parts.push(cause);
  }
  if (layer.engine) parts.push(...engineWords(layer.engine));
  parts.push(...list("Q/DQ that did not fuse", (unfusedAt.get(layer.name) || []).map((row) => make("li", [row.layer, row.pattern, row.cure].filter(Boolean).join(". ")))));
  parts.push(make("p", `${amount(layer.macs)} MACs${layer.share ? ` (${percent(layer.share)})` : ""}, ${amount(layer.weights)} weights`, "dim"));
  if (costWords(layer)) parts.push(make("p", costWords(layer), "dim"));
  if (layer.db !== null) parts.push(make("p", `Verify: ${layer.db === "equal" ? "equal" : `SQNR ${decibel(layer.db)} dB`}`));
  if (layer.noise !== null) parts.push(make("p", `${percent(layer.noise)} of the noise at the outputs`));
  if (layer.bits) parts.push(make("p", `${layer.bits.toFixed(1)} bits of resolution lost to a shared range`));
  if (layer.hypotheses.length) parts.push(make("p", `Rests on hypotheses: ${layer.hypotheses.join(", ")}`, "dim"));
  if (canKeep(layer)) parts.push(keepButton(layer));
  parts.push(...list("DLA limits", layer.findings.map(([text, found, source, status]) => {
    const item = make("li", `${text}: ${found}`);
    item.append(make("br"), make("span", status === "documented" ? source : `${source} [${status}]`, "dim"));
    return item;
  })));
  parts.push(...list("Reads", layer.inputs.map(tensorItem)), ...list("Makes", layer.outputs.map(tensorItem)));
  const next = [...new Set(layer.outputs.flatMap((t) => data.tensors[t].readers))];
  const before = [...new Set(layer.inputs.map((t) => data.tensors[t].producer))].filter((i) => i >= 0);
  parts.push(...list("Before", before.map(layerItem)), ...list("After", next.map(layerItem)));
  panel.replaceChildren(...parts);
}
function showTensor(index) {
  const tensor = data.tensors[index];
  const parts = [make("h3", "Tensor"), make("p", tensor.name, "name")];
  if (tensor.role) parts.push(make("p", tensor.shape ? `${tensor.role}, ${tensor.shape}` : tensor.role));
  if (!tensor.scale) parts.push(make("p", "No scale.", "why avoidable"));
  else {
    const value = make("p", "Scale ");
    value.append(make("code", tensor.scale), copyButton(tensor.scale, "the scale"));
    const hex = make("p", "Hex ");
    hex.append(make("code", tensor.hex), copyButton(tensor.hex, "the hex"));
    const rule = tensor.words ? `${tensor.rule}, ${tensor.words}` : tensor.rule;
    parts.push(value, hex, make("p", `Range \u00b1${four(127 * tensor.scale)}`), make("p", `${tensor.explicit ? "From the model" : "Inferred"} (${rule})`));
    if (tensor.node) parts.push(make("p", `at ${tensor.node}`, "name dim"));
    if (tensor.source && tensor.source !== tensor.name) parts.push(make("p", `from ${tensor.source}`, "name dim"));
    if (raw.scalesBefore.length && raw.scalesBefore[index] !== tensor.scale) parts.push(make("p", `In A: ${raw.scalesBefore[index] || "no scale"}`));
    if (tensor.bits) parts.push(make("p", `${tensor.bits.toFixed(1)} bits of resolution lost to a shared range`));
  }
  if (tensor.producer >= 0) parts.push(...list("Made by", [layerItem(tensor.producer)]));
  parts.push(...list("Read by", tensor.readers.map(layerItem)));
  panel.replaceChildren(...parts);
}
function showGroup(group) {
  const parts = [make("h3", group.name || "The network"), make("p", totals(group).join(", "))];
  parts.push(make("p", `${amount(sum(group.layers, (x) => x.macs))} MACs, ${amount(sum(group.layers, (x) => x.weights))} weights`, "dim"));
  if (group.layers.some((i) => data.layers[i].a)) parts.push(sides(groupSides(group)));
  for (const [title, value, words] of [["Slowest", timeShown(), milliseconds], ["Most noise", (x) => x.noise, percent]]) {
    const most = group.layers.filter((i) => value(data.layers[i])).sort((a, b) => value(data.layers[b]) - value(data.layers[a])).slice(0, 5);
    parts.push(...list(title, most.map((i) => { const item = layerItem(i); item.append(make("span", `  ${words(value(data.layers[i]))}`)); return item; })));
  }
  parts.push(...list("FP16 avoidable", group.layers.filter((i) => data.layers[i].kind === "avoidable").map(layerItem)));
  panel.replaceChildren(...parts);
}

/* ---- what keeping a layer in FP16 would take: exact sums of the estimate's own figures ---- */
const membersOf = new Map(); /* the first node of a layer of the DLA -> all that are part of it */
for (const x of data.layers) if (x.fused) membersOf.set(x.fused, [...(membersOf.get(x.fused) || []), x]);
const byName = new Map(data.layers.map((x) => [x.name, x]));
const namesOf = (x) => [x, ...(membersOf.get(x.name) || []).filter((y) => y.kind === "int8")].map((y) => y.name);
function movedBy(x) { /* the layers that the option moves: those with the names, and what rewrites made of them in your model */
  return namesOf(x).flatMap((name) => [name, ...(raw.follows[name] || [])]).map((name) => byName.get(name)).filter((y) => y && y.kind === "int8");
}
function canKeep(x) { /* not where only the end of a fused layer would move: its time is not among the figures */
  if (x.kind !== "int8" || x.fused || !raw.command.length) return false;
  const moved = new Set(movedBy(x));
  return [...moved].every((y) => !y.fused || moved.has(byName.get(y.fused)));
}
const chosen = new Set(); /* layers that the reader keeps in FP16 */
const keptNames = () => [...chosen].sort((a, b) => a - b).flatMap((i) => namesOf(data.layers[i]));
function keep(index) {
  if (!chosen.delete(index)) chosen.add(index);
  keptLayers.clear();
  for (const i of chosen) for (const y of movedBy(data.layers[i])) keptLayers.add(y.index);
  showKept();
  paint();
}
function keptMilliseconds() { /* of the DLA's layers; null without an estimate */
  return raw.milliseconds === null ? null : [...keptLayers].reduce((all, i) => all + (data.layers[i].fp16 || 0) - (data.layers[i].int8 || 0), raw.milliseconds);
}
function keepButton(layer) {
  const button = make("button", chosen.has(layer.index) ? "Back to INT8" : "Keep in FP16");
  button.type = "button";
  button.id = "keep";
  button.addEventListener("click", () => {
    keep(layer.index);
    showLayer(layer.index);
    byId("keep").focus();
  });
  return button;
}
function showKept() {
  const line = byId("kept");
  line.hidden = !chosen.size;
  const time = keptMilliseconds();
  const added = time === null ? "" : time - raw.milliseconds;
  const reset = make("button", "Reset");
  reset.type = "button";
  reset.addEventListener("click", () => { [...chosen].forEach(keep); panel.replaceChildren(); });
  const said = time === null ? "no estimate of the time" : `${milliseconds(time)} on the DLA (estimate), ${added < 0 ? "\u2212" : "+"}${milliseconds(Math.abs(added))}`;
  const number = chosen.size === 1 ? "1 layer" : `${chosen.size} layers`;
  line.replaceChildren(`${number} kept in FP16: ${said} `, reset, command([...raw.command, ...keepOption([...raw.kept, ...keptNames()])], "the command"));
  line.dataset.milliseconds = time === null ? "" : time;
}

/* ---- keys ---- */
function neighbour(key) {
  const keys = [...shown.boxes.keys()];
  const at = document.activeElement && document.activeElement.dataset.key;
  const here = shown.boxes.has(at) ? at : current && current.kind === "layer" ? `l${current.index}` : "";
  if (!shown.boxes.has(here)) return keys[0];
  const next = { ArrowDown: around.after, ArrowUp: around.before }[key];
  return next ? (next.get(here) || [])[0] : keys[keys.indexOf(here) + (key === "ArrowRight" ? 1 : -1)];
}
function step(key) {
  const box = shown.boxes.get(key);
  if (!box) return;
  if (box.kind === "layer") go(`#layer-${box.layer}`);
  else if (box.kind === "end") go(`#tensor-${box.tensor}`);
  else {
    current = { kind: "group", group: box.group };
    showGroup(box.group);
    markSelected();
    bring(key);
  }
  elements.get(key).focus({ preventScroll: true });
}
graph.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  const box = shown.boxes.get(event.target.dataset.key);
  if (event.key.startsWith("Arrow")) step(neighbour(event.key));
  else if (event.key === "+" || event.key === "=") zoom(1.4);
  else if (event.key === "-") zoom(1 / 1.4);
  else if (event.key === "0") fit("whole");
  else if (event.key === "Enter" || event.key === " ") {
    if (!box) return;
    if (box.kind === "group") toggle(box.group);
    else step(box.key);
  } else if (event.key === "Backspace") {
    const group = box && (box.kind === "layer" ? home.get(box.layer) : box.group && box.group.parent);
    if (group && group !== root) toggle(group);
  } else if (event.key === "Escape" && graph.parentElement.classList.contains("full")) setFull(false);
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.target.closest("input, select")) return;
  event.preventDefault();
  byId("find-layer").focus();
});
const find = byId("find-layer");
let places = null; /* [hash, text] of what matches; null until the box was read again */
let found = -1;
function lookUp() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  found = -1;
  places = !words.length ? [] : [
    ...data.layers.map((x, i) => [`#layer-${i}`, `${x.name} ${x.op}`]),
    ...data.tensors.map((x, i) => [`#tensor-${i}`, x.name]),
  ].filter(([, text]) => words.every((w) => text.toLowerCase().includes(w)));
  const nothing = words.length > 0 && !places.length;
  byId("find-count").textContent = !words.length ? "" : nothing ? "Nothing found" : `${places.length} found`;
  byId("find-count").classList.toggle("none", nothing);
  find.setAttribute("aria-invalid", String(nothing));
}
function findNext(by) {
  if (places === null) lookUp();
  if (!places.length) return;
  found = found < 0 && by < 0 ? places.length - 1 : (found + by + places.length) % places.length;
  byId("find-count").textContent = `${found + 1} of ${places.length}`;
  go(places[found][0]);
}
find.addEventListener("input", lookUp);
find.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  event.preventDefault();
  findNext(event.shiftKey ? -1 : 1);
});
for (const button of all("[data-find]")) button.addEventListener("click", () => findNext(Number(button.dataset.find)));

/* ---- what is under the pointer ---- */
const tip = byId("tip");
function tipText(target) {
  const box = target.closest("[data-key]") && shown.boxes.get(target.closest("[data-key]").dataset.key);
  const line = target.closest("[data-t]");
  if (box && box.kind === "layer") {
    const layer = data.layers[box.layer];
    return `${layer.op} ${layer.name}\n${layer.label}${layer.deviceLabel ? `, ${layer.deviceLabel}` : ""}: ${layer.reason}`;
  }
  if (box && box.kind === "group") return `${box.group.name}\n${totals(box.group).join(", ")}`;
  const tensor = data.tensors[box ? box.tensor : line ? Number(line.dataset.t) : -1];
  if (!tensor) return "";
  const origin = tensor.rule ? `  (${tensor.explicit ? "model" : "inferred"}, ${tensor.rule})` : "";
  return `${tensor.name}\n${tensor.scale || "no scale"}  ${tensor.hex}${origin}`;
}
function showTip(text, event) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  tip.style.left = `${Math.max(0, Math.min(event.clientX + 14, innerWidth - 430))}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - 90)}px`;
}
graph.addEventListener("pointerover", (event) => showTip(tipText(event.target), event));
graph.addEventListener("pointerleave", () => { tip.hidden = true; });

/* ---- what shows at first ---- */
function choices(select, rows, chosen, change) {
  for (const [value, title] of rows) {
    const option = make("option", title);
    option.value = value;
    option.selected = value === chosen;
    select.append(option);
  }
  select.addEventListener("change", () => change(select.value));
}
const kindsOfGroups = Object.entries(groupings).filter(([, row]) => row[2]);
choices(byId("grouping"), kindsOfGroups.map(([key, row]) => [key, row[0]]), kindsOfGroups[0][0], (kind) => { regroup(kind); redraw(); fit("readable"); });
choices(byId("colour"), Object.entries(colours).filter(([, row]) => row.on).map(([key, row]) => [key, row.title]), colour, (key) => { colour = key; paint(); });
byId("close-all").addEventListener("click", () => { open = new Set([root]); redraw(); fit("readable"); });
const left = data.layers.length - mapped.length;
const onlyA = (raw.changedLayers || []).filter((x) => !x.after).length;
byId("left-out").textContent = [[left, "without float data"], [onlyA, "only in A"]].filter(([number]) => number)
  .map(([number, which]) => `${number === 1 ? "1 layer" : `${number} layers`} ${which}: in the table only.`).join(" ");
regroup(kindsOfGroups[0][0]);
redraw();
new ResizeObserver(measure).observe(graph);
measure();
fromHash(true);
requestAnimationFrame(() => setTimeout(() => performance.mark("usable"))); /* once it has been painted */
