"use strict";
// Tables are sorted by the column whose heading is pressed; the page can be read without this.
for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort((a, b) => compare(a.cells[place], b.cells[place], down)));
    });
  });
}

function compare(a, b, down) {
  const [one, two] = [a, b].map((cell) => cell.dataset.value);
  if ((one === undefined) !== (two === undefined)) return one === undefined ? 1 : -1; // missing figures come last
  const order = one === undefined ? a.textContent.localeCompare(b.textContent) : one - two;
  return down ? -order : order;
}
