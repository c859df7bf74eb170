// What the colours mean.

import { visible } from "../../format";
import { BOX_TIME, SHARED_TIME } from "../../words";
import type { MeasureScale } from "../scale";
import { NO_BACKEND } from "./look";
import type { Legend } from "./look";

export function LegendView({ legend, missing }: { legend: Legend; missing: string | null }) {
  const { scale, names } = legend;
  if (missing !== null) {
    return <div class="graph-legend" data-testid="graph-legend">{missing}</div>;
  }
  if (scale === null && names.length === 0) return null;
  return (
    <div class="graph-legend" data-testid="graph-legend">
      {scale && scale.measured > 0 && (
        <>
          <div class="graph-legend-title">
            {visible(scale.measure.title)}
            {scale.mode === "quantile" ? ", by rank" : ""}
          </div>
          <div
            class="graph-legend-bar"
            style={{
              background: `linear-gradient(to right, ${scale.stops
                .map((stop) => `${stop.colour} ${(stop.at * 100).toFixed(1)}%`)
                .join(", ")})`,
            }}
          />
          <div class="graph-legend-ticks">
            {seenTicks(scale.ticks, legend).map((tick) => (
              <span
                key={tick.at}
                data-testid={`graph-legend-${tick.at}`}
                data-value={tick.value}
                style={{ left: `${tick.at * 100}%` }}
              >
                {legend.text(tick.value)}
              </span>
            ))}
          </div>
          {scale.measure.shared.length > 0 && (
            <div class="graph-legend-note" title={BOX_TIME}>
              {SHARED_TIME}
            </div>
          )}
        </>
      )}
      {names.map(({ name, colour }) => (
        <Swatch key={name} colour={colour} text={visible(name)} />
      ))}
      {scale === null ? (
        <Swatch colour={null} text={NO_BACKEND} />
      ) : (
        scale.unmeasured > 0 && <Swatch colour={null} text={`not measured: ${scale.unmeasured}`} />
      )}
    </div>
  );
}

/** Without the one in the middle when the texts are long. */
function seenTicks(ticks: MeasureScale["ticks"], legend: Legend): MeasureScale["ticks"] {
  const letters = ticks.reduce((sum, tick) => sum + legend.text(tick.value).length, 0);
  return letters > 22 ? ticks.filter((tick) => tick.at !== 0.5) : ticks;
}

function Swatch({ colour, text }: { colour: string | null; text: string }) {
  return (
    <div class="graph-legend-name">
      <i class={colour === null ? "plain" : ""} style={colour === null ? {} : { background: colour }} />
      {text}
    </div>
  );
}
