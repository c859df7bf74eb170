// The controls above a table: filter with help, choice of columns, CSV.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { ComponentChildren } from "preact";
import type { TableDoc } from "../document";
import { download, toCsv } from "../csv";
import { visible } from "../format";
import { FILTER_HELP, FilterError, parseFilter, type RowTest } from "../filter";
import type { Grid } from "./grid";
import { meaningOf } from "../words";

/** The filter's test and what is wrong with it. A text that is wrong does not filter. */
export function useFilter(text: string, table: TableDoc): { test: RowTest | null; problem: string | null } {
  return useMemo(() => {
    try {
      return { test: parseFilter(text, table), problem: null };
    } catch (error) {
      if (error instanceof FilterError) return { test: null, problem: error.message };
      throw error;
    }
  }, [text, table]);
}

export function FilterBox({
  text,
  onText,
  problem,
}: {
  text: string;
  onText(text: string): void;
  problem: string | null;
}) {
  return (
    <div class={problem ? "filter wrong" : "filter"}>
      <input
        type="search"
        value={text}
        placeholder="Filter: conv, op:linear*, avg>0.1 …"
        aria-label="Filter rows"
        aria-invalid={problem !== null}
        spellcheck={false}
        data-testid="filter"
        title={problem ?? "Filter rows (/)"}
        onInput={(event) => onText(event.currentTarget.value)}
      />
      <Popover label="How to filter" button="?" className="icon">
        <table class="help-table">
          <tbody>
            {FILTER_HELP.map(([example, meaning]) => (
              <tr key={example}>
                <td>
                  <code>{example}</code>
                </td>
                <td>{meaning}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Popover>
      {problem && (
        <span class="problem" role="alert" data-testid="filter-problem">
          {problem}
        </span>
      )}
    </div>
  );
}

export function ColumnChooser({ grid }: { grid: Grid }) {
  const shown = new Set(grid.columns.map(({ column }) => column.name));
  return (
    <Popover label="Choose columns" button="Columns" testId="columns">
      <div class="checks">
        {grid.doc.columns.map((column) => (
          <label key={column.name} title={meaningOf(column.name)}>
            <input
              type="checkbox"
              checked={shown.has(column.name)}
              disabled={shown.size === 1 && shown.has(column.name)}
              onChange={(event) => grid.toggle(column.name, event.currentTarget.checked)}
            />
            {visible(column.title)}
          </label>
        ))}
      </div>
      <button class="button" disabled={!grid.chosen} onClick={() => grid.reset()}>
        As many as fit
      </button>
    </Popover>
  );
}

/** Download of the rows shown, with the columns shown or all. */
export function CsvButton({
  table,
  rows,
  grid,
  name,
}: {
  table: TableDoc;
  rows: readonly number[];
  grid: Grid;
  name: string;
}) {
  const save = (all: boolean): void => {
    const names = all ? undefined : grid.columns.map(({ column }) => column.name);
    download(`${name.replace(/[^\w.-]+/g, "_")}.csv`, toCsv(table, rows, names));
  };
  return (
    <Popover label="Download as CSV" button="CSV" testId="csv">
      <button class="button" data-testid="csv-shown" onClick={() => save(false)}>
        {rows.length} rows, columns shown
      </button>
      <button class="button" data-testid="csv-all" onClick={() => save(true)}>
        {rows.length} rows, all columns
      </button>
      <p class="muted">
        RFC 4180, full precision. Texts that a spreadsheet would run as formulas begin with a quote.
      </p>
    </Popover>
  );
}

interface PopoverProps {
  label: string;
  button: string;
  className?: string;
  testId?: string;
  children: ComponentChildren;
}

export function Popover({ label, button, className = "button", testId, children }: PopoverProps) {
  const [open, setOpen] = useState(false);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const outside = (event: Event): void => {
      if (!place.current?.contains(event.target as Node)) setOpen(false);
    };
    const escape = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      setOpen(false);
    };
    addEventListener("pointerdown", outside);
    addEventListener("keydown", escape, true);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("keydown", escape, true);
    };
  }, [open]);
  return (
    <div class="popover" ref={place}>
      <button
        class={className}
        aria-expanded={open}
        aria-label={label}
        title={label}
        data-testid={testId}
        onClick={() => setOpen(!open)}
      >
        {button}
      </button>
      {open && (
        <div class="popover-body" role="dialog" aria-label={label}>
          {children}
        </div>
      )}
    </div>
  );
}

/** A choice of a few, side by side. */
export function Segments<T extends string>({
  label,
  value,
  options,
  onChange,
  testId,
}: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  onChange(value: T): void;
  testId?: string;
}) {
  return (
    <div class="segments" role="group" aria-label={label} data-testid={testId}>
      {options.map(([key, text]) => (
        <button key={key} aria-pressed={key === value} data-key={key} onClick={() => onChange(key)}>
          {text}
        </button>
      ))}
    </div>
  );
}

export function Select({
  label,
  value,
  options,
  onChange,
  testId,
}: {
  label: string;
  value: string;
  options: readonly (readonly [string, string])[];
  onChange(value: string): void;
  testId?: string;
}) {
  return (
    <label class="select">
      <span>{label}</span>
      <select
        value={value}
        data-testid={testId}
        title={options.find(([key]) => key === value)?.[1]}
        onChange={(event) => onChange(event.currentTarget.value)}
      >
        {options.map(([key, text]) => (
          <option key={key} value={key}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}
