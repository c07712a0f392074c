// The live page: it receives updates, keeps the newest values, and shows them once per frame.

import { showLetters } from "./letters.js";
import { StreamCard } from "./stream.js";
import {
  checkpointDetails, clock, count, cutDetails, h, kindOf, kindWords, messageParts, number, setParts, setText, showAges, time,
} from "./text.js";

const CUTS = 50;
const LETTERS = 50;
const UPDATES = 200;
const OPEN_AT_FIRST = 2; // a deployment with more streams shows closed ones
const LONGEST_PAUSE = 15_000; // between two tries to connect, in milliseconds
const SILENCE = 60_000; // without any message, the connection counts as lost
const REDRAWN = 5; // seconds between two moves of the lines to the left

const at = (id) => document.getElementById(id);
const [list, filter, state] = [at("streams"), at("filter"), at("state")];
for (const [kind, word] of kindWords) state.append(h("option", { value: kind, text: word }));

/** Durations of the last updates in milliseconds: from the message to the finished layout. */
const updates = [];
window.sluicegate = { updates };

// --- the newest values ----------------------------------------------------------------------------

const entries = new Map(); // by stream: {stream, cuts, card}
const changed = new Set();
let deployment = null;
let letters = [];
let lettersChanged = false;
let spent = 0;
let wanted = null; // stream of the link, until it is there

const entryOf = (name) => {
  if (!entries.has(name)) entries.set(name, { stream: null, cuts: [], card: null });
  return entries.get(name);
};

const receivers = {
  state(message) {
    deployment = message.deployment;
    clock.offset = deployment.now - Date.now();
    if (message.whole) forget(new Set(message.streams.map((each) => each.stream)));
    for (const stream of message.streams) {
      entryOf(stream.stream).stream = stream;
      changed.add(stream.stream);
    }
    for (const name of message.removed ?? []) remove(name);
  },
  cuts(message) {
    const entry = entryOf(message.stream);
    const known = new Set(entry.cuts.filter((cut) => Object.keys(cut.regions).length).map((cut) => cut.id));
    // Those that are read for the lines alone come without regions, perhaps late.
    const cuts = message.cuts.filter((cut) => !known.has(cut.id) || Object.keys(cut.regions).length);
    const again = new Map(cuts.map((cut) => [cut.id, cut]));
    const kept = entry.cuts.filter((cut) => !again.has(cut.id));
    entry.cuts = [...kept, ...again.values()].sort((one, other) => one.time - other.time).slice(-CUTS);
    changed.add(message.stream);
  },
  letters(message) {
    const again = new Set(message.letters.map((each) => each.id));
    const kept = message.whole ? [] : letters.filter((each) => !again.has(each.id));
    letters = [...kept, ...message.letters].sort((one, other) => one.offset - other.offset).slice(-LETTERS);
    lettersChanged = true;
  },
};

/** Forget all values except the lines of streams that are still there. */
function forget(names) {
  for (const name of [...entries.keys()]) if (!names.has(name)) remove(name);
  for (const [name, entry] of entries) {
    entry.cuts = [];
    changed.add(name);
    if (entry.card?.isOpen || entry.card?.seen) fetchCuts(name);
  }
  letters = [];
  lettersChanged = true;
}

/** Read the cuts of a stream that is shown. Updates bring the later ones. A closed one needs no regions. */
async function fetchCuts(name) {
  const regions = Boolean(entries.get(name)?.card?.isOpen);
  try {
    const answer = await fetch(`api/v1/streams/${encodeURIComponent(name)}/cuts?regions=${regions}`);
    if (!answer.ok || !entries.has(name)) return;
    receivers.cuts(await answer.json());
    scheduleFrame();
  } catch (error) {
    // The connection is lost: the page reads them again with everything else.
    console.info(`the cuts of ${name} are not read yet`, error);
  }
}

