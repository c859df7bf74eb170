// A short table, all of it in the page.

import { useMemo, useState } from "preact/hooks";
import type { TableDoc } from "../document";
import { visible } from "../format";
import { hasValues, isNumeric, range, rowsIn, tableFormats } from "../tables";
import { meaningOf } from "../words";
import { headOf } from "./grid";

const AT_ONCE = 15;

export function SimpleTable({ table, testId }: { table: TableDoc; testId?: string }) {
  const [all, setAll] = useState(false);
  const formats = useMemo(() => tableFormats(table), [table]);
  const columns = table.columns.filter((column) => hasValues(table.values[column.name]));
  const count = rowsIn(table);
  const breaks = new Set(table.breaks);
  const first = breaks.size ? Math.min(...breaks) : count;
  const rows =
    all || count <= AT_ONCE + 5
      ? range(0, count)
      : [...range(0, Math.min(AT_ONCE, first)), ...range(first, count)];
  return (
    <>
      <div class="simple-wrap">
        <table class="simple" data-testid={testId}>
          <thead>
            <tr>
              {columns.map((column) => (
                <th
                  key={column.name}
                  class={isNumeric(column.kind) ? "number" : ""}
                  title={meaningOf(column.name)}
                >
                  {headOf(column)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr key={row} class={breaks.has(row) ? "break" : ""}>
                {columns.map((column, at) => {
                  const value = table.values[column.name]![row] ?? null;
                  const text = formats[column.name]!(value);
                  const exact =
                    value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
                  const share =
                    column.kind === "share" && typeof value === "number"
                      ? { "--share": `${Math.min(100, 100 * value)}%` }
                      : {};
                  return (
                    <td
                      key={column.name}
                      class={isNumeric(column.kind) ? "number" : ""}
                      data-col={column.name}
                      data-value={exact}
                      title={isNumeric(column.kind) ? visible(exact) : text}
                      style={{
                        ...share,
                        ...(at === 0 && table.depth?.[row]
                          ? { paddingLeft: `${8 + 14 * table.depth[row]!}px` }
                          : {}),
                      }}
                    >
                      <bdi dir="ltr">{text}</bdi>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length < count && (
        <button class="link more" onClick={() => setAll(true)}>
          all {count} rows
        </button>
      )}
    </>
  );
}
