// Live updates: on news, fetch the page again and morph what differs.
"use strict";

const QUIET_MS = 250;
// A page that takes long is asked for less often.
const REST = 4;
const FLASH_MS = 4000;
const RETRY_MS = 2000;
const TICK_MS = 15_000;
const UNITS = [["d", 86_400], ["h", 3600], ["min", 60]];
const NOTICES = "lcp-notices";
const live = byId("live"), away = byId("away"), announcement = byId("announcement");
let source, timer, isLoading, isStale, stopWatching, pending, loadedAt = 0, tookMs = 0;

// A form that is being filled in stays as it is.
function isInUse(node) {
  const typing = first(":is(input, textarea, select):focus");
  if (typing && node.contains(typing)) return true;
  // The page itself fills in what was refused.
  const wasRefused = byId("problem");
  return all("input:not([type=hidden]), textarea:not([readonly]), select", node).some(
    (field) => entered(field) !== usual(field) || (wasRefused && !isBox(field) && field.value));
}

// A note stays until it has been read; a refusal until the reader leaves.
const isNote = (node) => node.id === "problem" || (node.id === "flash" && performance.now() < FLASH_MS);

const isOwn = (name, node) => name === "aria-disabled" || name === "hidden" || (name === "open" && node.matches("details"))
  || (name === "checked" && node.name === "job");
const stays = (node, isKept) => node.matches && (node.dataset.copy || node.matches(".armed") || (isKept(node) && isInUse(node)));
const isForm = (node) => node.matches("form, .decide");
// What is shown anew comes with its form.
const isOther = (node) => node.matches("form") && !node.querySelector("[name=shown]");

// -- Morphing: elements become like fresh ones, and keep focus and what was typed.

const keyOfNode = (node) => node.id || node.querySelector?.("[id]")?.id;

// The child that becomes like a fresh one: with its key, or the next of its kind.
function partner(fresh, at, keys) {
  const key = keyOfNode(fresh);
  let next = null;
  for (let node = at; node; node = node.nextSibling) {
    const own = keyOfNode(node);
    if (own && own === key) return node.nodeName === fresh.nodeName ? node : null;
    if (!keys.has(own) && !node.id && !fresh.id && node.nodeName === fresh.nodeName) next ??= node;
    if (!key && (next || keys.has(own))) break;
  }
  return next;
}

function morphChildren(place, nodes, isKept) {
  const keys = new Set(nodes.map(keyOfNode).filter(Boolean));
  const drop = (node) => node.matches && (isNote(node) || isInUse(node)) || node.remove();
  let at = place.firstChild;
  for (const fresh of nodes) {
    const node = partner(fresh, at, keys);
    if (!node) { place.insertBefore(fresh, at); continue; }
    while (at !== node) {
      const next = at.nextSibling;
      if (keys.has(keyOfNode(at))) { place.insertBefore(node, at); break; }
      drop(at);
      at = next;
    }
    if (at === node) at = node.nextSibling;
    morphNode(node, fresh, isKept);
  }
  while (at) { const next = at.nextSibling; drop(at); at = next; }
}

function morphNode(node, fresh, isKept) {
  // What was fetched of the same file stays.
  if (node.isEqualNode(fresh) && !node.matches?.("input, textarea, select") || stays(node, isKept)) return;
  if (!node.matches) { node.data = fresh.data; return; }
  if (node.dataset.mark && node.dataset.mark === fresh.dataset.mark) return;
  for (const { name, value } of fresh.attributes) if (!isOwn(name, node)) node.setAttribute(name, value);
  for (const { name } of [...node.attributes]) if (!isOwn(name, node) && !fresh.hasAttribute(name)) node.removeAttribute(name);
  morphChildren(node, [...fresh.childNodes], isKept);
  if (node.matches("option")) node.selected = fresh.selected;
  else if (isBox(node)) { if (!isOwn("checked", node)) node.checked = fresh.checked; }
  else if (node.matches("textarea, input:not([type=search], [type=file])") && node.value !== fresh.value) node.value = fresh.value;
}

