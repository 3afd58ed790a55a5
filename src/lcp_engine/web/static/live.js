// Live updates: when the server reports news, fetch the page again and morph the parts that changed.
// Everything else works without this file.
"use strict";

const QUIET_MS = 250;
const live = document.getElementById("live");
const announcement = document.getElementById("announcement");
let source = null;
let timer = null;
let isLoading = false;
let isStale = false;

const MORPH = {
  morphStyle: "innerHTML",
  callbacks: {
    // The reader decides what is unfolded.
    beforeAttributeUpdated: (name, node) => !(name === "open" && node instanceof HTMLDetailsElement),
  },
};

// A part with a field that is focused or filled in stays as it is.
function isInUse(part) {
  if (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return true;
  // What was sent and refused is filled in by the page itself.
  if (part.querySelector("[aria-invalid]")) return true;
  const isChosen = (list) => list.value !== (list.querySelector("option[selected]") ?? list.options[0])?.value;
  if ([...part.querySelectorAll("select")].some(isChosen)) return true;
  return [...part.querySelectorAll("input, textarea")].some((field) => ["checkbox", "radio"].includes(field.type)
    ? field.checked !== field.defaultChecked : field.value !== field.defaultValue);
}

const announced = (page) => [...page.querySelectorAll("[data-announce]")].map((node) => node.dataset.announce);

function update(fresh) {
  const before = announced(document);
  const news = announced(fresh).filter((text) => !before.includes(text));
  if (news.length) announcement.textContent = news.join(". ");
  offerReload(fresh);
  for (const part of document.querySelectorAll("[data-part]")) {
    // A part within another one is updated with it.
    if (part.parentElement.closest("[data-part]") || isInUse(part)) continue;
    const found = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
    if (found) Idiomorph.morph(part, [...found.childNodes], MORPH); else part.replaceChildren();
  }
}

async function load() {
  if (isLoading) { isStale = true; return; }
  isLoading = true;
  isStale = false;
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (response.ok) update(new DOMParser().parseFromString(await response.text(), "text/html"));
  } finally {
    isLoading = false;
    if (isStale) loadSoon();
  }
}

function loadSoon() {
  clearTimeout(timer);
  timer = setTimeout(load, QUIET_MS);
}

// On a page with `data-changed` the list does not move while somebody decides: a note offers to reload it.
function offerReload(fresh) {
  const note = document.body.dataset.changed;
  const listed = (page) => page.getElementById("held")?.dataset.held ?? "";
  if (!note || listed(fresh) === listed(document)) return;
  document.getElementById("changed").hidden = false;
  announcement.textContent = note;
}

// Browsers limit the connections to a host, so only a visible page keeps one open.
function connect() {
  const address = document.body.dataset.events;
  if (!address || document.hidden || source) return;
  source = new EventSource(address);
  source.addEventListener("news", loadSoon);
  // Something may have happened between loading the page and connecting.
  source.addEventListener("open", () => { live.hidden = false; loadSoon(); });
  source.addEventListener("error", () => { live.hidden = true; });
}

function disconnect() {
  source?.close();
  source = null;
  live.hidden = true;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) { disconnect(); } else { connect(); }
});
window.addEventListener("pagehide", disconnect);

// Open the folded part that the address names.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
window.addEventListener("hashchange", unfold);

function offerSelectAll() {
  const all = document.getElementById("all");
  if (!all) return;
  all.hidden = false;
  document.getElementById("tick-all").addEventListener("change", (event) => {
    for (const box of document.querySelectorAll("input[name=job]")) box.checked = event.target.checked;
  });
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).value);
  announcement.textContent = button.textContent = "Copied";
});

// A refused form is shown at the address that it was sent to, which cannot be reloaded; use the form's own address.
function replaceAddress() {
  const page = document.body.dataset.page;
  if (page && page !== location.pathname) history.replaceState(null, "", page);
}

replaceAddress();
unfold();
offerSelectAll();
if (navigator.clipboard) document.documentElement.classList.add("copies");
connect();
