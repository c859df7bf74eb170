// Pieces of a page that take the server a while: asked for again until they are made.

const AGAIN = 700; // ms

/** Puts `#piece` of each address in `data-piece` in its place. */
export function fetchPieces(dress: (root: ParentNode) => void): void {
  for (const place of document.querySelectorAll<HTMLElement>("[data-piece]")) void fetchPiece(place, dress);
}

async function fetchPiece(place: HTMLElement, dress: (root: ParentNode) => void): Promise<void> {
  for (;;) {
    let answer: Response;
    try {
      answer = await fetch(place.dataset["piece"]!, { credentials: "same-origin" });
    } catch {
      place.textContent = "The lab does not answer.";
      return;
    }
    if (answer.status === 202) {
      await new Promise((done) => setTimeout(done, AGAIN));
      continue;
    }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const piece = page.querySelector("#piece") ?? page.querySelector("main");
    place.replaceChildren(...(piece ? [...piece.childNodes].map((node) => document.importNode(node, true)) : []));
    dress(place);
    return;
  }
}

/** The report, when its place is seen: making it takes time, and the page has much before it. */
export function loadFrames(): void {
  for (const details of document.querySelectorAll<HTMLDetailsElement>("details[data-frame]")) {
    const load = (): void => {
      const place = details.querySelector(".frame");
      if (!details.open || !place || place.querySelector("iframe")) return;
      const frame = document.createElement("iframe");
      frame.src = details.dataset["frame"]!;
      frame.title = "Report";
      place.replaceChildren(frame);
    };
    details.addEventListener("toggle", load);
    const seen = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      seen.disconnect();
      load();
    }, { rootMargin: "400px" });
    seen.observe(details);
  }
}
