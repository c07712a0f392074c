// One stream of the page: its line in the list, and when it is open, its facts and its matrix.

import { Lines } from "./lines.js";
import {
  OUTCOMES, STATES, briefParts, cellSign, cellText, factsOf, h, kindOf, messageParts, number, reasonParts,
  regionState, setAttribute, setFacts, setParts, setSince, setText, shortTime, table, time,
} from "./text.js";

/** The line of a stream in the list; `show` displays details of a cut or of a region, `opened` asks for the cuts. */
export class StreamCard {
  constructor(name, show, opened) {
    this.name = name;
    this.show = show;
    this.opened = opened;
    this.rank = 0;
    this.seen = false; // true while it is on the screen
    this.body = null;
    this.badge = h("span", { class: "badge" });
    this.brief = h("span", { class: "brief" });
    const title = h("span", { class: "name", text: name });
    this.button = h("button", { type: "button", "aria-expanded": "false", onclick: () => this.toggle() });
    this.button.append(this.badge, title, this.brief);
    const link = h("a", { href: `#stream=${encodeURIComponent(name)}`, class: "link", text: "link" });
    link.setAttribute("aria-label", `Link to stream ${name}`);
    this.reason = h("p", { class: "reason" });
    this.lines = new Lines(name);
    const head = h("div", { class: "head" }, h("h2", {}, this.button), link);
    this.node = h("article", { class: "stream", "aria-label": `Stream ${name}` }, head, this.reason, this.lines.node);
  }

  get isOpen() {
    return this.body !== null;
  }

  toggle() {
    if (this.isOpen) this.close();
    else this.open();
  }

  open() {
    if (this.isOpen) return;
    this.body = new StreamBody(this.name, this.show);
    this.node.append(this.body.node);
    this.node.classList.add("open");
    this.button.setAttribute("aria-expanded", "true");
    if (this.stream) this.body.update(this.stream, this.problems, this.cuts);
    this.opened();
  }

  close() {
    this.body?.node.remove();
    this.body = null;
    this.node.classList.remove("open");
    this.button.setAttribute("aria-expanded", "false");
  }

  /** Show the newest values. Nodes whose values are the same stay as they are. */
  update(stream, cuts) {
    this.stream = stream;
    this.cuts = cuts;
    this.problems = stream.reasons ?? [];
    const [gravest] = this.problems;
    const more = this.problems.length - 1;
    this.kind = gravest?.kind ?? "fine";
    const { word, sign } = kindOf(this.kind);
    setAttribute(this.node, "data-kind", this.kind);
    setText(this.badge, `${sign} ${word}`);
    setParts(this.brief, briefParts(stream, cuts));
    this.lines.update(cuts);
    const rest = more > 0 ? ` (and ${more} more)` : "";
    const fine = "Nothing keeps this stream from progress.";
    setParts(this.reason, gravest ? [...reasonParts(gravest), rest].filter(Boolean) : [fine]);
    this.body?.update(stream, this.problems, cuts);
  }

  /** Show that the values cannot be shown; other streams are not affected. */
  fail() {
    this.kind = "stall";
    setText(this.badge, "? unknown");
    const command = { code: `sluicegate status --stream ${this.name}` };
    setParts(this.reason, ["The page cannot show the values of this stream. Use ", command, "."]);
  }
}

/** The open part of a stream. */
class StreamBody {
  constructor(name, show) {
    this.facts = h("dl", { class: "facts" });
    this.others = h("ul", { class: "conditions", "aria-label": `Further conditions of stream ${name}` });
    this.refusals = h("ul", { class: "conditions", "aria-label": `Refusals of stream ${name}` });
    this.refusalsTitle = h("h3", { text: "Refusals" });
    this.listeners = h("ul", { class: "conditions", "aria-label": `Listeners of stream ${name}` });
    this.listenersTitle = h("h3", { text: "Listeners" });
    this.tables = h("div", {});
    this.matrix = new Matrix(name, show);
    this.node = h("div", { class: "body" });
    this.node.append(this.others, this.facts, this.tables, this.refusalsTitle, this.refusals);
    this.node.append(this.listenersTitle, this.listeners, this.matrix.node);
  }

