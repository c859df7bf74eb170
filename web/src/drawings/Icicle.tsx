import type { Run } from "../document";

export function Icicle({ run }: { run: Run }) {
  return <p>{run.name}</p>;
}
