// HTML of pages in tabs.

/** A page that runs only its own scripts, and reaches nothing: no network, no files. */
export function closed(html: string, nonce: string): string {
  const policy = [
    "default-src 'none'",
    nonce ? `script-src 'nonce-${nonce}' blob:` : "script-src 'none'",
    "worker-src blob:",
    "style-src 'unsafe-inline'",
    "img-src data: blob:",
    "form-action 'none'",
    "base-uri 'none'",
  ].join("; ");
  const meta = `<meta http-equiv="Content-Security-Policy" content="${policy}">`;
  // A head is before all scripts; the replaced text is never a pattern of what replaces it.
  const begin = /<head[^>]*>/i.exec(html);
  if (begin === null) throw new Error("a page without a head");
  const at = begin.index + begin[0].length;
  const nonced = (part: string) =>
    nonce ? part.replace(/<script(?=[\s>])(?![^>]*application\/json)/gi, () => `<script nonce="${nonce}"`) : part;
  return html.slice(0, at) + meta + nonced(html.slice(at));
}

export function escaped(text: string): string {
  return text.replace(/[&<>"]/g, (one) => `&#${one.charCodeAt(0)};`);
}
