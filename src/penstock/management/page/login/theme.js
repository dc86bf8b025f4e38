// Light or dark, before anything is drawn: a plain script, so that no page flashes in the wrong colours.
// What the system says counts, unless the person chose (app/parts/theme.js); the choice stays in this browser.

try {
  const kept = localStorage.getItem("penstock.theme");
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
} catch {
  // Storage is switched off: the system decides.
}
