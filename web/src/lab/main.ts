// What the lab's pages do in a browser: charts, pieces that come later, and staying up to date.
// The pages are whole without it.

import "uplot/dist/uPlot.min.css";
import { drawCharts } from "./charts";
import { fetchPieces, loadFrames } from "./pieces";
import { keepUpToDate } from "./refresh";
import { sortTables } from "./sorting";
import { localTimes } from "./times";
import { offerTheme } from "./theme";

/** Everything that a piece of a page needs once it is there. */
export function dress(root: ParentNode): void {
  localTimes(root);
  sortTables(root);
  drawCharts(root);
}

offerTheme();
dress(document);
fetchPieces(dress);
loadFrames();
keepUpToDate(dress);
