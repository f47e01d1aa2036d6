"use strict";
// Hides, opens and finds what is on the page already. It makes no element and is given no datum.
(() => {
  const all = [...document.querySelectorAll(".item")];
  const entries = all.filter((item) => item.closest("#timeline"));
  const search = document.getElementById("search");
  const count = document.getElementById("count");
  const help = document.getElementById("help");
  const root = document.documentElement;
  const texts = new Map();
  let kind = "all";
  let current = null;

  for (const part of document.querySelectorAll(".needs-script")) part.hidden = false;

  const text = (item) => {
    if (!texts.has(item)) texts.set(item, item.textContent.toLowerCase());
    return texts.get(item);
  };
  const isKind = (item) => kind === "all" || item.dataset.k.split(" ").includes(kind);

  function filter() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const shown = new Set();
    for (let at = entries.length - 1; at >= 0; at -= 1) {
      const item = entries[at];
      const fits = isKind(item) && words.every((word) => text(item).includes(word));
      if (!fits && !shown.has(item)) continue;
      shown.add(item);
      const above = item.parentElement.closest(".item");
      if (above) shown.add(above);
    }
    for (const item of entries) item.classList.toggle("gone", !shown.has(item));
    const narrowed = kind !== "all" || words.length > 0;
    root.classList.toggle("narrowed", narrowed);
    count.textContent = narrowed ? `${shown.size} of ${entries.length}` : "";
  }

  const visible = (item) => !item.classList.contains("gone") && item.getClientRects().length > 0;
  const handle = (item) => (item.tagName === "DETAILS" ? item.firstElementChild : item);

  function select(item) {
    if (current) current.classList.remove("current");
    current = item;
    if (!item) return;
    item.classList.add("current");
    handle(item).focus({ preventScroll: true });
    handle(item).scrollIntoView({ block: "nearest" });
  }

  function reveal(item) {
    for (let up = item; up; up = up.parentElement.closest("details")) if (up.tagName === "DETAILS") up.open = true;
    if (item.classList.contains("gone")) {
      search.value = "";
      choose("all");
    }
    select(item);
    handle(item).scrollIntoView({ block: "start" });
  }

  function step(by, wanted = () => true) {
    const there = entries.filter((item) => visible(item) && wanted(item));
    if (!there.length) return;
    if (by === "first" || by === "last") return select(there.at(by === "first" ? 0 : -1));
    const place = entries.indexOf(current);
    if (by > 0) select(there.find((item) => entries.indexOf(item) > place) || there.at(-1));
    else select(there.findLast((item) => entries.indexOf(item) < place) || there[0]);
  }

  function choose(next) {
    kind = next;
    for (const button of document.querySelectorAll("#filters button"))
      button.setAttribute("aria-pressed", String(button.dataset.kind === kind));
    filter();
  }

  function openAll() {
    const details = all.filter((item) => item.tagName === "DETAILS" && !item.classList.contains("gone"));
    const open = details.some((item) => !item.open);
    for (const item of details) item.open = open;
  }

  function theme() {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  }

  const problem = (item) => item.dataset.k.split(" ").includes("problem");
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    n: () => step(1, problem),
    p: () => step(-1, problem),
    g: () => step("first"),
    G: () => step("last"),
    o: () => current && current.tagName === "DETAILS" && (current.open = !current.open),
    O: openAll,
    "/": () => search.focus(),
    t: theme,
    "?": () => help.showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || help.open) return;
    if (event.target === search) {
      if (event.key === "Escape") {
        search.value = "";
        filter();
        search.blur();
      }
      return;
    }
    const act = Object.hasOwn(keys, event.key) ? keys[event.key] : null;
    if (!act) return;
    event.preventDefault();
    act();
  });
  document.addEventListener("click", (event) => {
    const item = event.target.closest(".item");
    if (item && entries.includes(item)) {
      if (current) current.classList.remove("current");
      current = item;
      item.classList.add("current");
    }
  });

  let waiting = 0;
  search.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(filter, 120);
  });
  document.getElementById("filters").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) choose(button.dataset.kind);
  });
  document.getElementById("open-all").addEventListener("click", openAll);
  document.getElementById("theme").addEventListener("click", theme);
  document.getElementById("help-button").addEventListener("click", () => help.showModal());

  function follow() {
    const target = /^#e\d+$/.test(location.hash) ? document.getElementById(location.hash.slice(1)) : null;
    if (target) reveal(target);
  }
  addEventListener("hashchange", follow);
  follow();
})();
