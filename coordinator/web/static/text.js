// Words of the page, and small helpers for the DOM. Texts from outside only ever become text nodes.

const DAY = 86_400_000;

/** Kinds of reasons with their word, their sign, and their rank: 0 is the gravest. */
const KINDS = {
  stall: { rank: 0, word: "stalled", sign: "■" },
  refusal: { rank: 1, word: "refused", sign: "×" },
  failed: { rank: 2, word: "failed", sign: "▲" },
  silent: { rank: 3, word: "silent", sign: "?" },
  late: { rank: 4, word: "late", sign: "»" },
  retry: { rank: 5, word: "retries", sign: "~" },
  letter: { rank: 6, word: "dead letter", sign: "!" },
  pause: { rank: 7, word: "paused", sign: "‖" },
  wait: { rank: 8, word: "waits", sign: "…" },
  fine: { rank: 9, word: "fine", sign: "●" },
};

export const OUTCOMES = {
  full: { sign: "F", text: "Every region that had work moved." },
  forced: { sign: "!", text: "Full, because a region had fallen back as often as allowed." },
  partial: { sign: "P", text: "Lagging regions stayed at their positions." },
  reverted: { sign: "R", text: "The decision was reverted: nothing of it is in the table." },
  abandoned: { sign: "A", text: "Too many regions would have fallen back, so nothing was decided." },
};

export const STATES = {
  moved: { sign: "●", word: "moved" },
  "fell back": { sign: "1", word: "fell-back" },
  idle: { sign: "–", word: "idle" },
  "left out": { sign: "×", word: "left-out" },
};

/** The clock of the deployment, so that a wrong clock of this computer does not change ages. */
export const clock = {
  offset: 0,
  now() {
    return Date.now() + this.offset;
  },
};

// --- the DOM --------------------------------------------------------------------------------------

/** Return an element; `props` are attributes, except `text` and event listeners (`onclick`). */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

