"use strict";

// Airflow's UI stores the chosen theme here; "system", or nothing, is the browser's own.
const THEME = "theme";

function followTheme() {
  let chosen = null;
  try {
    chosen = localStorage.getItem(THEME);
  } catch {
    // No access to it: the browser's own theme.
  }
  if (chosen === "dark" || chosen === "light") {
    document.documentElement.dataset.theme = chosen;
  } else {
    delete document.documentElement.dataset.theme;
  }
}

// Within Airflow's UI this page is in a frame that may not navigate the window: the window's own document does it.
function openInWindow(event) {
  const link = event.target.closest("a[data-top]");
  if (link === null || window.parent === window || event.ctrlKey || event.metaKey || event.shiftKey) {
    return;
  }
  event.preventDefault();
  const own = window.parent.document.createElement("a");
  own.href = link.href;
  own.click();
}

// Reads the page again and takes over what it shows, so that neither place nor focus is lost.
async function refresh() {
  const seconds = Number(document.body.dataset.refresh);
  const active = document.activeElement;
  if (!document.hidden && !(active && active.closest("form"))) {
    try {
      const response = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error" });
      if (response.ok) {
        const page = new DOMParser().parseFromString(await response.text(), "text/html");
        const open = [...document.querySelectorAll("details")].map((one) => one.open);
        document.querySelector("main").replaceWith(page.querySelector("main"));
        document.querySelectorAll("details").forEach((one, place) => {
          one.open = Boolean(open[place]);
        });
        document.body.dataset.refresh = page.body.dataset.refresh || "";
      }
    } catch {
      // The server may be back at the next time.
    }
  }
  if (document.body.dataset.refresh) {
    setTimeout(refresh, seconds * 1000);
  }
}

followTheme();
addEventListener("storage", (event) => {
  if (event.key === THEME || event.key === null) {
    followTheme();
  }
});
addEventListener("click", openInWindow);
addEventListener("DOMContentLoaded", () => {
  if (document.body.dataset.refresh) {
    setTimeout(refresh, Number(document.body.dataset.refresh) * 1000);
  }
});
