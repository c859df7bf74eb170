// Tables that are sorted by a click on a column's head, or Enter on it.

export function sortTables(root: ParentNode): void {
  for (const table of root.querySelectorAll<HTMLTableElement>("table[data-sortable]")) {
    if (table.dataset["ready"]) continue;
    table.dataset["ready"] = "yes";
    const heads = [...table.querySelectorAll<HTMLTableCellElement>("thead th")];
    heads.forEach((head, column) => {
      head.setAttribute("aria-sort", "none");
      head.tabIndex = 0;
      const sort = (): void => sortBy(table, heads, column);
      head.addEventListener("click", sort);
      head.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        sort();
      });
    });
  }
}

function sortBy(table: HTMLTableElement, heads: HTMLTableCellElement[], column: number): void {
  const head = heads[column]!;
  const numeric = head.classList.contains("number");
  const before = head.getAttribute("aria-sort");
  const down = before === "none" ? numeric : before === "ascending";
  heads.forEach((one) => one.setAttribute("aria-sort", "none"));
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const body = table.tBodies[0]!;
  const rows = [...body.rows];
  const closing = rows.filter((row) => row.classList.contains("closing"));
  // A delegate's events stay below their call.
  const groups: HTMLTableRowElement[][] = [];
  for (const row of rows) {
    if (row.classList.contains("closing")) continue;
    if (row.querySelector(".under") && groups.length > 0) groups[groups.length - 1]!.push(row);
    else groups.push([row]);
  }
  const sign = down ? -1 : 1;
  groups.sort((a, b) => sign * compare(a[0]!.cells[column], b[0]!.cells[column], numeric));
  body.replaceChildren(...groups.flat(), ...closing);
}

function compare(a: HTMLTableCellElement | undefined, b: HTMLTableCellElement | undefined, numeric: boolean): number {
  if (!numeric) return (a?.textContent ?? "").localeCompare(b?.textContent ?? "");
  const [x, y] = [value(a), value(b)];
  return x === y ? 0 : x < y ? -1 : 1;
}

function value(cell: HTMLTableCellElement | undefined): number {
  const text = cell?.dataset["value"];
  return text === undefined || text === "" ? -Infinity : Number(text);
}
