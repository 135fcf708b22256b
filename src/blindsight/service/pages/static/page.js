// What scripts add to a page that works without them: readouts in charts, no reload for a new choice, live progress.
import { drawCharts } from "./charts.js";
import { useKeys } from "./keys.js";
import { watchRun } from "./live.js";
import { swapInPlace } from "./swap.js";
import { waitForExhibits } from "./wait.js";

drawCharts(document);
swapInPlace();
waitForExhibits(document);
watchRun();
useKeys();
