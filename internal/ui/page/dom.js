// Small helpers for the DOM. Text is always set as text: no markup comes from data.

// h returns an element. Properties that are functions become listeners; others become attributes.
export function h(tag, props, ...children) {
  const el = document.createElement(tag);
  for (const [name, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") el.addEventListener(name, value);
    else if (name === "class") el.className = value;
    else if (name === "checked" || name === "value") el[name] = value;
    else el.setAttribute(name, value === true ? "" : value);
  }
  el.append(...children.flat().filter((c) => c !== undefined && c !== null && c !== false));
  return el;
}

// setText changes a text only if it differs, so that screen readers do not read it again.
export function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}

// replaceKeepingFocus replaces the children of an element. The element with the focus keeps it, if one
// with the same data-key is there afterwards; so do the scroll positions of elements with a data-key.
export function replaceKeepingFocus(parent, ...children) {
  const active = parent.contains(document.activeElement) ? document.activeElement : null;
  const key = active?.dataset.key;
  const range = active && "selectionStart" in active ? [active.selectionStart, active.selectionEnd] : null;
  const scrolled = new Map();
  for (const el of parent.querySelectorAll("[data-key]")) {
    if (el.scrollTop || el.scrollLeft) scrolled.set(el.dataset.key, [el.scrollTop, el.scrollLeft]);
  }
  const open = new Set([...parent.querySelectorAll("details[open][data-key]")].map((el) => el.dataset.key));
  parent.replaceChildren(...children.flat().filter(Boolean));
  for (const el of parent.querySelectorAll("[data-key]")) {
    const at = scrolled.get(el.dataset.key);
    if (at) [el.scrollTop, el.scrollLeft] = at;
    if (open.has(el.dataset.key)) el.open = true;
    if (key && el.dataset.key === key) {
      el.focus({ preventScroll: true });
      if (range && range[0] !== null && el.setSelectionRange) el.setSelectionRange(...range);
    }
  }
}

export function plural(n, noun) {
  return n === 1 ? `1 ${noun}` : `${n.toLocaleString("en")} ${noun}s`;
}

// ago returns how long ago a time was, in words.
export function ago(time) {
  if (!time) return "never";
  const s = Math.max(0, Math.round((Date.now() - new Date(time)) / 1000));
  if (s < 120) return `${s} s ago`;
  if (s < 7200) return `${Math.floor(s / 60)} min ago`;
  if (s < 172800) return `${Math.floor(s / 3600)} h ago`;
  return `${Math.floor(s / 86400)} days ago`;
}

// clock returns the time of day, with the date of another day: a file may be old.
export function clock(time) {
  const at = new Date(time), text = at.toLocaleTimeString("en-GB");
  return at.toDateString() === new Date().toDateString() ? text : `${at.toLocaleDateString("en-CA")} ${text}`;
}

// copyButton returns a button that copies a text.
export function copyButton(text, label) {
  const button = h("button", { type: "button", class: "copy", "aria-label": `Copy: ${text}`, click: async () => {
    try {
      await navigator.clipboard.writeText(text);
      setText(button, "copied");
    } catch {
      setText(button, "not copied");
    }
    setTimeout(() => setText(button, label || "copy"), 2000);
  } }, label || "copy");
  return button;
}
