// Files that the reader drops on a served report, or chooses: the server on this machine gets them and
// makes a report of them. Only a server that gave a token takes files.

import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

/** The server's token; null if it takes no files. */
export const token = signal<string | null>(null);
const state = signal<{ text: string; isError: boolean } | null>(null);

async function open(files: readonly File[]): Promise<void> {
  if (!files.length) return;
  const drop = String(Date.now()); // files that are given together are one report
  let report = "";
  try {
    for (const file of files) {
      state.value = { text: `Opening ${file.name}…`, isError: false };
      const response = await fetch(`files?${new URLSearchParams({ drop, name: file.name })}`, {
        method: "POST",
        headers: { "etscope-token": token.value! },
        body: file,
      });
      const text = await response.text();
      if (!response.ok) throw new Error(text.slice(0, 500));
      report = text;
    }
    location.assign(`?report=${encodeURIComponent(report)}`);
  } catch (error) {
    state.value = { text: error instanceof Error ? error.message : String(error), isError: true };
  }
}

/** A button that opens files; they can also be dropped anywhere on the page. */
export function OpenFiles() {
  useEffect(() => {
    if (token.value === null) return;
    const over = (event: DragEvent): void => {
      if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
    };
    const drop = (event: DragEvent): void => {
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      void open([...event.dataTransfer.files]);
    };
    addEventListener("dragover", over);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", over);
      removeEventListener("drop", drop);
    };
  }, [token.value]);
  if (token.value === null) return null;
  const shown = state.value;
  return (
    <>
      {shown && (
        <span class={shown.isError ? "badge bad" : "badge"} role="status" data-testid="opening" title={shown.text}>
          {shown.text}
        </span>
      )}
      <label class="button open-files" title="Open an ETDump, an ETRecord or a .pte: drop it here">
        Open
        <input
          type="file"
          multiple
          data-testid="open-files"
          onChange={(event) => void open([...(event.currentTarget.files ?? [])])}
        />
      </label>
    </>
  );
}