/** Only the streams on the screen have lines: a deployment may have a thousand. */
const onScreen = new IntersectionObserver((changes) => {
  for (const { target, isIntersecting } of changes) {
    const { card } = target;
    const isNew = isIntersecting && !card.seen && entries.get(card.name)?.card === card;
    card.seen = isIntersecting;
    if (isNew && !card.isOpen) fetchCuts(card.name);
    else if (isNew) card.lines.draw();
  }
});

function remove(name) {
  entries.get(name)?.card?.node.remove();
  entries.delete(name);
  changed.delete(name);
}

// --- the connection -------------------------------------------------------------------------------

const connection = { source: null, whole: false, tries: 0, heard: null, timer: null };

function connect() {
  clearTimeout(connection.timer);
  connection.timer = null;
  connection.whole = false;
  connection.source = new EventSource("api/v1/updates");
  for (const kind of Object.keys(receivers)) {
    connection.source.addEventListener(kind, (event) => receive(kind, event.data));
  }
  connection.source.addEventListener("error", lose);
}

/** Close the connection and try again after a pause that grows. The browser's own pause never grows. */
function lose() {
  connection.source?.close();
  connection.source = null;
  clearTimeout(connection.timer);
  const pause = Math.min(LONGEST_PAUSE, 500 * 2 ** connection.tries) * (0.75 + Math.random() / 4);
  connection.tries += 1;
  connection.timer = setTimeout(connect, pause);
  showOutage();
}

function receive(kind, data) {
  try {
    spent += timed(() => apply(kind, JSON.parse(data)));
  } catch (error) {
    // The values are not known any more: take all of them from the beginning.
    console.error("a message cannot be read", error);
    lose();
    return;
  }
  if (connection.whole) at("outage").hidden = true;
  scheduleFrame();
}

function apply(kind, message) {
  if (!connection.whole && !(kind === "state" && message.whole)) return;
  receivers[kind](message);
  connection.whole = true;
  connection.tries = 0;
  connection.heard = Date.now();
}

function showOutage() {
  const since = connection.heard === null ? null : connection.heard + clock.offset;
  const banner = at("outage");
  const lost =
    since === null
      ? "The coordinator does not answer, and nothing can be shown yet."
      : `The connection is lost. All values are old: they are as of ${time(since)}.`;
  const where = deployment === null ? "its host" : `the host ${deployment.host}`;
  const others = [...entries.values()].some(({ stream }) => stream && !stream.live && !stream.own);
  const takeover = "Another coordinator takes its streams over: its page shows them. ";
  setParts(banner, [
    `${lost} The page tries again by itself. If that does not end, look on ${where} whether the coordinator runs and `,
    "what its log ends with, and start it again: ", { code: "sluicegate run" }, ". ", ...(others ? [takeover] : []),
    "Nothing is lost: what writers publish is committed then.",
  ]);
  banner.hidden = false;
}

function reconnectNow() {
  if (connection.source !== null || document.hidden) return;
  connect();
}

// --- one update per frame -------------------------------------------------------------------------

let frame = null;

function scheduleFrame() {
  frame ??= requestAnimationFrame(() => {
    frame = null;
    const took = spent + timed(showChanges);
    spent = 0;
    updates.push(took);
    if (updates.length > UPDATES) updates.shift();
  });
}

/** Return the duration of some work in milliseconds. It is also in the browser's performance recordings. */
function timed(work) {
  performance.mark("sluicegate:start");
  work();
  const { duration } = performance.measure("sluicegate:update", "sluicegate:start");
  performance.clearMarks("sluicegate:start");
  performance.clearMeasures("sluicegate:update");
  return duration;
}

function showChanges() {
  showDeployment();
  for (const name of changed) {
    const entry = entries.get(name);
    if (entry?.stream) showStream(name, entry);
  }
  changed.clear();
  showOrder();
  if (lettersChanged) updateLetters();
  lettersChanged = false;
  showSummary();
  openWanted();
  // The layout follows this frame anyway. To ask for it here makes it a part of the measured time.
  document.body.getBoundingClientRect();
}

