// Asks every second how far an exhibit is, and shows it when it is there.
export function waitForExhibits(root) {
  for (const place of root.querySelectorAll("[data-wait]")) if (place.querySelector("progress")) look(place);
}

async function look(place) {
  if (!place.isConnected) return;
  try {
    const state = await (await fetch(place.dataset.wait)).json();
    if (["ready", "failed", "missing"].includes(state.stage)) return location.reload();
    place.querySelector(".what").textContent = `Computing: ${state.what}`;
    const bar = place.querySelector("progress");
    if (state.total) Object.assign(bar, { max: state.total, value: state.done });
    else bar.removeAttribute("value");
  } catch {
    // the service is away for a moment: ask again
  }
  setTimeout(() => look(place), 1000);
}
