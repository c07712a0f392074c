// The table of dead letters. Rows whose letters are the same stay as they are.

import { h, messageParts, setParts, time } from "./text.js";

const shownLetters = new Map(); // by id: {row, key}

/** Show the last dead letters in the rows of a table, the newest first. */
export function showLetters(body, letters) {
  const ids = new Set(letters.map((each) => each.id));
  for (const [id, { row }] of shownLetters) {
    if (ids.has(id)) continue;
    row.remove();
    shownLetters.delete(id);
  }
  let older = null;
  for (const letter of letters) {
    const key = JSON.stringify(letter);
    const before = shownLetters.get(letter.id);
    const row = before?.key === key ? before.row : letterRow(letter);
    if (before && before.row !== row) before.row.replaceWith(row);
    if (!before) body.insertBefore(row, older);
    shownLetters.set(letter.id, { row, key });
    older = row;
  }
}

function letterRow(letter) {
  const texts = [time(letter.time), letter.stream ?? "–", letter.code, "", letter.source, letter.dealt ?? "no"];
  const command = h("code", { text: `sluicegate dead-letters show --offset ${letter.offset}` });
  const row = h("tr", {}, ...texts.map((text) => h("td", { text })), h("td", {}, command));
  setParts(row.cells[3], messageParts(letter.reason));
  return row;
}
