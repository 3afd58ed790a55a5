// Deciding: a press counts for what has been on the screen.
"use strict";

const SETTLE_MS = 500;
const PRESS_MS = 1000;
const CONTEXT_PX = 40;
const LONG_MS = 16;
const LINES = ".code > span:not(.block, .hunk, .twin), .code > .block > span:not(.twin), .rest";
const WITHOUT_LINES = ".diff > p, .held-job .fields dd, #params .fields dd";
const APPROVES = "[data-decides=approve]";
const byId = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const first = (selector) => document.querySelector(selector);
const onClick = (selector, act) => addEventListener("click", (event) => {
  const target = event.target.closest(selector);
  if (target && act(target) !== false) event.preventDefault();
});
const parse = async (response) => new DOMParser().parseFromString(await response.text(), "text/html");
const rectOf = (node) => node?.getBoundingClientRect();
const differs = byId("differs");
// Places that show other than what they decide on.
const differing = new Set();
let drawnAt = Infinity, rows = new Map(), seen = new WeakMap(), rounds = 0, newAt = 0, lookMs = 0;
let press, frame, armed;

// In the second frame, the first has been drawn.
function restart() {
  const round = ++rounds;
  drawnAt = Infinity;
  showButtons();
  requestAnimationFrame(() => requestAnimationFrame(() => {
    if (round !== rounds || document.hidden) return;
    drawnAt = performance.now();
    look();
    setTimeout(showButtons, SETTLE_MS);
  }));
}

const isNew = () => { newAt = performance.now(); };
const isSettled = (at = press.at) => at >= Math.max(drawnAt, newAt) + SETTLE_MS;

function showButtons() {
  const isEarly = performance.now() < drawnAt + SETTLE_MS;
  for (const button of all("[data-decides]"))
    button.ariaDisabled = isEarly || isOff(button) ? "true" : null;
}

// -- Presses: judged by when they were made.

function note({ type, timeStamp, detail, repeat = false }) {
  const handledAt = performance.now();
  const isOfPress = type === "click" && handledAt - press?.handledAt < PRESS_MS;
  if (isOfPress) Object.assign(press, { handledAt, clicks: detail });
  else press = { at: timeStamp, handledAt, clicks: detail, isRepeat: repeat, isPointer: type === "pointerdown" || detail > 0 };
}
for (const type of ["keydown", "pointerdown", "click"]) addEventListener(type, note, true);

addEventListener("submit", (event) => {
  const form = event.target;
  const button = event.submitter ?? form.querySelector("[data-decides]");
  if (button?.matches("[data-decides]") && !mayDecide(button)) event.preventDefault();
});

function mayDecide(button) {
  if (isOff(button)) { differs.focus(); return false; }
  const by = performance.now() - press?.handledAt < PRESS_MS ? press : null;
  if (by && (by.isRepeat || by.clicks > 1 || by.at < drawnAt + (by.isPointer ? SETTLE_MS : 0))) return false;
  if (!button.matches(APPROVES)) return true;
  const found = unseenIn(button).filter(({ lines }) => lines);
  if (found.length && by && armed !== button) { arm(button); return false; }
  if (found.length && by && by.at < drawnAt + SETTLE_MS) return false;
  button.form.elements.unseen.value = found.map(({ job, lines, of }) => `${job}:${lines}/${of}`).join(" ");
  return true;
}

// -- What a form decides on

const placeOf = (node) => node.closest(".held-job") ?? byId("main");

function shownIn(button) {
  const { form } = button, place = placeOf(button);
  const one = form.elements.shown ? "shown" : "previewed";
  const fields = [...form.elements].filter(({ name }) => name === one || name.startsWith("shown."));
  const isOf = (at) => place.matches("li") ? at === place : at.querySelector("input[name=job]")?.checked ?? true;
  return fields.filter((field) => isOf(placeOf(field)));
}

const isOff = (button) => [button.form.closest("#decide"), button, ...shownIn(button)].some(
  (node) => node && (differing.has(node.id) || differing.has(placeOf(node).id)));

function unseenIn(button) {
  return shownIn(button).map((field) => {
    const count = { job: parseInt(field.value), lines: 0, of: 0 };
    for (const row of rows.get(placeOf(field)) ?? []) {
      count.of += row.lines;
      count.lines += Math.ceil(row.lines * (1 - seenOf(row)));
    }
    return count;
  });
}

const seenOf = ({ element }) => seen.get(element) ?? 0;
const allRows = () => [...rows.values()].flat();

function collect() {
  for (const rest of all(".rest")) near.observe(rest);
  rows = new Map();
  if (armed && !armed.isConnected) armed = null;
  if (!first(APPROVES)) return;
  const lists = all(".held-job");
  for (const place of lists.length ? lists : [byId("main")]) {
    const lines = all(LINES, place);
    rows.set(place, (lines.length ? lines : all(WITHOUT_LINES, place)).map(rowOf));
  }
  for (const { element } of allRows()) if (element.closest("[data-seen]")) seen.set(element, 1);
}

function rowOf(node) {
  if (node.dataset.lines) return { element: node, lines: Number(node.dataset.lines), isRest: true };
  const text = node.querySelector("pre");
  if (!text) return { element: node, box: node.closest("pre"), lines: 1 };
  return { element: text, box: text, lines: text.textContent.split("\n").length };
}

