// Fetches the page again every few seconds while it is visible, and replaces the sections that have changed.
// What a reader has opened, focused or selected stays as it is. Without this script, the page is read by reloading it.
"use strict";
const { seconds: SECONDS, lost: LOST, source: SOURCE } = document.body.dataset;
const updates = document.getElementById("updates");
const announce = document.getElementById("announce");

function replace(section, fresh) {
  const chosen = getSelection();
  if (!chosen.isCollapsed && section.contains(chosen.anchorNode)) return;
  for (const each of section.querySelectorAll("details[open]")) {
    const same = fresh.querySelector(`#${each.id}`);
    if (same) same.open = true;
  }
  if (section.innerHTML === fresh.innerHTML) return;
  const focused = section.contains(document.activeElement) ? document.activeElement.id : "";
  section.replaceChildren(...fresh.childNodes);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}

function insert(fresh) {
  let next = fresh.nextElementSibling;
  while (next && !document.getElementById(next.id)) next = next.nextElementSibling;
  document.getElementById("main").insertBefore(fresh, next && document.getElementById(next.id));
}

// Names the time of what is shown beside each heading; the next answer replaces the sections, and this with them.
function date(time) {
  for (const each of document.querySelectorAll("[data-live] > h2:not(:has(.as-of)), .verdict:not(.failure) h2")) {
    const of = document.createElement("span");
    of.className = "as-of";
    of.textContent = ` as of ${time} UTC`;
    each.append(of);
  }
}

// Returns the verdict without the time that date() may have added: one that goes on is no news.
function verdict() {
  const title = document.getElementById("verdict-title").cloneNode(true);
  title.querySelector(".as-of")?.remove();
  return title.textContent;
}

async function update() {
  if (document.hidden) return;
  try {
    const answer = await fetch(SOURCE ?? location.pathname, { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.status);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const before = verdict();
    const ids = new Set([...document.querySelectorAll("[data-live]"), ...page.querySelectorAll("[data-live]")].map((each) => each.id));
    for (const id of ids) {
      const section = document.getElementById(id), fresh = page.getElementById(id);
      if (section && fresh) replace(section, fresh);
      else if (section) section.remove();
      else insert(fresh);
    }
    document.title = page.title;
    updates.textContent = page.getElementById("updates").textContent.replace(/\. .*/, `, new every ${SECONDS} s`);
    document.body.classList.remove("stale");
    const title = verdict();
    if (title !== before) announce.textContent = title;
  } catch {
    if (!document.body.classList.contains("stale")) {
      const shown = /\d\d:\d\d:\d\d/.exec(updates.textContent);
      if (shown) date(shown[0]);
      updates.textContent = `No answer since ${new Date().toISOString().slice(11, 19)} UTC: ${LOST}`;
    }
    document.body.classList.add("stale");
  }
}

setInterval(update, SECONDS * 1000);
document.addEventListener("visibilitychange", update);
update();
