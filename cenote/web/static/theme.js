// Before the first paint, so not a module: the theme that was chosen, kept where storage is allowed.
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("cenote-theme");
  } catch {
    // A browser that keeps nothing follows the system.
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
