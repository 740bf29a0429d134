// What pages do without the server: copy buttons, the state of the live connection, and open parts that stay open.
"use strict";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  await navigator.clipboard.writeText(button.dataset.copy);
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
});

const state = document.getElementById("live-state");
let readAt = new Date();

function show(kind, text) {
  if (!state || state.textContent === text) return;
  state.className = `live ${kind}`;
  state.textContent = text;
}

function lost() {
  show("lost", `Connection lost. The page shows ${readAt.toLocaleTimeString()}. Trying again…`);
}

document.body.addEventListener("htmx:sseOpen", (event) => {
  show("on", "Live");
  event.detail.source.addEventListener("stale", lost); // the console runs, but it does not reach the platform
});
document.body.addEventListener("htmx:sseError", lost);
document.body.addEventListener("htmx:sendError", (event) => {
  lost();
  if (event.target.matches("[aria-live]")) event.target.textContent = "The console does not answer. Reload the page.";
});
document.body.addEventListener("htmx:sseClose", lost);

// Parts that people opened stay open when the live part of the page is read again, and the focus stays where it was:
// people who use the keyboard would start at the top of the page again with each change.
let open = [];
let focused = "";
const controls = () => [...document.querySelectorAll("#live :is(a[href], button, input, select, summary, [tabindex])")];

function key(control) {
  return [control.tagName, control.id, control.getAttribute("href"), control.getAttribute("aria-label"), control.name,
    control.value, control.textContent.trim()].join("|");
}

// The page does not change while a button of the mouse is down: the click would be lost.
let isPressed = false;
let isLate = false;

function released() {
  isPressed = false;
  if (isLate) setTimeout(() => { isLate = false; htmx.trigger("#live", "sse:changed"); });
}

document.addEventListener("pointerdown", () => { isPressed = true; }, true);
document.addEventListener("pointerup", released, true);
document.addEventListener("pointercancel", released, true);

document.body.addEventListener("htmx:beforeSwap", (event) => {
  if (isPressed && event.detail.target.id === "live") {
    event.detail.shouldSwap = false;
    isLate = true;
    return;
  }
  focused = controls().includes(document.activeElement) ? key(document.activeElement) : "";
  open = [...document.querySelectorAll("#live details[open]")].map((part) => part.id);
  if (event.detail.target.id === "live" && event.detail.xhr.status === 200) {
    readAt = new Date();
    show("on", "Live");
  }
});
document.body.addEventListener("htmx:afterSwap", () => {
  for (const id of open) document.getElementById(id)?.setAttribute("open", "");
  if (focused && document.activeElement === document.body) {
    controls().find((control) => key(control) === focused)?.focus({ preventScroll: true });
  }
});

// Tables of the app are read when people open them, and again while they stay open and visible.
function read(part) {
  htmx.trigger(part.querySelector("[hx-get]"), "read");
}

document.addEventListener("toggle", (event) => {
  if (event.target.matches("details.reading[open]")) read(event.target);
}, true);
setInterval(() => {
  if (document.visibilityState === "visible") document.querySelectorAll("details.reading[open]").forEach(read);
}, 60000);
