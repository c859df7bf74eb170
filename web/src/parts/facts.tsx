import type { Column, TableDoc } from "../document";
import { formatWithUnit, visible } from "../format";
import { isNumeric } from "../tables";
import { meaningOf } from "../words";

/** One row of a table as names and values; what has no value is left out. */
export function Facts({
  table,
  row = 0,
  columns,
}: {
  table: TableDoc;
  row?: number;
  columns?: readonly Column[];
}) {
  const shown = (columns ?? table.columns).filter((column) => {
    const value = table.values[column.name]?.[row] ?? null;
    return value !== null && value !== "" && !(Array.isArray(value) && !value.length);
  });
  return (
    <dl class="facts">
      {shown.map((column) => {
        const value = table.values[column.name]![row]!;
        const text = formatWithUnit(value, column);
        const exact = typeof value === "object" ? JSON.stringify(value) : String(value);
        return (
          <div
            key={column.name}
            class={isNumeric(column.kind) || column.kind === "bool" ? "fact" : "fact fact-text"}
            data-fact={column.name}
          >
            <dt title={meaningOf(column.name)}>
              {visible(column.title === "#" ? column.name : column.title)}
            </dt>
            <dd data-value={exact} title={isNumeric(column.kind) ? visible(exact) : text}>
              <bdi dir="ltr">{text}</bdi>
            </dd>
          </div>
        );
      })}
    </dl>
  );
}
