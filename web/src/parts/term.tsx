// Words with their definition as title and a link to the glossary.

import type { ComponentChildren } from "preact";
import { visible } from "../format";
import { glossary, GLOSSARY, termsIn, type Term } from "../words";

export function TermLink({ of, children }: { of: Term; children: ComponentChildren }) {
  return (
    <a class="term" href={glossary(of)} target="_blank" rel="noopener noreferrer" title={GLOSSARY[of]}>
      {children}
    </a>
  );
}

/** Text of a note, with its terms linked. */
export function Termed({ text }: { text: string }) {
  return (
    <>
      {termsIn(text).map((part, at) =>
        part.term ? (
          <TermLink key={at} of={part.term}>
            {part.text}
          </TermLink>
        ) : (
          visible(part.text)
        ),
      )}
    </>
  );
}