function standing(place) {
  const fields = all("input[type=hidden]", place).filter(({ name }) => /^(shown|question|rule|offered)/.test(name));
  const asked = all(".asked", place).map((node) => node.textContent);
  return JSON.stringify([fields.map(({ value }) => value.replace(/^\d+@\d+/, "")), asked]);
}

const NOTHING = "[[],[]]";

const deeds = () => JSON.stringify(all("[data-decides]").map(
  ({ form, formAction, textContent }) => [formAction, standing(form), textContent]));

function morph(nodes, isKept) {
  const before = deeds();
  morphChildren(byId("main"), nodes, isKept);
  collect();
  if (deeds() === before) lookSoon(); else restart();
}

function tellDiffering(fresh) {
  const known = [...differing].join();
  differing.clear();
  for (const place of all(".held-job[id], #decide")) {
    const [now, before] = [fresh.getElementById(place.id), standing(place)];
    if (now && before !== NOTHING && standing(now) !== before) differing.add(place.id);
  }
  pending = differing.size ? fresh : null;
  differs.hidden = !differing.size;
  showButtons();
  if (!differing.size || [...differing].join() === known) return;
  const jobs = [...differing].map((id) => id.replace("-", " ")).join(", ").replace("job", "Job");
  byId("differing").textContent = differing.has("decide") ? "This" : jobs;
  differs.focus({ preventScroll: true });
}

function showDiffering() {
  const [first] = differing;
  for (const id of differing) for (const box of all("input[name=job]", byId(id))) box.checked = false;
  differing.clear();
  differs.hidden = true;
  seen = new WeakMap();
  disarm();
  morph([...pending.getElementById("main").childNodes], isOther);
  restart();
  byId(first)?.focus();
}

const announced = (page) => all("[data-announce]", page).map((node) => node.dataset.announce);

function update(fresh) {
  const before = announced(document);
  const news = announced(fresh).filter((text) => !before.includes(text));
  if (news.length) announcement.textContent = news.join(". ");
  showTimes(fresh);
  offerReload(fresh);
  notify(fresh);
  document.title = fresh.title;
  tellDiffering(fresh);
  const count = fresh.getElementById("held-count");
  if (count) morphChildren(byId("held-count"), [...count.childNodes], isForm);
  // Nothing moves under an open decision.
  const main = fresh.getElementById("main");
  if (main && !pending && !document.body.dataset.changed) morph([...main.childNodes], isForm);
}

async function load() {
  timer = null;
  if (isLoading) { isStale = true; return; }
  isLoading = true;
  isStale = false;
  loadedAt = performance.now();
  try {
    const response = await fetch(location.href);
    if (response.ok) update(await parse(response));
    else if (response.status === 401) say("refused");
  } catch {
    say("lost");
  } finally {
    isLoading = false;
    tookMs = performance.now() - loadedAt;
    if (isStale) loadSoon();
  }
}

function loadSoon() {
  timer ??= setTimeout(load, Math.max(0, loadedAt + Math.max(QUIET_MS, REST * tookMs) - performance.now()));
}

function offerReload(fresh) {
  const note = document.body.dataset.changed;
  const listed = (page) => page.getElementById("held")?.dataset.held;
  if (!note || listed(fresh) === listed(document)) return;
  byId("changed").hidden = false;
  announcement.textContent = note;
}

function say(what) {
  away.textContent = away.dataset[what];
  away.hidden = false;
}

// Browsers limit connections, so only a visible page keeps one open.
function connect(address = document.body.dataset.events) {
  if (!address || source || (document.hidden && !stopWatching)) return;
  source = new EventSource(address);
  source.addEventListener("news", loadSoon);
  source.onopen = () => { live.hidden = false; away.hidden = true; loadSoon(); };
  source.onerror = () => {
    live.hidden = true;
    // After an answer that is no stream it does not connect by itself.
    if (source.readyState === EventSource.CLOSED) { source = null; setTimeout(connect, RETRY_MS, address); }
    loadSoon();
  };
}

