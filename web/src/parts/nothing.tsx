import type { ComponentChildren } from "preact";

/** Said where there is nothing to show, and why. */
export function Nothing({ children }: { children: ComponentChildren }) {
  return (
    <div class="nothing">
      <p>{children}</p>
    </div>
  );
}
