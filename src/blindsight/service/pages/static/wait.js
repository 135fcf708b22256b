// Parts with data-refresh are looked at again every two seconds.
import { swap } from "./swap.js";

export function refreshParts() {
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
