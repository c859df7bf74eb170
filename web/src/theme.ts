// Dark or light: the system's choice until the reader makes one, which is kept.

import { effect, signal } from "@preact/signals";

export type Theme = "dark" | "light";

const KEY = "etscope-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

export const theme = signal<Theme>(kept() ?? (system.matches ? "dark" : "light"));

export function followTheme(): void {
  effect(() => {
    document.documentElement.dataset["theme"] = theme.value;
  });
  system.addEventListener("change", () => {
    if (kept() === null) theme.value = system.matches ? "dark" : "light";
  });
}

export function toggleTheme(): void {
  theme.value = theme.value === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, theme.value);
  } catch {
    // Pages from files may not keep anything: the choice lasts as long as the page.
  }
}

function kept(): Theme | null {
  try {
    const value = localStorage.getItem(KEY);
    return value === "dark" || value === "light" ? value : null;
  } catch {
    return null;
  }
}
