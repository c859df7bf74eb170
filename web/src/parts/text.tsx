import { visible } from "../format";

/** Text of a file: what cannot be seen is escaped, what does not fit is in the title. */
export function Text({ text, end = false }: { text: string; end?: boolean }) {
  const shown = visible(text);
  return (
    <span class={end ? "text text-end" : "text"} title={shown}>
      <bdi dir="ltr">{shown}</bdi>
    </span>
  );
}

/** A number as people read it, with the exact one beside. */
export function Figure({ text, value }: { text: string; value: number | string | null }) {
  return (
    <span class="figure" data-value={value ?? ""} title={value === null ? undefined : String(value)}>
      {text}
    </span>
  );
}
