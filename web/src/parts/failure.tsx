import { visible } from "../format";

/** Said in place of what cannot be shown. */
export function Failure({ error, title = "No report can be shown" }: { error: unknown; title?: string }) {
  return (
    <div class="failure" role="alert">
      <h1>{title}</h1>
      <p>{visible(error instanceof Error ? error.message : String(error))}</p>
    </div>
  );
}
