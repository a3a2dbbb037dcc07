"use strict";
// Sortable tables: a header becomes a button; three presses go up, down and back to the run's order.
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const inOrder = [...body.rows];
  const headers = [...table.tHead.rows[0].cells];
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.key === undefined ? cell.textContent.trim() : cell.dataset.key;
  };
  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b, "en", { numeric: true }) : x - y;
  };
  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    header.append(button);
    header.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const next = { none: "ascending", ascending: "descending", descending: "none" };
      const order = next[header.getAttribute("aria-sort")];
      headers.forEach((other) => other.setAttribute("aria-sort", "none"));
      header.setAttribute("aria-sort", order);
      const sign = order === "descending" ? -1 : 1;
      const rows = order === "none" ? inOrder : inOrder.slice().sort((a, b) => {
        const [x, y] = [keyOf(a, column), keyOf(b, column)];
        // What has no value stays at the end either way.
        if (x === "" || y === "") return (x === "") - (y === "");
        return sign * compare(x, y);
      });
      body.append(...rows);
    });
  });
  table.classList.add("sortable");
}
