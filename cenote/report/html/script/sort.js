// Columns become buttons. Numbers sort the largest first, words from A; what has no number stays last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, place) => {
    const numeric = head.classList.contains("number");
    const button = Object.assign(document.createElement("button"), { type: "button" });
    button.append(...head.childNodes);
    head.append(button);
    head.ariaSort = "none";
    button.addEventListener("click", () => {
      const first = numeric ? "descending" : "ascending";
      const way = head.ariaSort === "none" ? first : head.ariaSort === "ascending" ? "descending" : "ascending";
      for (const other of head.parentNode.cells) other.ariaSort = "none";
      head.ariaSort = way;
      const sign = way === "ascending" ? 1 : -1;
      const key = (row) => {
        const cell = row.cells[place];
        return numeric ? parseFloat(cell.dataset.sort ?? "NaN") : cell.textContent.trim();
      };
      const compare = (a, b) => {
        if (!numeric) return sign * a.localeCompare(b, undefined, { numeric: true });
        return Number.isNaN(a) || Number.isNaN(b) ? Number.isNaN(a) - Number.isNaN(b) : sign * (a - b);
      };
      body.append(...[...body.rows].sort((a, b) => compare(key(a), key(b))));
    });
  });
}
