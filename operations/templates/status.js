(() => {
  "use strict";
  const EVERY = 2000;
  const page = () => document.getElementById("page");
  let read = Date.now();

  // Seconds run on between two looks, so that the page never stands still.
  const tick = () => {
    const gone = (Date.now() - read) / 1000;
    for (const node of document.querySelectorAll("[data-left]")) {
      const left = Math.max(0, Number(node.dataset.left) - gone);
      const text = left < 120 ? node.dataset.say.replace("{n}", Math.ceil(left))
        : node.dataset.sayMinutes.replace("{n}", Math.ceil(left / 60));
      if (node.textContent !== text) node.textContent = text;
    }
    for (const node of document.querySelectorAll("[data-waited]")) {
      node.textContent = node.dataset.say.replace("{n}", Math.floor(Number(node.dataset.waited) + gone));
    }
  };

  // Only what has changed is put in, and never under a hand that is about to press a button.
  const show = (text) => {
    // The body alone: the nonces of a page that was fetched are not this one's.
    const body = text.slice(text.indexOf("<body>"), text.lastIndexOf("<script"));
    const fresh = new DOMParser().parseFromString(body, "text/html").getElementById("page");
    if (!fresh) throw new Error("no page");
    read = Date.now();
    for (const part of fresh.querySelectorAll("[data-part]")) {
      const old = page().querySelector(`[data-part="${part.dataset.part}"]`);
      if (!old || old.matches(":has(button:active, button:focus-visible)")) continue;
      for (const fold of part.querySelectorAll("details[id]")) {
        const was = old.querySelector(`#${fold.id}`);
        if (was) fold.open = was.open;
      }
      if (old.outerHTML !== part.outerHTML) old.replaceWith(part);
    }
    document.title = fresh.dataset.title;
    page().dataset.revision = fresh.dataset.revision;
    tick();
  };

  const ask = async (path) => {
    const answer = await fetch(path, { cache: "no-store" });
    if (!answer.ok) throw new Error(String(answer.status));
    return answer;
  };

  const look = async () => {
    try {
      // A few bytes, and the page itself only where something has changed.
      const { now, revision } = await (await ask("/status.json?parts=revision")).json();
      if (revision !== page().dataset.revision) show(await (await ask("/?lang=" + document.documentElement.lang)).text());
      const clock = document.querySelector("[data-clock]");
      clock.dataset.at = new Date(now * 1000).toTimeString().slice(0, 8);
      clock.textContent = `${clock.dataset.updated} ${clock.dataset.at}`;
      page().classList.remove("stale");
    } catch {
      const clock = document.querySelector("[data-clock]");
      if (clock && !page().classList.contains("stale")) clock.textContent = `${clock.dataset.stale} ${clock.dataset.at}`;
      page().classList.add("stale");
    }
  };

  document.addEventListener("submit", async (event) => {
    event.preventDefault();
    const form = event.target;
    const said = document.getElementById("said");
    try {
      const answer = await fetch(form.getAttribute("action"), {
        method: "POST", headers: { Accept: "application/json" }, body: new URLSearchParams(new FormData(form, event.submitter)),
      });
      said.textContent = answer.ok ? (await answer.json()).said : String(answer.status);
    } catch {
      said.textContent = document.querySelector("[data-clock]").dataset.lost;
    }
    if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
    look();
  });

  setInterval(tick, 250);
  setInterval(() => { if (!document.hidden) look(); }, EVERY);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) look(); });
})();
