// The faults of a page, as a list of sentences: what axe finds, and what axe does not check.
async () => {
  const faults = [];
  if (document.documentElement.scrollWidth > innerWidth) faults.push(`wider than the window: ${document.documentElement.scrollWidth}`);
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  const ids = [...document.querySelectorAll("[id]")].map((element) => element.id);
  for (const id of new Set(ids)) if (ids.filter((other) => other === id).length > 1) faults.push(`id twice: ${id}`);
  for (const svg of document.querySelectorAll("svg")) {
    if (svg.ariaHidden !== "true" && !svg.getAttribute("aria-label")) faults.push("svg without a name");
  }

  for (const cell of document.querySelectorAll("td[data-label]")) {
    const label = getComputedStyle(cell, "::before");
    if (label.content !== "none" && parseFloat(label.width) > parseFloat(getComputedStyle(cell).paddingLeft))
      faults.push(`a label that covers its value: ${cell.dataset.label}`);
  }

  // All text needs the contrast of normal text (4.5), large text as well.
  const contrast = {
    ignoreUnicode: true, ignoreLength: false, ignorePseudo: false, boldValue: 700, boldTextPt: 1000, largeTextPt: 1000,
    contrastRatio: { normal: { expected: 4.5 }, large: { expected: 4.5 } },
    pseudoSizeThreshold: 0.25, shadowOutlineEmMax: 0.2, textStrokeEmMin: 0.03,
  };
  axe.configure({
    checks: [{ id: "color-contrast", options: contrast }],
    rules: [{ id: "target-size", enabled: true }],
  });
  const results = await axe.run(document, { resultTypes: ["violations", "incomplete"] });
  for (const rule of results.violations) {
    for (const node of rule.nodes) {
      if (rule.id === "target-size") {
        // What a bar that stays in view covers in part is whole once it is scrolled.
        const element = document.querySelector(node.target[0]);
        element.scrollIntoView({ block: "center" });
        const again = await axe.run(element, { runOnly: ["target-size"] });
        if (again.violations.length === 0) continue;
      }
      faults.push(`${rule.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`);
    }
  }

  // Text that is scrolled out of its container: axe cannot see what is behind it.
  const { Color, getContrast, getOwnBackgroundColor } = axe.commons.color;
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const colour = getOwnBackgroundColor(getComputedStyle(at));
      if (colour.alpha === 1) return colour;
    }
    return new Color(255, 255, 255);
  };
  for (const node of results.incomplete.filter((rule) => rule.id === "color-contrast").flatMap((rule) => rule.nodes)) {
    const element = document.querySelector(node.target[0]);
    const text = new Color();
    text.parseString(getComputedStyle(element).color);
    const found = getContrast(behind(element), text);
    if (found < 4.5) faults.push(`contrast of ${found.toFixed(2)}: ${node.html.slice(0, 160)}`);
  }
  return faults;
}
