// Pages of what is at work ask for themselves again, and take over the parts that changed.

export function keepUpToDate(dress: (root: ParentNode) => void): void {
  const every = Number(document.body.dataset["refresh"]);
  if (!every) return;
  followLogs(document);
  const look = async (): Promise<void> => {
    let again = every;
    if (document.visibilityState === "visible") {
      try {
        const answer = await fetch(location.href, { credentials: "same-origin", redirect: "error" });
        if (answer.ok && takeOver(await answer.text(), dress)) return;
      } catch {
        again = Math.max(every, 5000); // the lab is away: it may come back
      }
    }
    setTimeout(() => void look(), again);
  };
  setTimeout(() => void look(), every);
}

/** Whether that was the last look: a job that ended has a page with more on it. */
function takeOver(text: string, dress: (root: ParentNode) => void): boolean {
  const page = new DOMParser().parseFromString(text, "text/html");
  const ended = !page.body.dataset["refresh"];
  if (ended && document.querySelector("[data-state]")) {
    location.reload();
    return true;
  }
  for (const old of document.querySelectorAll<HTMLElement>("[data-live]")) {
    const fresh = page.getElementById(old.id);
    if (!fresh || fresh.innerHTML === (old.dataset["seen"] ?? "")) continue;
    // What the reader is in the middle of stays.
    if (old.contains(document.activeElement) && old.dataset["seen"] === undefined) {
      old.dataset["seen"] = fresh.innerHTML;
      continue;
    }
    const focused = old.contains(document.activeElement) ? document.activeElement : null;
    const link = focused instanceof HTMLAnchorElement ? focused.getAttribute("href") : null;
    const logs = [...old.querySelectorAll<HTMLElement>("[data-follow]")].map((log) => log.scrollTop);
    const follow = [...old.querySelectorAll<HTMLElement>("[data-follow]")].every(isAtEnd);
    old.replaceChildren(...[...fresh.childNodes].map((node) => document.importNode(node, true)));
    old.dataset["seen"] = fresh.innerHTML;
    if (follow) followLogs(old);
    else old.querySelectorAll<HTMLElement>("[data-follow]").forEach((log, at) => (log.scrollTop = logs[at] ?? 0));
    dress(old);
    if (link !== null) old.querySelector<HTMLElement>(`a[href="${CSS.escape(link)}"]`)?.focus();
  }
  return ended;
}

function isAtEnd(log: HTMLElement): boolean {
  return log.scrollTop + log.clientHeight >= log.scrollHeight - 30;
}

function followLogs(root: ParentNode): void {
  for (const log of root.querySelectorAll<HTMLElement>("[data-follow]")) log.scrollTop = log.scrollHeight;
}
