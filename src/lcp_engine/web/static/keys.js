// The keyboard in the inbox and on a job: each key does what a control of the page does.
"use strict";

const help = byId("keys");
const cards = [...document.querySelectorAll(".held-job")];
const card = () => document.activeElement.closest(".held-job");
const place = () => (cards.length ? card() : document.querySelector(".decide"));

function go(step) {
  const next = cards[cards.indexOf(card()) + step];
  if (next) next.focus(); else document.querySelector(step > 0 ? "a[rel=next]" : "a[rel=prev]")?.click();
}

function approve(at) {
  // A press that was meant for the page before decides nothing.
  const button = at.querySelector("form[action$='/approve'] [data-decides=approve]");
  if (button && isSettled()) button.form.requestSubmit(button);
}

function reject(at) {
  for (const part of at.querySelectorAll("details.reject")) part.open = true;
  at.querySelector("form[action$='/reject'] [name=reason]")?.focus();
}

function toggleDiffs(at) {
  for (const part of at.querySelectorAll(at.querySelector(".more") ? ".more" : "details.diff")) part.open = !part.open;
}

const KEYS = {
  j: () => go(1),
  k: () => go(-1),
  "?": () => help.showModal(),
  y: () => place() && approve(place()),
  n: () => place() && reject(place()),
  e: () => place()?.querySelector("a[href$='/edit']")?.click(),
  d: () => place() && toggleDiffs(place()),
};

document.addEventListener("keydown", (event) => {
  const isTyping = document.activeElement.matches("textarea, select, input:not([type=checkbox], [type=radio])");
  if (isTyping || event.repeat || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (!KEYS[event.key] || document.activeElement === differs) return;
  event.preventDefault();
  KEYS[event.key]();
});

document.documentElement.classList.add("has-keys");
// The job that a key decides on has to be seen to be the chosen one.
document.addEventListener("focusin", ({ target }) => target.matches(".held-job") && isNew());
document.addEventListener("click", (event) => event.target.id === "offer-keys" && help.showModal());
cards.find((one) => one.id === location.hash.slice(1))?.focus();
