// Links and forms with data-swap replace one part of the page by that part of the page they lead to.
import { drawCharts } from "./charts.js";
import { showPictures } from "./keys.js";
import { refreshParts } from "./wait.js";

const here = () => location.pathname + location.search;
let shown = here();

export async function swap(address, part, { remember = true } = {}) {
  const old = document.querySelector(part);
  if (remember) old.setAttribute("aria-busy", "true");
  try {
    const answer = await fetch(address, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.querySelector(part);
    if (!fresh) throw new Error("no such part");
    const focused = describe(document.activeElement);
    old.replaceWith(document.adoptNode(fresh));
    if (focused) document.querySelector(focused)?.focus();
    if (remember) history.pushState(null, "", address);
    shown = here();
    drawCharts(fresh);
    showPictures(fresh);
    refreshParts();
  } catch {
    location.assign(address);
  }
}

// A way to find the same control again in the part that replaces its own.
function describe(element) {
  if (element?.name && element.value !== undefined) {
    const kind = element.type === "radio" ? `[value="${CSS.escape(element.value)}"]` : "";
    return `[name="${CSS.escape(element.name)}"]${kind}`;
  }
  const address = element?.getAttribute?.("href");
  return address ? `a[href="${CSS.escape(address)}"]` : null;
}

function addressOf(form) {
  return `${form.action}?${new URLSearchParams(new FormData(form))}`;
}

export function swapInPlace() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-swap]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    swap(link.href, link.dataset.swap);
  });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-swap]");
    if (!form) return;
    event.preventDefault();
    swap(addressOf(form), form.dataset.swap);
  });
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-swap]");
    if (form) swap(addressOf(form), form.dataset.swap);
  });
  addEventListener("popstate", () => {
    if (here() !== shown) location.reload(); // but not for a jump within the page
  });
}