export function setText(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Show parts: texts, `{code}` for a command, `{since}` for an age that grows. Equal parts change nothing. */
export function setParts(node, parts) {
  const key = JSON.stringify(parts);
  if (node.parts === key) return;
  node.parts = key;
  node.replaceChildren(...parts.map(partNode));
}

function partNode(part) {
  if (typeof part === "string") return part;
  if ("code" in part) return h("code", { text: part.code });
  const node = h("span", {});
  setSince(node, part.since);
  return node;
}

/** Show an age that grows; a dash if there is none. */
export function setSince(node, since) {
  if (since === null || since === undefined) {
    delete node.dataset.since;
    return setText(node, "–");
  }
  node.dataset.since = since;
  return setText(node, duration(clock.now() - since));
}

/** Show all ages on the page as of now. */
export function showAges() {
  const now = clock.now();
  for (const node of document.querySelectorAll("[data-since]")) {
    setText(node, duration(now - Number(node.dataset.since)));
  }
}

/** Show facts (`[label, parts]`) in a list of definitions; rows keep their nodes. */
export function setFacts(list, facts) {
  list.rows ??= new Map();
  const labels = new Set(facts.map(([label]) => label));
  for (const [label, row] of list.rows) {
    if (labels.has(label)) continue;
    row.remove();
    list.rows.delete(label);
  }
  let after = list.firstChild;
  for (const [label, parts] of facts) {
    let row = list.rows.get(label);
    if (row === undefined) {
      row = h("div", {}, h("dt", { text: label }), h("dd"));
      list.rows.set(label, row);
    }
    if (row === after) after = row.nextSibling;
    else list.insertBefore(row, after);
    setParts(row.lastChild, parts);
  }
}

// --- numbers and times ----------------------------------------------------------------------------

const NUMBERS = new Intl.NumberFormat("en");

export const number = (value) => (value === null || value === undefined ? "–" : NUMBERS.format(value));

export const count = (value, one) => `${number(value)} ${value === 1 ? one : `${one}s`}`;

/** Format a duration as the commands do: `12 s`, `4 min`, `2.5 h`, `3 days`. */
export function duration(millis) {
  const seconds = Math.max(0, millis) / 1000;
  if (seconds < 90) return `${Math.max(1, Math.round(seconds))} s`;
  if (seconds < 5_400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${(seconds / 3_600).toFixed(1)} h`;
  return `${Math.round(seconds / 86_400)} days`;
}

/** Format a measured delay, where parts of a second count. */
export function delay(millis) {
  if (millis === null || millis === undefined) return "–";
  if (millis < 1_000) return `${Math.round(millis)} ms`;
  return millis < 10_000 ? `${(millis / 1000).toFixed(1)} s` : duration(millis);
}

/** Format a time as ISO, in UTC, to the second. */
export function time(millis) {
  if (millis === null || millis === undefined) return "–";
  const date = new Date(millis);
  return Number.isNaN(date.getTime()) ? `${millis} ms` : date.toISOString().replace(/\.\d+Z$/, "Z");
}

/** Format a time for narrow places: one of the last day has no date, and an older one no seconds. */
export function shortTime(millis) {
  if (millis === null || millis === undefined) return "–";
  return Math.abs(clock.now() - millis) < DAY ? time(millis).slice(11, 19) : time(millis).slice(5, 16).replace("T", " ");
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
  const power = Math.min(units.length - 1, Math.floor(Math.log10(Math.max(1, value)) / 3));
  return power ? `${(value / 1000 ** power).toPrecision(3)} ${units[power]}` : `${number(value)} bytes`;
}

/** Shorten a long incarnation id, as the commands do. */
export function shortId(incarnation) {
  if (!incarnation) return "–";
  return incarnation.length <= 12 ? incarnation : `${incarnation.slice(0, 8)}…`;
}

/** Return the parts of a message; commands stand between backticks. */
export function messageParts(message) {
  return message
    .split("`")
    .map((text, index) => (index % 2 ? { code: text } : text))
    .filter((part) => part !== "");
}

// --- the state of a stream ------------------------------------------------------------------------

/** Words of all kinds, the gravest first: [kind, word]. */
export const kindWords = Object.entries(KINDS).map(([kind, { word }]) => [kind, word]);

export const kindOf = (kind) => KINDS[kind] ?? { rank: 4, word: kind, sign: "?" };

/** Return the parts of a reason: its sentences, and since when it holds. */
export function reasonParts(reason) {
  const since = reason.since ?? null;
  return [...messageParts(reason.message), ...(since === null ? [] : [" (for ", { since }, ")"])];
}

/** Return one word for the state of a region, the gravest first. */
export function regionState(region, silent) {
  if (region === undefined) return "–";
  if (region.stalled) return "STALLED";
  if (region.refused) return "REFUSED";
  if (region.failed) return "FAILED";
  if (silent) return "SILENT";
  if (region.phase === "live" && region.idle) return "idle";
  return region.phase ?? "waiting";
}

/** Return the sum of the files and rows that no cut has yet, with the time of the oldest. */
export function pendingOf(view) {
  const sum = { files: 0, rows: 0, since: null };
  for (const each of Object.values(view.waiting ?? {})) {
    sum.files += each.files;
    sum.rows += each.rows;
    if (each.files && (sum.since === null || each.since < sum.since)) sum.since = each.since;
  }
  return sum;
}

function pendingParts({ view, pending_bytes: size }) {
  const { files, rows, since } = pendingOf(view);
  if (!files) return ["none"];
  const inside = [rows ? count(rows, "row") : "", size ? bytes(size) : ""].filter(Boolean).join(", ");
  const amount = count(files, "file") + (inside ? ` with ${inside}` : "");
  return since === null ? [amount] : [`${amount}, the oldest for `, { since }];
}

const COMMITS = ["full", "forced", "partial"];

/** Return the time of the newest commit that is known. */
function committedAt(stream, cuts) {
  const newest = cuts.findLast((cut) => COMMITS.includes(cut.outcome))?.time ?? null;
  return Math.max(newest, stream.committed_at ?? null) || null;
}

/** Return the short facts beside the name of a stream. */
export function briefParts(stream, cuts) {
  const { view } = stream;
  const parts = [view.committed ? `commit ${number(view.committed)}` : "no commit yet"];
  const at = committedAt(stream, cuts);
  if (view.committed && at !== null) parts.push(", ", { since: at }, " ago");
  const known = view.watermark !== null && view.watermark !== undefined;
  if (known) parts.push(" · lag ", { since: view.watermark });
  const { files, since } = pendingOf(view);
  if (files) parts.push(` · ${count(files, "file")} pending`);
  if (files && since !== null) parts.push(" for ", { since });
  const tables = Object.keys(view.tables ?? {}).length;
  if (tables) parts.push(` · ${count(tables + 1, "table")}`);
  if (!stream.live) parts.push(stream.own ? " · not read yet" : " · of another coordinator");
  return parts;
}

/** Return the region whose position is the oldest, as far as the cuts reach. */
function oldestPosition(stream, cuts) {
  const regions = stream.view.regions ?? {};
  const known = Object.entries(cuts.at(-1)?.regions ?? {}).filter(
    ([name, { since }]) => since && !["removed", "left", "closed"].includes(regions[name]?.phase),
  );
  if (known.length === 0) return ["–"];
  const [name, { since }] = known.reduce((one, other) => (other[1].since < one[1].since ? other : one));
  return [`${name}, for `, { since }];
}

/** Return all facts of a stream. */
export function factsOf(stream, cuts) {
  const { view, delays } = stream;
  const head = view.snapshot;
  const known = view.watermark !== null && view.watermark !== undefined;
  const at = committedAt(stream, cuts);
  const onItsWay = view.decided > view.committed ? `; decision ${number(view.decided)} is not committed yet` : "";
  const facts = [
    ...(view.owner ? [["Owner", [view.owner]]] : []),
    ["Table", [view.table ?? "–"]],
    ["Snapshot", [head ? `${head.id}:${head.identity}` : "–"]],
    ["Committed decision", [(view.committed ? number(view.committed) : "none yet") + onItsWay]],
    ["Last commit", at === null ? ["–"] : [`${time(at)}, `, { since: at }, " ago"]],
    ["Watermark", known ? [`${time(view.watermark)}, lag `, { since: view.watermark }] : ["–"]],
    ["Event to snapshot", [delays ? delaysText(delays) : "–"]],
    ["Pending", pendingParts(stream)],
    ["Oldest position", oldestPosition(stream, cuts)],
    ["As of", asOfParts(stream)],
  ];
  const next = nextCommit(view);
  return next ? [...facts, ["Next commit", [next]]] : facts;
}

const delaysText = (delays) =>
  `p50 ${delay(delays.p50)}, p99 ${delay(delays.p99)}, of ${count(delays.commits, "commit")}`;

export function asOfParts(stream) {
  const away = (stream.reasons ?? []).find(({ code }) => code === "kafka-away");
  const since = stream.view.updated_at;
  if (away) return [`${time(since)}, `, { since }, " ago: Kafka does not answer"];
  if (stream.live) return ["now, by its coordinator"];
  if (stream.own) return [{ since }, " ago: its coordinator reads the log"];
  return [{ since }, " ago: this coordinator does not serve the stream"];
}

function nextCommit(view) {
  if (view.single_region) return `full, as every commit: the writers are one region (${view.single_region})`;
  if (view.absent?.length) return `partial: it does not wait for ${view.absent.join(", ")}`;
  const names = view.forced_by ?? [];
  return names.length ? `full: ${names.join(", ")} fell back as often as allowed` : "";
}

/** Return all facts of a cut. */
export function cutFacts(cut) {
  const attempt = cut.attempt === null || cut.attempt === undefined ? "" : `, attempt ${number(cut.attempt)}`;
  return [
    ["Outcome", [`${cut.outcome}. ${OUTCOMES[cut.outcome]?.text ?? ""}`]],
    ["Decision", [number(cut.decision) + attempt]],
    ["Snapshot", [cut.snapshot ? `${cut.snapshot.id}:${cut.snapshot.identity}` : "–"]],
    ["Content", [[count(cut.files, "file"), count(cut.rows, "row"), bytes(cut.bytes)].join(", ")]],
    ["Partitions", [number(cut.partitions)]],
    ["Watermark", [time(cut.watermark)]],
    ["First event", [time(cut.first_event)]],
    ["Sealed", [time(cut.sealed)]],
    ["Decided", [time(cut.decided)]],
    ["Visible", [time(cut.visible)]],
    ["Event to snapshot", [delay(cut.delay)]],
  ];
}

/** Return the words for a region in a cut. */
export function cellText(entry) {
  if (entry === undefined) return "not in this cut";
  return entry.state === "fell back" ? `fell back, ${number(entry.fallbacks)} in a row` : entry.state;
}

/** Return the sign of a region in a cut: for a fallback, the number of consecutive ones. */
export function cellSign(entry) {
  if (entry === undefined) return "";
  if (entry.state !== "fell back") return STATES[entry.state]?.sign ?? "?";
  return entry.fallbacks > 9 ? "+" : String(entry.fallbacks || "1");
}

// --- details --------------------------------------------------------------------------------------

export function table(label, titles, rows) {
  const head = h("tr", {}, ...titles.map((text) => h("th", { scope: "col", text })));
  return h("table", { "aria-label": label }, h("thead", {}, head), h("tbody", {}, ...rows));
}

const cells = (texts) => texts.map((text) => h("td", { text }));

/** Return the details of a cut as nodes; the row of the selected region is marked. */
export function cutDetails(cut, selected) {
  const facts = h("dl", { class: "facts" });
  setFacts(facts, cutFacts(cut));
  const titles = ["Region", "State", "Checkpoint", "Incarnation", "Position since"];
  const rows = Object.entries(cut.regions).map(([name, each]) => {
    const place = [number(each.checkpoint), shortId(each.incarnation), time(each.since)];
    const row = h("tr", {}, h("th", { scope: "row", text: name }), ...cells([cellText(each), ...place]));
    if (name === selected) row.setAttribute("aria-current", "true");
    if (each.incarnation) row.children[3].title = each.incarnation;
    return row;
  });
  return [facts, scroll("Positions of the regions", table("Positions of the regions", titles, rows))];
}

/** Return the pending checkpoints of a region as nodes. */
export function checkpointDetails(pending) {
  if (pending.length === 0) return [h("p", { text: "No checkpoint is pending." })];
  const titles = ["Checkpoint", "State", "Events", "Attempts", "Files", "Rows", "Size", "First event", "Last event"];
  const rows = pending.map((each) => {
    const amounts = [each.attempts, each.files, each.rows].map(number);
    const times = [each.first_event, each.last_event, each.sealed_at].map(shortTime);
    const facts = [eventsText(each), ...amounts, bytes(each.bytes), ...times, shortId(each.incarnation)];
    const head = h("th", { scope: "row", text: number(each.checkpoint) });
    return h("tr", {}, head, ...cells([checkpointState(each), ...facts]));
  });
  const label = "Pending checkpoints";
  return [scroll(label, table(label, [...titles, "Sealed", "Incarnation"], rows)), ...missingEvents(pending)];
}

/** Return a box that scrolls sideways, also by the keyboard. */
function scroll(label, content) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label }, content);
}

function checkpointState(each) {
  if (each.named === null) return "not completed yet";
  if (each.missing_count) return `lacks ${count(each.missing_count, "event")}`;
  return each.sealed_at ? "sealed" : "completed; a checkpoint before it is not sealed";
}

const eventsText = (each) => `${number(each.arrived)} of ${each.named === null ? "?" : number(each.named)}`;

function missingEvents(checkpoints) {
  return checkpoints.flatMap((each) => {
    if (!each.missing_count) return [];
    const more = each.missing_count - each.missing.length;
    const ids = each.missing.flatMap((id) => [h("code", { text: id }), " "]);
    const title = h("h3", { text: `Missing events of checkpoint ${number(each.checkpoint)}` });
    return [title, h("p", { class: "ids" }, ...ids, more > 0 ? `and ${number(more)} more` : "")];
  });
}
