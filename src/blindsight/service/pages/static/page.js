// What scripts add to a page that works without them: readouts in charts, keys, and parts that are looked at again.
import { drawCharts } from "./charts.js";
import { useKeys } from "./keys.js";
import { swapInPlace } from "./swap.js";
import { refreshParts } from "./wait.js";

drawCharts(document);
swapInPlace();
refreshParts();
useKeys();
