// Whether repeated blocks stand in one box: one choice for graphs and module trees.

import { Select } from "../parts/toolbar";
import { control } from "../store";

const repeats = control("graph.repeats", "auto", ["auto", "on", "off"]);

/** isLarge: of what is drawn. */
export const folds = (isLarge: boolean): boolean => (repeats.value === "auto" ? isLarge : repeats.value === "on");

export function RepeatsSelect() {
  return (
    <Select
      label="Repeated blocks"
      value={repeats.value}
      options={[
        ["auto", "automatic"],
        ["on", "in one box"],
        ["off", "apart"],
      ]}
      onChange={(key) => (repeats.value = key as typeof repeats.value)}
      testId="graph-repeats"
    />
  );
}
