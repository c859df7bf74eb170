import type { Run } from "../document";

export function TimelineView({ run }: { run: Run }) {
  return <p>{run.name}</p>;
}
