// The keyboard: each key does what a control of the page does.
"use strict";

const help = byId("keys"), cards = all(".held-job");
const card = () => document.activeElement.closest(".held-job");
const place = () => cards.length ? card() : first(".decide");

function go(step) {
  const next = cards[cards.indexOf(card()) + step];
  if (next) next.focus(); else first(step > 0 ? "a[rel=next]" : "a[rel=prev]")?.click();
}

function approve(at) {
  // A press that was meant for the page before decides nothing.
  const button = at.querySelector(APPROVES);
  if (button && isSettled()) button.form.requestSubmit(button);
}

function reject(at) {
  at.querySelector("[href^='#reject']")?.click();
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
  const place = button.parentElement, isViewed = button.name === "viewed";
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

// The field for a comment on a line.
function commentOn(line) {
  const like = line.closest(".diff").querySelector(".comment textarea");
  if (!like) return null;
  const place = line.id.slice(18), name = like.name.replace(/\d+/, place), made = like.form.elements[name];
  if (made) return made;
  const own = like.parentNode.cloneNode(true), text = own.lastElementChild, next = line.nextElementSibling;
  Object.assign(text, { name, value: "", ariaLabel: like.ariaLabel.replace(/\d+$/, place) });
  (next?.matches(".twin") ? next : line).after(own);
  return text;
}

// Begun comments have their fields again.
function recall() {
  try {
    for (const key of Object.keys(sessionStorage)) {
      const [, action, , place, file] = key.split(/[\n.]/), line = byId(`${file}-${place}`);
      if (line && action === `${location.pathname}/approve`) commentOn(line);
    }
    restore();
  } catch {}
}

onClick(".comment:not([open]) > summary, .code [href^='#']", (target) => {
  const text = target.hash ? commentOn(byId(target.hash.slice(1))) : target.nextElementSibling;
  if (!text) return false;
  if (target.hash) history.replaceState(null, "", target.hash);
  text.parentNode.open = true;
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
  e: () => place()?.querySelector("a[href$='/edit'], .more > .rest a")?.click(),
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
onClick("#offer-keys", () => help.showModal());
cards.find((one) => one.id === location.hash.slice(1))?.focus();
recall();
