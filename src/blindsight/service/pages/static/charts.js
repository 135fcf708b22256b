// Redraws the server's line charts with uPlot, which shows the numbers under the pointer.
const drawn = new Map();

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function options(chart, width) {
  const ink = colour("--soft"), grid = colour("--grid");
  const font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const axis = { stroke: ink, font, labelFont: font, grid: { stroke: grid, width: 1 }, ticks: { show: false } };
  const number = (_, value) => (value == null ? "–" : value.toFixed(3));
  return {
    width,
    height: Math.round(Math.min(300, Math.max(220, width * 0.5))),
    scales: { x: { time: false, range: (_, low, high) => pad(low, high) }, y: { range: () => [chart.low, chart.high] } },
    axes: [
      { ...axis, grid: { show: false }, label: chart.xLabel, size: 28, labelSize: 20, labelGap: 2, splits: () => chart.x, values: () => chart.ticks },
      { ...axis, size: 44, splits: () => rules(chart), values: (_, splits) => splits.map((split) => split.toFixed(chart.high - chart.low > 0.25 ? 1 : 2)) },
    ],
    legend: { live: true },
    cursor: { points: { size: 8 }, drag: { x: false, y: false } },
    series: [
      { label: chart.xLabel, value: (_, value) => (value == null ? "–" : chart.ticks[chart.x.indexOf(value)] ?? "") },
      ...chart.lines.map((line, i) => ({
        label: line.name, value: number, width: 2.2, stroke: colour(`--series-${(i % 6) + 1}`),
        points: { show: true, size: 7, fill: colour(`--series-${(i % 6) + 1}`) },
      })),
      ...chart.levels.map((level) => ({
        label: level.name, value: () => level.y.toFixed(3), width: 1, stroke: ink, dash: [5, 4], points: { show: false },
      })),
    ],
  };
}

function pad(low, high) {
  const room = Math.max(0.05 * (high - low), 0.05);
  return [low - room, high + room];
}

function rules(chart) {
  const reach = chart.high - chart.low;
  const step = reach > 0.6 ? 0.2 : reach > 0.25 ? 0.1 : 0.05;
  return Array.from({ length: Math.round(reach / step) + 1 }, (_, i) => chart.low + i * step);
}

function columns(chart) {
  const lines = chart.lines.map((line) => line.y);
  return [chart.x, ...lines, ...chart.levels.map((level) => chart.x.map(() => level.y))];
}

function draw(figure) {
  const chart = JSON.parse(figure.dataset.chart);
  const place = figure.querySelector(".drawing");
  const width = place.clientWidth;
  if (!width) return;
  drawn.get(figure)?.destroy();
  place.replaceChildren();
  drawn.set(figure, new uPlot(options(chart, width), columns(chart), place));
  figure.querySelector(".legend")?.setAttribute("hidden", "");
}

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const figure = target.closest("[data-chart]");
    if (figure && drawn.get(figure)?.width !== target.clientWidth) draw(figure);
  }
});

export function drawCharts(root) {
  if (typeof uPlot === "undefined") return;
  for (const figure of root.querySelectorAll("[data-chart]")) {
    draw(figure);
    sizes.observe(figure.querySelector(".drawing"));
  }
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const figure of drawn.keys()) if (figure.isConnected) draw(figure);
});
