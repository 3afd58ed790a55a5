// What every page has to hold, as a list of what does not: it fits its width, is labelled, and can be read.
(() => {
  const faults = [];
  const name = (element) => `${element.tagName.toLowerCase()}.${element.className} "${element.textContent.trim().slice(0, 40)}"`;
  const isSeen = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0
    && element.getBoundingClientRect().width > 1;

  if (document.documentElement.scrollWidth > innerWidth) faults.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  if (document.querySelectorAll("main").length !== 1) faults.push("not one main");
  if (!document.title || !document.documentElement.lang) faults.push("no title or language");
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) faults.push(`id twice: ${id}`);
  for (const field of document.querySelectorAll("input:not([type=hidden]), textarea, select")) {
    if (!field.labels.length && !field.ariaLabel) faults.push(`no label: ${field.name}`);
  }
  for (const element of document.querySelectorAll("button, a[href], summary")) {
    if (!element.textContent.trim() && !element.ariaLabel) faults.push(`no name: ${element.outerHTML.slice(0, 80)}`);
  }
  for (const svg of document.querySelectorAll("svg")) {
    if (svg.ariaHidden !== "true" && !svg.getAttribute("aria-label")) faults.push("svg without a name");
  }

  const luminance = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const colour = (text) => text.match(/[\d.]+/g).map(Number);
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  for (const element of document.querySelectorAll("body *")) {
    const hasText = [...element.childNodes].some((node) => node.nodeType === Node.TEXT_NODE && node.data.trim());
    if (!hasText || !isSeen(element) || element.closest("svg, .unseen, .skip")) continue;
    const [light, dark] = [luminance(colour(getComputedStyle(element).color)), luminance(behind(element))].sort((a, b) => b - a);
    const contrast = (light + 0.05) / (dark + 0.05);
    if (contrast < 4.5) faults.push(`contrast ${contrast.toFixed(1)}: ${name(element)}`);
  }
  return faults;
})()
