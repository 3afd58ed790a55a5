// Keeps what is being typed until it is sent, also for Back.
"use strict";

const DRAFT = "lcp-draft ";
const SENT = "lcp-sent";
const TYPED = "textarea:not([readonly]), select, input:not([type=hidden], [type=password], [type=search], [name=job])";

// Not by the page: a refused form stands at the address that it was sent to.
const keyOf = (field) => [DRAFT, field.form.getAttribute("action"), field.name, isBox(field) ? field.value : placeIn(field)].join("\n");
// Texts of several files have one name.
const placeIn = (field) => [...field.form.elements].filter(({ name }) => name === field.name).indexOf(field);
const isBox = (field) => ["checkbox", "radio"].includes(field.type);
const usual = (field) => field instanceof HTMLSelectElement
  ? (field.querySelector("option[selected]") ?? field.options[0])?.value
  : isBox(field) ? String(field.defaultChecked) : field.defaultValue;
const entered = (field) => isBox(field) ? String(field.checked) : field.value;
const isTyped = (field) => field.name && field.matches(TYPED);
const typedIn = (form) => form.method === "post" ? [...form.elements].filter(isTyped) : [];

// What fields were where the server shows what was typed.
const origins = new WeakMap();
const draftOf = (field) => JSON.parse(sessionStorage.getItem(keyOf(field)) ?? "[null, null]");

function keep(field) {
  if (field.form?.method !== "post" || !isTyped(field)) return;
  // One radio ends the choice of another.
  const isBeside = (one) => one.type === "radio" && one.name === field.name;
  for (const one of field.type === "radio" ? [...field.form.elements].filter(isBeside) : [field]) {
    const was = origins.get(one) ?? usual(one);
    if (entered(one) === was) sessionStorage.removeItem(keyOf(one));
    else sessionStorage.setItem(keyOf(one), JSON.stringify([was, entered(one)]));
  }
}

// A field with another default is about something else.
function restore() {
  for (const form of document.forms) for (const field of typedIn(form)) {
    const [was, value] = draftOf(field);
    if (was !== null && value === usual(field)) origins.set(field, was);
    else if (was !== null && was === usual(field) && entered(field) === was) {
      if (isBox(field)) field.checked = value === "true"; else field.value = value;
      field.closest("details:not(.diff)")?.setAttribute("open", "");
    }
  }
}

function start() {
  // What was sent is no draft on the next page of ours.
  const isBack = performance.getEntriesByType("navigation")[0]?.type === "back_forward";
  if (!isBack && !document.getElementById("problem"))
    for (const key of JSON.parse(sessionStorage.getItem(SENT) ?? "[]")) sessionStorage.removeItem(key);
  sessionStorage.removeItem(SENT);
  restore();
  for (const news of ["input", "change"]) addEventListener(news, ({ target }) => keep(target));
  addEventListener("submit", ({ target, submitter, defaultPrevented }) => {
    if (!defaultPrevented && !submitter?.matches("[data-previews], [formaction$=approve]")) sessionStorage.setItem(SENT, JSON.stringify(typedIn(target).map(keyOf)));
  });
}

try {
  start();
} catch {
  // Without storage nothing is kept.
}
