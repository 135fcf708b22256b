// Follows a run while it goes on, by server-sent events; the browser comes back by itself where it left off.
import { changeChart } from "./charts.js";

export function watchRun() {
  const run = document.querySelector("#run[data-events]");
  if (!run) return;
  const source = new EventSource(run.dataset.events);
  const told = (event) => JSON.parse(event.data);
  source.addEventListener("progress", (event) => {
    const { what } = told(event);
    run.querySelector(".what").textContent = what.charAt(0).toUpperCase() + what.slice(1);
  });
  source.addEventListener("round", (event) => showRound(run, told(event)));
  source.addEventListener("end", () => {
    source.close();
    location.reload();
  });
}

function showRound(run, seen) {
  run.querySelector("progress").value = seen.round;
  showViews(run, seen);
  addRow(run.querySelector(".rounds tbody"), seen);
  changeChart(document.getElementById("scores"), (chart) => {
    const scores = chart.lines[0].y;
    scores[0] = seen.first_score;
    scores[seen.round] = seen.score;
    chart.levels = [{ name: "public model", y: seen.first_score }];
    chart.low = Math.min(chart.low, Math.floor(10 * Math.min(seen.first_score, seen.score)) / 10);
  });
}

function showViews(run, seen) {
  const cards = seen.views.map((view) => {
    const picture = Object.assign(new Image(220, 220), {
      src: `${run.dataset.views}/${view.picture}`, alt: `What ${view.role} holds, drawn`,
    });
    const caption = document.createElement("figcaption");
    const role = Object.assign(document.createElement("strong"), { textContent: view.role });
    caption.append(role, ` ${view.holds}`);
    const figure = document.createElement("figure");
    figure.append(picture, caption);
    const card = document.createElement("li");
    card.append(figure);
    return card;
  });
  run.querySelector(".roles").replaceChildren(...cards);
  run.querySelector("#views-title").textContent = `What each role sees in round ${seen.round}`;
}

function addRow(body, seen) {
  if (body.rows.length >= seen.round) return; // the page came with it
  const { seconds } = seen;
  const cells = [
    `${(100 * seen.score).toFixed(1)}%`, seen.kilobytes.toFixed(1),
    ...["members", "aggregator", "key generator"].map((role) => (1000 * seconds[role]).toFixed(0)),
  ];
  const row = body.insertRow();
  row.append(Object.assign(document.createElement("th"), { scope: "row", textContent: seen.round }));
  for (const cell of cells) Object.assign(row.insertCell(), { className: "number", textContent: cell });
}