  update(stream, problems, cuts) {
    setFacts(this.facts, factsOf(stream, cuts));
    setItems(this.others, problems.slice(1).map(conditionParts));
    setTables(this.tables, stream.view);
    const refused = refusalsOf(stream, problems);
    setItems(this.refusals, refused);
    this.refusalsTitle.hidden = this.refusals.hidden = refused.length === 0;
    const listeners = listenersOf(stream);
    setItems(this.listeners, listeners);
    this.listenersTitle.hidden = listeners.length === 0;
    this.matrix.update(stream, cuts);
  }
}

const MOST_TABLES = 20;

/** Show the tables of a stream of several, with the vector: the newest commit that touched each, its snapshot. */
function setTables(node, view) {
  const all = Object.entries(view.tables ?? {});
  const key = JSON.stringify([all, view.table, view.committed, view.snapshot, view.conditions]);
  if (node.key === key) return;
  node.key = key;
  node.hidden = all.length === 0;
  const anchor = ["anchor", { identifier: view.table, decision: view.committed, snapshot: view.snapshot }];
  const rows = [anchor, ...all.slice(0, MOST_TABLES)].map(([name, each]) => {
    const touched = each.decision ? number(each.decision) : "none yet";
    const snapshot = each.snapshot ? `${each.snapshot.id}:${each.snapshot.identity}` : "–";
    const codes = (view.conditions ?? []).filter((one) => one.table === name).map((one) => one.code);
    const texts = [each.identifier ?? "–", touched, snapshot, codes.join(", ") || "–"];
    return h("tr", {}, h("th", { scope: "row", text: name }), ...texts.map((text) => h("td", { text })));
  });
  const label = `Tables of stream ${view.stream}, and the vector of its newest commit`;
  const shown = table(label, ["Table", "In the catalog", "Newest commit", "Snapshot", "Problem"], rows);
  const more = all.length - MOST_TABLES;
  const rest = h("p", { class: "quiet" });
  if (more > 0) setParts(rest, [`and ${number(more)} more: `, { code: `sluicegate status --stream ${view.stream} -v` }]);
  const scroll = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, shown);
  node.replaceChildren(h("h3", { text: "Tables and vector" }), scroll, ...(more > 0 ? [rest] : []));
}

/** Return a line for each listener: its place, its backlog, and the problem that keeps it from progress. */
function listenersOf(stream) {
  return Object.entries(stream.view.listeners ?? {}).map(([name, each]) => {
    const behind = each.backlog ? `, ${number(each.backlog)} behind` : "";
    const line = `${name} (${each.type}): decision ${number(each.decision ?? 0)}${behind}`;
    if (!each.problem) return [line];
    const word = each.stopped ? "STOPPED" : "RETRY";
    return [`${line}. ${word} ${each.problem.code}: `, ...messageParts(each.problem.message)];
  });
}

function conditionParts(each) {
  const word = kindOf(each.kind).word.toUpperCase();
  return [`${word} ${each.code}: `, ...reasonParts(each)];
}

/** Return the newest refused registrations that are no condition: the stream can progress without them. */
function refusalsOf(stream, problems) {
  const shown = new Set(problems.map((each) => each.message));
  const refused = Object.entries(stream.view.regions ?? {}).filter(([, region]) => region.refused);
  return refused
    .filter(([, { refused: why }]) => !shown.has(why.message))
    .map(([name, { refused: why }]) => [`Region ${name}, ${why.code}: `, ...messageParts(why.message)]);
}

function setItems(list, items) {
  while (list.children.length > items.length) list.lastChild.remove();
  while (list.children.length < items.length) list.append(h("li"));
  items.forEach((parts, index) => setParts(list.children[index], parts));
  list.hidden = items.length === 0;
}

// --- the matrix -----------------------------------------------------------------------------------

const FIXED = [
  ["region", "Region"], ["state", "State"], ["heard", "Heard"], ["fallbacks", "Fell back"], ["age", "Position"],
];

const TICKS = 8; // columns between two times of the axis

/** Regions and the last cuts of a stream, the newest at the right. Nodes stay with their cut and their region. */
class Matrix {
  constructor(name, show) {
    this.name = name;
    this.show = show;
    this.columns = []; // {id, json, cut, head, ticks}, the oldest first
    this.rows = new Map();
    this.current = null;
    this.heads = h("tr", { role: "row" }, ...FIXED.map(headOf));
    this.tbody = h("tbody", { role: "rowgroup" });
    this.table = h("table", { role: "grid", "aria-label": `Regions and cuts of stream ${name}, newest cut last` });
    this.table.append(h("thead", { role: "rowgroup" }, this.heads), this.tbody);
    this.table.addEventListener("click", (event) => this.onClick(event));
    this.table.addEventListener("keydown", (event) => this.onKey(event));
    this.empty = h("p", { class: "quiet", text: "No cut yet." });
    const scroll = h("div", { class: "scroll" }, this.table);
    this.node = h("div", { class: "matrix" }, h("h3", { text: "Cuts, the newest at the right" }), scroll, this.empty, legend());
  }

