// Light or dark as the system says, until the reader says otherwise; remembered where the browser allows it.
{
  const root = document.documentElement, button = document.querySelector(".theme"), key = "cenote-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const kept = (value) => {
    try {
      return value === undefined ? localStorage.getItem(key) : localStorage.setItem(key, value);
    } catch {
      return null; // a file in a browser that keeps nothing for files
    }
  };
  const dark = () => (root.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const tell = () => (button.textContent = dark() ? "Light theme" : "Dark theme");
  const before = kept();
  if (before === "dark" || before === "light") root.dataset.theme = before;
  button.addEventListener("click", () => {
    kept((root.dataset.theme = dark() ? "light" : "dark"));
    tell();
  });
  system.addEventListener("change", tell);
  tell();
  button.hidden = false;
}
