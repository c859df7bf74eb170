// Sentences with code in them, as Markdown marks it: `code`. Commands can be copied.

import { useState } from "preact/hooks";
import { visible } from "../format";
import { Termed } from "./term";

/** `terms`: words of the glossary are linked, which a text inside a link or button cannot have. */
export function Prose({ text, terms = false }: { text: string; terms?: boolean }) {
  return (
    <>
      {text
        .split(/`([^`]+)`/)
        .map((part, at) =>
          at % 2 === 0 ? (
            terms ? (
              <Termed key={at} text={part} />
            ) : (
              visible(part)
            )
          ) : /^(etscope|pip) /.test(part) ? (
            <Command key={at} text={part} />
          ) : (
            <code key={at}>{visible(part)}</code>
          ),
        )}
    </>
  );
}

const SHOWN_FOR = 1500; // ms

/** A line for a shell, with a button that copies it; the button alone where the page shows the same. */
export function Command({ text, short = false }: { text: string; short?: boolean }) {
  const [done, setDone] = useState<boolean | null>(null);
  const copy = async (): Promise<void> => {
    setDone(await copied(text));
    setTimeout(() => setDone(null), SHOWN_FOR);
  };
  return (
    <span class="command">
      {!short && <code>{visible(text)}</code>}
      <button
        class="copy"
        title={visible(text)}
        aria-label={`Copy: ${visible(text)}`}
        onClick={() => void copy()}
      >
        {done === null ? (short ? "Copy command" : "Copy") : done ? "Copied" : "Failed"}
      </button>
    </span>
  );
}

/** Put a text into the clipboard; whether that worked. */
async function copied(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Pages over plain HTTP have no clipboard of their own: copy a selection instead.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
