// Asks every second how far an demo is, and shows it when it is there; parts with data-refresh are looked at again.
import { swap } from "./swap.js";

export function waitForExhibits(root) {
  for (const place of root.querySelectorAll("[data-wait]")) if (place.querySelector("progress")) look(place);
  for (const part of document.querySelectorAll("[data-refresh]")) refresh(part);
}

function refresh(part) {
  if (part.dataset.refresh) return; // somebody looks after it already
  part.dataset.refresh = "soon";
  const again = () => {
    if (!part.isConnected) return;
    const inUse = part.contains(document.activeElement) || part.querySelector("details[open]");
    if (inUse) setTimeout(again, 2000);
    else swap(location.href, `#${part.id}`, { remember: false });
  };
  setTimeout(again, 2000);
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
