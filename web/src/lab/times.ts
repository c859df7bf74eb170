// Times by the reader's clock; the server writes them in UTC.

const format = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });

export function localTimes(root: ParentNode): void {
  for (const element of root.querySelectorAll("time")) {
    const at = new Date(element.dateTime);
    if (Number.isNaN(at.getTime()) || element.title) continue;
    element.title = element.textContent ?? "";
    element.textContent = format.format(at);
  }
}
