// The keyboard in the inbox and on a job: each key does what a control of the page does.
"use strict";

const help = byId("keys");
const cards = all(".held-job");
const card = () => document.activeElement.closest(".held-job");
const place = () => cards.length ? card() : first(".decide");

function go(step) {
  const next = cards[cards.indexOf(card()) + step];
  if (next) next.focus(); else first(step > 0 ? "a[rel=next]" : "a[rel=prev]")?.click();
}

function approve(at) {
  // A press that was meant for the page before decides nothing.
  const button = at.querySelector("form[action$='/approve'] [data-decides=approve]");
  if (button && isSettled()) button.form.requestSubmit(button);
}

function reject(at) {
  for (const part of all("details.reject", at)) part.open = true;
  at.querySelector("form[action$='/reject'] [name=reason]")?.focus();
}

function toggleDiffs(at) {
  for (const part of all(".more, :not(.more) > .diff", at)) part.open = !part.open;
}

function topFile(step = 0) {
  const files = all(".reviewed");
  return files[Math.max(0, files.findLastIndex((one) => rectOf(one).top < 2) + step)];
}

addEventListener("submit", async (event) => {
  const { target: form, submitter: button } = event;
  if (form.id !== "viewed") return;
  event.preventDefault();
  const [place, isViewed] = [button.parentElement, button.name === "viewed"];
  const wasSeen = allRows().every((row) => seenOf(row) === 1 || !place.contains(row.element));
  const body = new URLSearchParams([...new FormData(form, button), ["seen", wasSeen ? "yes" : ""]]);
  const sent = await fetch(button.formAction, { method: "post", body, redirect: "manual" }).catch(() => {});
  if (sent?.type !== "opaqueredirect") return say("lost");
  button.name = isViewed ? "unviewed" : "viewed";
  button.ariaPressed = isViewed;
  place.toggleAttribute("data-seen", isViewed && wasSeen);
  const diff = place.querySelector("details");
  diff.open = !isViewed;
  first(`[href="#${diff.id}"]`).classList.toggle("viewed", isViewed);
  byId("viewed-count").textContent = all("[name=unviewed]").length;
  ((isViewed && place.nextElementSibling) || place).scrollIntoView();
});

// A click on the number of a line begins a comment on it, in the field of its hunk.
addEventListener("click", (event) => {
  const { target } = event;
  const field = target.matches(".code a") && all(".comment", target.closest(".diff")).findLast((one) => one.compareDocumentPosition(target) & 4);
  if (!field) return;
  event.preventDefault();
  history.replaceState(null, "", target.href);
  field.open = true;
  const [, text] = field.children;
  text.value += `${text.value && "\n"}line ${target.dataset.new ?? `${target.dataset.old} before`}: `;
  keep(text);
  text.focus();
});

function filter({ target }) {
  const has = target.value.toLowerCase();
  for (const one of all(".file-list li")) one.hidden = !one.textContent.toLowerCase().includes(has);
}
Object.assign(byId("find-file") ?? {}, { hidden: false, oninput: filter });

const at = (act) => () => place() && act(place());
const KEYS = {
  v: () => topFile()?.querySelector("[form=viewed]")?.click(),
  x: () => topFile()?.querySelector("[name=take]")?.click(),
  "]": () => topFile(1)?.scrollIntoView(),
  "[": () => topFile(-1)?.scrollIntoView(),
  j: () => go(1),
  k: () => go(-1),
  "?": () => help.showModal(),
  y: at(approve),
  n: at(reject),
  e: () => place()?.querySelector("a[href$='/edit']")?.click(),
  d: at(toggleDiffs),
};

addEventListener("keydown", (event) => {
  const isTyping = document.activeElement.matches("textarea, select, input:not([type=checkbox], [type=radio])");
  if (isTyping || event.repeat || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (!KEYS[event.key] || document.activeElement === differs) return;
  event.preventDefault();
  KEYS[event.key]();
});

document.documentElement.classList.add("has-keys");
// The job that a key decides on has to be seen to be the chosen one.
addEventListener("focusin", ({ target }) => target.matches(".held-job") && isNew());
addEventListener("click", ({ target }) => target.id === "offer-keys" && help.showModal());
cards.find((one) => one.id === location.hash.slice(1))?.focus();