function updateLetters() {
  showLetters(at("letters-table").tBodies[0], letters);
  at("letters-table").hidden = letters.length === 0;
  at("no-letters").hidden = letters.length > 0;
  const open = letters.filter((each) => !each.dealt).length;
  setText(at("letters-title"), open ? `Dead letters, ${number(open)} not dealt with` : "Dead letters");
}

function showDeployment() {
  if (deployment === null) return;
  const { group, topic_prefix: topics, host, outages = [] } = deployment;
  setText(at("deployment"), `group ${group}, topics ${topics}.*, coordinator on ${host}`);
  showOutages(outages);
  const problem = outages.length ? "" : (deployment.problem ?? "");
  setText(at("problem"), problem);
  at("problem").hidden = !problem;
  const notice = at("notice");
  notice.hidden = deployment.shared;
  if (notice.hidden || notice.firstChild) return;
  notice.append("Only the streams of this coordinator are shown, because no Redis is configured. To see all streams of ");
  notice.append("the deployment here, set ", h("code", { text: "redis.url" }), " in the settings of all coordinators.");
}

/** Show each server that does not answer. A screen reader speaks a new one, and not each second of its age. */
function showOutages(outages) {
  const list = at("servers");
  while (list.children.length > outages.length) list.lastChild.remove();
  while (list.children.length < outages.length) {
    list.append(h("div", { class: "banner" }, h("p", { role: "alert" }), h("p", { class: "age" })));
  }
  outages.forEach(({ message, since }, index) => {
    const [sentences, age] = list.children[index].children;
    setParts(sentences, messageParts(message));
    setParts(age, ["These values are ", { since }, " old."]);
  });
}

function showStream(name, entry) {
  if (entry.card === null) {
    entry.card = new StreamCard(name, showDetails, () => fetchCuts(name));
    entry.card.node.card = entry.card;
    onScreen.observe(entry.card.node);
    if (entries.size <= OPEN_AT_FIRST) entry.card.open();
  }
  try {
    entry.card.update(entry.stream, entry.cuts);
  } catch (error) {
    console.error(`stream ${name} cannot be shown`, error);
    entry.card.fail();
  }
  entry.card.node.hidden = !matches(entry.card);
}

// --- the list -------------------------------------------------------------------------------------

/** Put streams with problems first. Only lines whose place has changed are moved. */
function showOrder() {
  const cards = [...entries.values()].flatMap(({ card }) => (card === null ? [] : [card]));
  for (const card of cards) card.rank = card.stream ? kindOf(card.kind).rank : 0;
  cards.sort((one, other) => one.rank - other.rank || (one.name < other.name ? -1 : 1));
  let place = list.firstChild;
  for (const { node } of cards) {
    if (node !== place && place?.nextSibling === node) place = node;
    if (node === place) place = node.nextSibling;
    else moveTo(node, place);
  }
}

/** Move a line, and keep the focus in it. */
function moveTo(node, place) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  list.insertBefore(node, place);
  focused?.focus({ preventScroll: true });
}

/** Return true for a stream that the filters show. */
function matches({ name, kind }) {
  const states = { "": true, problems: kind !== "fine" };
  return (states[state.value] ?? kind === state.value) && name.toLowerCase().includes(filter.value.trim().toLowerCase());
}

function showFiltered() {
  for (const { card } of entries.values()) if (card !== null) card.node.hidden = !matches(card);
  showSummary();
}

