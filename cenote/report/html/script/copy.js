// The command to the clipboard; where the browser refuses, it is selected for the reader's own copy.
for (const button of document.querySelectorAll("button.copy")) {
  const code = button.parentNode.querySelector("code");
  button.hidden = false;
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  });
}
