// Keep the page as the server sees it: on news, fetch it again and replace the parts that changed.
// Everything else works without this file.
"use strict";

const QUIET_MS = 250;
const live = document.getElementById("live");
const said = document.getElementById("said");
let source = null;
let timer = null;
let isLoading = false;
let isStale = false;

// What a person is using or has filled in is not taken from under the hands.
function isInUse(part) {
  if (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) return true;
  for (const field of part.querySelectorAll("input, textarea")) {
    if (["checkbox", "radio"].includes(field.type) ? field.checked !== field.defaultChecked : field.value !== field.defaultValue) return true;
  }
  return false;
}

// When a form was made is no news.
function bare(part) {
  return part.innerHTML.replace(/<input type="hidden" name="shown[^>]*>/g, "");
}

function replace(part, fresh) {
  if (bare(part) === bare(fresh) || isInUse(part)) return;
  const open = [...part.querySelectorAll("details[open][id]")].map((details) => details.id);
  const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
  part.replaceChildren(...fresh.childNodes);
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused) [...part.querySelectorAll("a[href]")].find((link) => link.getAttribute("href") === focused)?.focus();
}

function announce(fresh) {
  const now = fresh.querySelector("[data-say]")?.dataset.say;
  const before = document.querySelector("[data-say]")?.dataset.say;
  if (now && now !== before) said.textContent = now;
}

async function load() {
  if (isLoading) { isStale = true; return; }
  isLoading = true;
  isStale = false;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    announce(fresh);
    for (const part of document.querySelectorAll("[data-part]")) {
      const found = fresh.querySelector(`[data-part="${part.dataset.part}"]`);
      if (found) replace(part, found);
      else if (!isInUse(part)) part.replaceChildren();
    }
  } finally {
    isLoading = false;
    if (isStale) soon();
  }
}

function soon() {
  clearTimeout(timer);
  timer = setTimeout(load, QUIET_MS);
}

function hear() {
  const held = document.body.dataset.hold;
  if (!held) { soon(); return; }
  document.getElementById("changed").hidden = false;
  said.textContent = held;
  soon();
}

// A browser opens few connections to one host; only the page that is looked at keeps one.
function connect() {
  const address = document.body.dataset.events;
  if (!address || document.hidden || source) return;
  source = new EventSource(address);
  source.addEventListener("news", hear);
  // What happened between the page and the connection is not told any more.
  source.addEventListener("open", () => { live.hidden = false; soon(); });
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

// An address that ends in the name of a folded part opens it.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  if (target instanceof HTMLDetailsElement) target.open = true;
}
window.addEventListener("hashchange", unfold);

function offerAll() {
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
  said.textContent = button.textContent = "Copied";
});

// A form that was refused is shown at the address that it was sent to, which cannot be loaded again.
function takeAddress() {
  const page = document.body.dataset.page;
  if (page && page !== location.pathname) history.replaceState(null, "", page);
}

takeAddress();
unfold();
offerAll();
if (navigator.clipboard) document.documentElement.classList.add("copies");
connect();