function showSummary() {
  if (deployment === null) return;
  const cards = [...entries.values()].flatMap(({ card }) => (card === null ? [] : [card]));
  const kinds = new Map();
  for (const card of cards) kinds.set(card.kind, (kinds.get(card.kind) ?? 0) + 1);
  const sorted = [...kinds].sort(([one], [other]) => kindOf(one).rank - kindOf(other).rank);
  const states = sorted.map(([kind, some]) => `${some} ${kindOf(kind).word}`).join(", ");
  const shown = filter.value || state.value ? `, ${cards.filter((card) => !card.node.hidden).length} shown` : "";
  const none = "No stream has been served yet.";
  setText(at("summary"), cards.length ? `${count(cards.length, "stream")}: ${states}${shown}` : none);
  const grave = cards.filter((card) => kindOf(card.kind).rank < kindOf("pause").rank).length;
  const title = `${grave ? `(${grave}) ` : ""}Sluicegate, ${deployment.group}`;
  if (document.title !== title) document.title = title;
}

// --- the link of a stream -------------------------------------------------------------------------

function readLink() {
  const [, name] = /^#stream=(.+)$/.exec(location.hash) ?? [];
  try {
    wanted = name === undefined ? null : decodeURIComponent(name);
  } catch {
    wanted = null;
  }
  openWanted();
}

function openWanted() {
  const card = wanted === null ? undefined : entries.get(wanted)?.card;
  if (!card) return;
  wanted = null;
  if (card.node.hidden) {
    filter.value = state.value = "";
    showFiltered();
  }
  card.open();
  card.button.focus({ preventScroll: true });
  card.node.scrollIntoView();
}

// --- the details of a cut or of a region ----------------------------------------------------------

let shown = null;

function showDetails(target) {
  shown = target;
  const { stream, region, cut } = target;
  const title = cut ? `Decision ${number(cut.decision)}, ${cut.outcome}` : `Checkpoints of ${region}`;
  at("details-title").textContent = `${stream}: ${title}`;
  at("details").hidden = false;
  at("details-title").focus();
  if (cut) at("details-content").replaceChildren(...cutDetails(cut, region));
  else fetchCheckpoints(target);
}

/** Show the pending checkpoints of a region as they are now. */
async function fetchCheckpoints(target) {
  at("details-content").replaceChildren(h("p", { class: "quiet", text: "Reading…" }));
  const found = await askForCheckpoints(target);
  if (shown !== target) return;
  const again = h("button", { type: "button", text: "Read again", onclick: () => fetchCheckpoints(target) });
  at("details-content").replaceChildren(...found, again);
}

async function askForCheckpoints({ stream, region }) {
  try {
    const answer = await fetch(`api/v1/streams/${encodeURIComponent(stream)}/checkpoints`);
    const body = await answer.json();
    if (!answer.ok) return [h("p", { class: "banner", text: body.problem ?? `HTTP status ${answer.status}` })];
    const asOf = h("p", { class: "quiet", text: `As of ${time(clock.now())}.` });
    return [asOf, ...checkpointDetails(body.checkpoints.filter((each) => each.region === region))];
  } catch (error) {
    return [h("p", { class: "banner", text: `The checkpoints cannot be read: ${error.message}` })];
  }
}

function closeDetails() {
  at("details").hidden = true;
  at("details-content").replaceChildren();
  if (shown?.from.isConnected) shown.from.focus();
  shown = null;
}

// --- start ----------------------------------------------------------------------------------------

let seconds = 0;

function onSecond() {
  if (connection.source !== null && connection.heard !== null && Date.now() - connection.heard > SILENCE) lose();
  if (document.hidden) return;
  showAges();
  seconds += 1;
  if (seconds % REDRAWN) return;
  for (const { card } of entries.values()) if (card?.seen) card.lines.draw();
}

at("details-close").addEventListener("click", closeDetails);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && shown !== null) closeDetails();
});
filter.addEventListener("input", showFiltered);
state.addEventListener("input", showFiltered);
window.addEventListener("hashchange", readLink);
window.addEventListener("online", reconnectNow);
document.addEventListener("visibilitychange", reconnectNow);
setInterval(onSecond, 1_000);
readLink();
connect();
