/** Said in place of the report when there is none to show. */
export function Failure({ error }: { error: unknown }) {
  return (
    <div class="failure" role="alert">
      <h1>No report can be shown</h1>
      <p>{error instanceof Error ? error.message : String(error)}</p>
    </div>
  );
}
