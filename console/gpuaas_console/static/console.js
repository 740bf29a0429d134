// What pages do without the server: copy buttons, saved views, the state of the live connection, local times, and open
// parts that stay open.
"use strict";

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  if (!navigator.clipboard) { // a browser offers it to pages over HTTPS, and on this host
    getSelection().selectAllChildren(button.previousElementSibling);
    return;
  }
  await navigator.clipboard.writeText(button.dataset.copy);
  const label = button.textContent;
  if (label !== "Copied") setTimeout(() => { button.textContent = label; }, 1500);
  button.textContent = "Copied";
});

// A second click on the button of a form sends it once: the browser would show the answer to the second request only,
// and a secret that is shown once would be lost.
let sentAt = -Infinity;

document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.timeStamp - sentAt < 1000) event.preventDefault();
  else sentAt = event.timeStamp;
});

const state = document.getElementById("live-state");
let readAt = new Date(); // null: the page shows why it cannot be read

function show(kind, text) {
  if (!state || state.textContent === text) return;
  state.className = `live ${kind}`;
  state.textContent = text;
}

function lost() {
  const isLocal = document.documentElement.dataset.times === "local";
  const text = readAt && (isLocal ? localTime(readAt, "zone") : `${readAt.toISOString().slice(11, 19)} UTC`);
  show("lost", `Connection lost. ${text ? `The page shows ${text}. ` : ""}Trying again…`);
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

// Times as the clock of this computer shows them, if the person chose that. The server sends them in UTC.
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

function localTime(moment, form) {
  const parts = [moment.getHours(), moment.getMinutes(), moment.getSeconds()];
  const [hours, minutes, seconds] = parts.map((part) => String(part).padStart(2, "0"));
  const day = `${moment.getDate()} ${MONTHS[moment.getMonth()]}`;
  if (form === "fine") return `${day} ${hours}:${minutes}:${seconds}.${String(moment.getMilliseconds()).padStart(3, "0")}`;
  const isThisYear = moment.getFullYear() === new Date().getFullYear();
  const text = isThisYear ? `${day} ${hours}:${minutes}:${seconds}` : `${day} ${moment.getFullYear()} ${hours}:${minutes}`;
  if (form !== "zone") return text;
  return `${text} ${new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(moment).find((part) => part.type === "timeZoneName").value}`;
}

function showLocalTimes() {
  for (const time of document.querySelectorAll("time[data-local]")) {
    time.textContent = localTime(new Date(time.dateTime), time.dataset.local);
  }
}

showLocalTimes();
document.body.addEventListener("htmx:afterSwap", showLocalTimes);

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
    const isRead = !event.detail.xhr.getResponseHeader("X-Failure");
    readAt = isRead ? new Date() : null;
    if (isRead) show("on", "Live");
    else lost();
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

// Views that people saved: names and addresses of this console, in this browser, for each person. Home has all of them, a
// list has its own.
const views = document.querySelector(".views");

function saved() {
  return JSON.parse(localStorage.getItem(`views of ${views.dataset.person}`) || "{}");
}

function save(changed) {
  localStorage.setItem(`views of ${views.dataset.person}`, JSON.stringify(changed));
  showViews();
}

function showViews() {
  const here = ([, address]) => location.pathname === "/" || address.split("?")[0] === location.pathname;
  views.querySelector("ul").replaceChildren(...Object.entries(saved()).filter(here).map(([name, address]) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const remove = document.createElement("button");
    link.textContent = name;
    link.href = new URL(address, location.origin).pathname + new URL(address, location.origin).search;
    remove.textContent = "✕";
    remove.className = "plain";
    remove.setAttribute("aria-label", `Remove the view ${name}`);
    remove.addEventListener("click", () => {
      const { [name]: _, ...others } = saved();
      save(others);
    });
    item.append(link, remove);
    return item;
  }));
}

if (views) {
  views.hidden = false;
  showViews();
  views.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = views.querySelector("input");
    save({ ...saved(), [name.value]: location.pathname + location.search });
    name.value = "";
    views.querySelector("details").open = false;
  });
}
