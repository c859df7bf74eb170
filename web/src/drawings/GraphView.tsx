import type { Run } from "../document";

export function GraphView({ run }: { run: Run }) {
  return <p>{run.name}</p>;
}