function disconnect() {
  source?.close();
  source = null;
  live.hidden = true;
}

document.onvisibilitychange = () => {
  stopWatching?.();
  disconnect();
  if (!document.hidden) connect();
  else if (wantsNotices()) navigator.locks.request(NOTICES, watch);
};

// Opted in, one hidden tab goes on.
function watch() {
  if (!document.hidden) return null;
  return new Promise((resolve) => {
    stopWatching = () => { stopWatching = null; resolve(); };
    connect("/events");
  });
}

const wantsNotices = () => window.Notification?.permission === "granted" && NOTICES in localStorage;
const waiting = (page) => +(page.querySelector("[data-count]")?.dataset.count ?? 0);

function notify(fresh) {
  if (!document.hidden || !wantsNotices() || waiting(fresh) <= waiting(document)) return;
  new Notification(`${waiting(fresh)} waiting for you`, { tag: NOTICES }).onclick = () => { focus(); location = "/inbox"; };
}

function offerNotices() {
  const offer = byId("notices");
  if (!offer || !window.Notification) return;
  const show = () => { offer.ariaPressed = wantsNotices(); };
  offer.hidden = false;
  offer.onclick = async () => {
    if (wantsNotices()) delete localStorage[NOTICES];
    else if (await Notification.requestPermission() === "granted") localStorage[NOTICES] = 1;
    show();
  };
  show();
}
window.onpagehide = disconnect;

// What was typed would go.
addEventListener("submit", (event) => {
  if (away.hidden || event.target.method !== "post") return;
  event.preventDefault();
  away.focus();
});

const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

function age(at) {
  const seconds = Math.max(0, (Date.now() - at) / 1000 | 0);
  const [unit, length] = UNITS.find(([, length]) => seconds >= length) ?? ["s", 1];
  return seconds ? `${Math.floor(seconds / length)} ${unit} ago` : "now";
}

function showTimes(page = document) {
  for (const one of all("time", page)) {
    const at = new Date(one.dateTime), full = clock.format(at), text = "age" in one.dataset ? age(at) : full;
    if (text !== full) one.title = full;
    if (one.textContent !== text) one.textContent = text;
  }
}

// Opens the file of an address, and fetches the line.
let sought = "";

function seek() {
  const line = byId(sought), file = byId(sought.slice(0, 17));
  if (!file) return;
  const rest = file.parentElement.querySelector(".rest");
  if (file.matches("details")) file.open = true;
  if (!rest || line && line !== rest) sought = "";
  if (!line) rest?.scrollIntoView();
  else if (line !== rest) location.replace(location.hash);
}

window.onhashchange = () => { sought = location.hash.slice(1); seek(); };

onchange = ({ target }) => {
  if (!target.closest("[data-all]")) return;
  for (const box of all("[data-all] input, [name=job]", target.closest("section") ?? document)) box.checked = target.checked;
};

async function readFile({ target }) {
  const [file] = target.files, text = byId("text");
  target.setCustomValidity(file?.size > text.maxLength ? target.dataset.large : "");
  if (file && target.reportValidity()) text.value = await file.text();
}

onClick("button[data-copy]", async (button) => {
  await navigator.clipboard.writeText(byId(button.dataset.copy).value);
  announcement.textContent = button.textContent = "Copied";
});

// The address that a refused form was sent to cannot be reloaded.
const { page } = document.body.dataset;
if (page && page !== location.pathname) history.replaceState(null, "", page);

byId("show").onclick = showDiffering;
window.onhashchange();
Object.assign(byId("choice") ?? {}, { hidden: false, onchange: readFile });
offerNotices();
showTimes();
setInterval(showTimes, TICK_MS);
if (navigator.clipboard) document.documentElement.classList.add("copies");
connect();
