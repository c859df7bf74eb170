// Dark or light, as the reader chooses; assets/theme.js applied it before the page was drawn.

const KEY = "etscope-theme";

/** Tells charts, which are painted in the theme's colours. */
export const THEME_CHANGED = "etscope-theme";

export function offerTheme(): void {
  const button = document.querySelector<HTMLButtonElement>("[data-theme-toggle]");
  if (!button) return;
  const root = document.documentElement;
  const name = (): void => {
    button.textContent = root.dataset["theme"] === "dark" ? "Light" : "Dark";
  };
  button.hidden = false;
  name();
  button.addEventListener("click", () => {
    root.dataset["theme"] = root.dataset["theme"] === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, root.dataset["theme"]);
    } catch {
      // It lasts as long as the page, then.
    }
    name();
    document.dispatchEvent(new Event(THEME_CHANGED));
  });
}
