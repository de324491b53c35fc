// Set the stored theme before the first paint, hence not a module.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem("cenote-theme");
  } catch {
    // Without storage, the theme of the system is used.
  }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
})();
