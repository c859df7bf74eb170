// Dark or light before anything is drawn: the system's choice until the reader makes one.
"use strict";
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("etscope-theme");
  } catch {
    // Pages in a sandbox may keep nothing.
  }
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = kept === "dark" || kept === "light" ? kept : dark ? "dark" : "light";
})();