  update(stream, cuts) {
    this.stream = stream;
    const focused = this.table.contains(document.activeElement);
    this.setRows(namesOf(stream.view, cuts));
    this.setColumns(cuts);
    this.empty.hidden = cuts.length > 0;
    const newest = cuts.at(-1)?.regions ?? {};
    for (const [name, row] of this.rows) this.setRow(row, stream, name, newest[name]);
    if (this.current?.isConnected) return;
    this.setCurrent(this.tbody.rows[0]?.cells[0] ?? null);
    if (focused) this.current?.focus(); // the focused cut is no longer among the last ones
  }

  setRow(row, stream, name, newest) {
    const region = stream.view.regions?.[name];
    const most = stream.view.max_consecutive_fallbacks;
    const state = regionState(region, (stream.view.silent ?? []).includes(name));
    setText(row.state, state);
    setAttribute(row.state, "class", `state ${state === state.toUpperCase() && state !== "–" ? "grave" : "quiet"}`);
    const fallbacks = region?.consecutive_fallbacks ?? 0;
    setText(row.fallbacks, most ? `${number(fallbacks)} of ${number(most)}` : number(fallbacks));
    setAttribute(row.fallbacks, "class", `fallbacks ${fallbacks ? "some" : "quiet"}`);
    setSince(row.heard, region?.heard);
    setSince(row.age, newest?.since);
  }

  // --- rows and columns ---------------------------------------------------------------------------

  setRows(names) {
    const wanted = new Set(names);
    for (const [name, row] of this.rows) {
      if (wanted.has(name)) continue;
      row.node.remove();
      this.rows.delete(name);
    }
    let after = this.tbody.firstChild;
    for (const name of names) {
      const row = this.rows.get(name) ?? this.addRow(name);
      if (row.node === after) after = after.nextSibling;
      else this.tbody.insertBefore(row.node, after);
    }
  }

  addRow(name) {
    const [state, heard, fallbacks, age] = ["state", "heard", "fallbacks", "age"].map(factCell);
    const head = h("th", { role: "rowheader", class: "region", title: name, text: name });
    const node = h("tr", { role: "row" }, head, state, heard, fallbacks, age);
    const row = { node, state, heard, fallbacks, age, cells: new Map() };
    row.node.region = name;
    for (const { cut } of this.columns) row.node.append(addCell(row, cut, name));
    this.rows.set(name, row);
    return row;
  }

  setColumns(cuts) {
    const wanted = new Set(cuts.map((cut) => cut.id));
    this.columns.filter((column) => !wanted.has(column.id)).forEach((column) => this.removeColumn(column));
    const kept = new Map(this.columns.map((each) => [each.id, each]).filter(([id]) => wanted.has(id)));
    let newer = null;
    this.columns = cuts.toReversed().map((cut) => {
      const column = kept.get(cut.id) ?? this.addColumn(cut, newer);
      if (column.cut !== cut) this.setColumn(column, cut);
      newer = column;
      return column;
    }).reverse();
    if (cuts.length > kept.size) this.setAxis(cuts.length - kept.size > 1);
  }

  /** Show the time of some cuts. A time stays with its cut, unless `all`: many cuts are new. */
  setAxis(all) {
    let since = this.columns.some((each) => each.ticks) && !all ? 0 : TICKS;
    for (const column of this.columns) {
      if (all) column.ticks = false;
      column.ticks ||= since >= TICKS;
      since = column.ticks ? 1 : since + 1;
      setAttribute(column.head, "data-time", column.ticks ? shortTime(column.cut.time) : "");
    }
  }

  /** Add a column before that of the next newer cut. */
  addColumn(cut, newer) {
    const head = h("th", { role: "columnheader" });
    const column = { id: cut.id, cut, json: JSON.stringify(cut), head, ticks: false };
    setHead(head, cut);
    this.heads.insertBefore(head, newer?.head ?? null);
    for (const [name, row] of this.rows) {
      row.node.insertBefore(addCell(row, cut, name), (newer && row.cells.get(newer.id)) || null);
    }
    return column;
  }