// Top and height of a row, or of all lines of a text that scrolls.
function extentOf({ element, box }) {
  const { top, height } = rectOf(element);
  return element === box && height ? [top - box.scrollTop, box.scrollHeight] : [top, height];
}

function clearing() {
  const { offsetTop, height } = visualViewport;
  const bar = first(".batch");
  const isOver = bar && getComputedStyle(bar).position === "sticky";
  const below = rectOf(first(".verdict"));
  const end = Math.min(offsetTop + height, rectOf(armed)?.top ?? Infinity);
  return [Math.max(offsetTop, isOver ? rectOf(bar).bottom : 0), below?.bottom < end - 1 ? end : Math.min(end, below?.top ?? end)];
}

// The head of a file may cover its lines.
const headOf = ({ box }) => box?.closest("details")?.firstElementChild;

// A row was seen as far as it was on the screen from its top on.
function look() {
  frame = null;
  if (document.hidden || drawnAt === Infinity || differing.size || first("dialog[open]")) return;
  const began = performance.now();
  const [top, bottom] = clearing();
  const boxes = new Map();
  const extentInWindow = (row) => {
    // What is far away is not laid out.
    const around = rectOf(row.box.closest(".reviewed"));
    if (around?.bottom <= top || around?.top >= bottom) return [0, 0];
    const box = rectOf(row.box);
    return [Math.max(top, box.top, rectOf(headOf(row))?.bottom ?? 0), Math.min(bottom, box.bottom)];
  };
  for (const row of allRows()) {
    const before = seenOf(row);
    if (before === 1 || row.isRest) continue;
    if (row.box && !boxes.has(row.box)) boxes.set(row.box, extentInWindow(row));
    const [from, to] = boxes.get(row.box) ?? [top, bottom];
    if (from >= to) continue;
    const [start, height] = extentOf(row);
    const end = Math.min(1, (to + 1 - start) / height);
    if (!height || from > start + before * height + 1 || end <= before) continue;
    seen.set(row.element, end);
    isNew();
  }
  nameUnseen();
  lookMs = performance.now() - began;
}

// With many lines, less often.
function lookSoon() {
  frame ??= lookMs < LONG_MS ? requestAnimationFrame(look) : setTimeout(look, 4 * lookMs);
}

// -- The press that approves what was not seen

function arm(button) {
  disarm();
  armed = button;
  armed.plain = { text: armed.textContent, label: armed.ariaLabel };
  const { offsetWidth, offsetHeight } = armed;
  Object.assign(armed.parentElement.style, { minWidth: `${offsetWidth}px`, minHeight: `${offsetHeight}px` });
  armed.classList.add("armed");
  nameUnseen();
  goTo(shownIn(armed).flatMap((field) => rows.get(placeOf(field)) ?? []).find((row) => seenOf(row) < 1));
  byId("announcement").textContent = `${armed.textContent}? Press once more to do so.`;
  restart();
}

function nameUnseen() {
  if (!armed) return;
  const found = unseenIn(armed);
  const [lines, of] = ["lines", "of"].map((key) => found.reduce((sum, one) => sum + one[key], 0));
  if (!lines) { disarm(); return; }
  const words = ` with ${lines.toLocaleString("en")} of ${of.toLocaleString("en")} line${of === 1 ? "" : "s"} not seen`;
  armed.textContent = armed.plain.text + words;
  if (armed.plain.label) armed.ariaLabel = armed.plain.label + words;
}

function disarm() {
  if (!armed) return;
  armed.textContent = armed.plain.text;
  armed.ariaLabel = armed.plain.label;
  armed.classList.remove("armed");
  armed.parentElement.removeAttribute("style");
  armed = null;
}

function goTo(row) {
  for (let at = row.element; (at = at.parentElement?.closest("details")); ) at.open = true;
  const unseenTop = () => { const [start, height] = extentOf(row); return start + seenOf(row) * height; };
  if (row.box) row.box.scrollTop += unseenTop() - rectOf(row.box).top - CONTEXT_PX;
  (row.box ?? row.element).scrollIntoView({ block: "nearest" });
  const [top, bottom] = clearing();
  const start = top + (headOf(row)?.offsetHeight ?? 0);
  if (unseenTop() < start || unseenTop() > bottom - CONTEXT_PX) scrollBy(0, unseenTop() - start - CONTEXT_PX);
}

// -- Parts of diffs, fetched near the window or on request

const asked = new Map();
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) asked[isIntersecting ? "set" : "delete"](target, target.lastElementChild.href);
  fetchParts();
}, { rootMargin: "100%" });
let isFetching = false;

async function fetchParts() {
  if (isFetching) return;
  isFetching = true;
  for (const [rest, href] of asked) {
    asked.delete(rest);
    const response = await fetch(`${href}&part`).catch(() => {});
    if (response?.ok) {
      rest.replaceWith(...(await parse(response)).body.childNodes);
      collect();
      window.recall?.();
      lookSoon();
      seek();
    } else if (rest.matches(".gap")) location = href;
    else setTimeout(() => { near.unobserve(rest); near.observe(rest); }, 2000);
  }
  isFetching = false;
}

onClick(".gap a", (link) => { asked.set(link.parentNode, link.href); fetchParts(); });

for (const type of ["scroll", "resize", "toggle"]) addEventListener(type, lookSoon, true);
visualViewport.addEventListener("resize", lookSoon);
document.addEventListener("visibilitychange", restart);
addEventListener("pageshow", ({ persisted }) => persisted && (restart(), connect()));
collect();
restart();
