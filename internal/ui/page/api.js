// Requests to the server. The token comes in the fragment of the address, which is not sent, and stays
// in this tab's session storage.

const KEY = "seamark-token";

export function takeToken() {
  const match = /^#token=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (match) {
    sessionStorage.setItem(KEY, match[1]);
    history.replaceState(null, "", location.pathname + location.search);
  }
}

export class Refused extends Error {}

// get requests a path. It throws Refused if the token is missing or wrong.
export async function get(path, options = {}) {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem(KEY) || ""}`, ...options.headers };
  const response = await fetch(path, { ...options, headers, cache: "no-store" });
  if (response.status === 401) throw new Refused(await response.text());
  if (!response.ok) throw new Error((await response.text()).trim() || `status ${response.status}`);
  return response;
}

// follow calls handlers[event] with each message after number last, until the signal aborts it or the
// connection ends.
export async function follow(last, signal, handlers) {
  const response = await get("/api/stream", { signal, headers: { "Last-Event-ID": String(last) } });
  handlers.open?.();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const messages = text.split("\n\n");
    text = messages.pop();
    for (const message of messages) {
      const fields = {};
      for (const line of message.split("\n")) {
        const at = line.indexOf(": ");
        if (at > 0) fields[line.slice(0, at)] = line.slice(at + 2);
      }
      if (fields.event) handlers[fields.event]?.(JSON.parse(fields.data));
    }
  }
}