  removeColumn(column) {
    column.head.remove();
    for (const row of this.rows.values()) {
      row.cells.get(column.id)?.remove();
      row.cells.delete(column.id);
    }
  }

  /** Show the same cut as it is now, for example after a new connection. */
  setColumn(column, cut) {
    const json = JSON.stringify(cut);
    column.cut = cut;
    column.head.cut = cut;
    for (const row of this.rows.values()) row.cells.get(cut.id).cut = cut;
    if (json === column.json) return;
    column.json = json;
    setHead(column.head, cut);
    for (const [name, row] of this.rows) setCell(row.cells.get(cut.id), cut, name);
  }

  // --- keyboard and pointer -----------------------------------------------------------------------

  setCurrent(cell) {
    this.current?.removeAttribute("tabindex");
    this.current = cell;
    cell?.setAttribute("tabindex", "0");
  }

  onClick(event) {
    const cell = event.target.closest("th, td");
    if (cell !== null) this.activate(cell);
  }

  onKey(event) {
    const cell = event.target.closest("th, td");
    if (cell === null || event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") this.activate(cell);
    else if (!this.move(cell, event)) return;
    event.preventDefault();
  }

  move(cell, event) {
    const row = cell.parentNode.rowIndex;
    const [last, bottom] = [cell.parentNode.cells.length - 1, this.table.rows.length - 1];
    const target = {
      ArrowLeft: [row, cell.cellIndex - 1],
      ArrowRight: [row, cell.cellIndex + 1],
      ArrowUp: [row - 1, cell.cellIndex],
      ArrowDown: [row + 1, cell.cellIndex],
      Home: [event.ctrlKey ? 0 : row, 0],
      End: [event.ctrlKey ? bottom : row, last],
    }[event.key];
    if (target === undefined) return false;
    const next = this.table.rows[target[0]]?.cells[target[1]];
    if (next !== undefined) this.focus(next);
    return true;
  }

  focus(cell) {
    this.setCurrent(cell);
    cell.focus();
  }

  activate(cell) {
    this.focus(cell);
    const region = cell.parentNode.region ?? null;
    if (cell.cut) this.show({ stream: this.name, cut: cell.cut, region, from: cell });
    else if (region !== null) this.show({ stream: this.name, region, from: cell });
  }
}

// The rows are no table boxes (page.css), so the roles are named.
const headOf = ([kind, text]) => h("th", { role: "columnheader", class: kind, text });

const factCell = (kind) => h("td", { role: "gridcell", class: `${kind} quiet` });

function setHead(head, cut) {
  head.cut = cut;
  head.className = `cut ${OUTCOMES[cut.outcome] ? cut.outcome : ""}`;
  head.textContent = OUTCOMES[cut.outcome]?.sign ?? "?";
  head.title = `Decision ${number(cut.decision)}, ${cut.outcome}, ${time(cut.time)}`;
  head.setAttribute("aria-label", head.title);
}

function addCell(row, cut, name) {
  const cell = document.createElement("td");
  cell.setAttribute("role", "gridcell");
  setCell(cell, cut, name);
  row.cells.set(cut.id, cell);
  return cell;
}

function setCell(cell, cut, name) {
  const entry = cut.regions[name];
  cell.cut = cut;
  cell.className = `cell ${STATES[entry?.state]?.word ?? "absent"}`;
  cell.textContent = cellSign(entry);
  cell.setAttribute("aria-label", `${name}, decision ${cut.decision}: ${cellText(entry)}`);
}

/** Return the regions of the assignment in its order, then all others of the view and of the cuts. */
function namesOf(view, cuts) {
  const names = new Set(view.assignment?.regions ?? []);
  const known = Object.entries(view.regions ?? {}).filter(([, region]) => region.phase !== "removed");
  for (const [name] of known) names.add(name);
  const former = new Set(cuts.flatMap((cut) => Object.keys(cut.regions)));
  return [...names, ...[...former].filter((name) => !names.has(name)).sort()];
}

function legend() {
  const cells = [["●", "moved"], ["1", "fell back, times in a row"], ["–", "idle"], ["×", "left out"]];
  const cuts = Object.entries(OUTCOMES).map(([word, { sign }]) => [sign, word]);
  const signs = [...cells, ...cuts].flatMap(([sign, word]) => [h("b", { text: sign }), ` ${word}  `]);
  const how = "Arrow keys move, Enter shows the details of a cut or a region.";
  return h("p", { class: "legend" }, ...signs, how);
}
