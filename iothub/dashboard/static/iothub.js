// What a page does without asking the server: shortcuts, copying, the theme, and new points of charts.
(() => {
  const themes = ["auto", "light", "dark"];
  let started = 0; // when `g` was pressed

  const shown = (element) => element && element.offsetParent !== null;

  function typed(event) {
    const at = event.target;
    return at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName);
  }

  // Move within the menu that is open: Quasar leaves that to Tab.
  function moved(event) {
    const menu = event.target.closest?.("[role=menu]");
    const items = menu ? [...menu.querySelectorAll("[role=menuitem]")] : [];
    const at = items.indexOf(document.activeElement), last = items.length - 1;
    const next = { ArrowDown: at < last ? at + 1 : 0, ArrowUp: at > 0 ? at - 1 : last, Home: 0, End: last }[event.key];
    if (last < 0 || next === undefined) return false;
    event.preventDefault();
    items[next].focus();
    return true;
  }

  function pressed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || moved(event)) return;
    if (event.key === "Escape") return iothub.help(false);
    if (typed(event)) return;
    if (event.key === "/") {
      const field = [...document.querySelectorAll("input[data-search]")].find(shown);
      if (field) { event.preventDefault(); field.focus(); field.select(); }
    } else if (event.key === "?") {
      iothub.help(true);
    } else if (event.key === "g") {
      started = Date.now();
    } else if (Date.now() - started < 1500) {
      started = 0;
      const link = [...document.querySelectorAll("a[data-go]")].find((each) => each.dataset.go === event.key);
      if (link) location.href = link.href;
    }
  }

  const element = (tag, kind, text) => Object.assign(document.createElement(tag), { className: kind, textContent: text });

  // The server sends the navigation as rows of text; links are made of them here.
  function fillNavigation(nav) {
    for (const row of JSON.parse(nav.dataset.rows)) {
      if (row.group) {
        nav.append(element("div", "io-group", row.group));
        continue;
      }
      const link = element("a", row.here ? "io-nav-item io-here" : "io-nav-item", row.title);
      link.setAttribute("href", row.href);
      link.dataset.icon = row.icon; // drawn by the style sheet
      if (row.key) link.dataset.go = row.key;
      if (row.here) link.setAttribute("aria-current", "page");
      nav.append(link);
    }
    nav.querySelector(".io-here")?.scrollIntoView({ block: "nearest" });
  }

  function appeared() {
    const nav = document.querySelector("nav[data-rows]");
    if (nav && !nav.childElementCount) fillNavigation(nav);
  }

  function fillHelp(box) {
    const rows = [["/", "search or filter"], ["?", "this list"], ["Esc", "close"]];
    for (const link of document.querySelectorAll("a[data-go]")) rows.push([`g ${link.dataset.go}`, link.textContent]);
    box.append(element("div", "io-title", "Keyboard"));
    for (const [keys, what] of rows) {
      const row = element("div", "io-help-row", "");
      row.append(element("kbd", "", keys), element("div", "", what));
      box.append(row);
    }
  }

  async function put(text) {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch { // without https there is no clipboard but this
      const area = document.body.appendChild(Object.assign(document.createElement("textarea"), { value: text }));
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  }

  function notice(done, text) {
    Quasar.Notify.create({ message: done ? "Copied" : "Copy this line", caption: text, html: false, timeout: done ? 1500 : 15000, position: "bottom-right" });
  }

  const three = (value) => +value.toPrecision(3);

  function count(value) {
    const size = Math.abs(value);
    return size >= 1e6 ? `${three(value / 1e6)}M` : size >= 1e3 ? `${three(value / 1e3)}k` : `${three(value)}`;
  }

  function bytes(value) {
    const names = ["B", "KiB", "MiB", "GiB", "TiB"];
    let step = 0;
    for (; Math.abs(value) >= 1024 && step < names.length - 1; step++) value /= 1024;
    return `${three(value)} ${names[step]}`;
  }

  function time(value) {
    if (value === 0) return "0";
    return value < 1e-3 ? `${three(value * 1e6)} \u00b5s` : value < 1 ? `${three(value * 1e3)} ms` : `${three(value)} s`;
  }

  const formats = {
    "": count, "/s": (value) => `${count(value)}/s`, B: bytes, "B/s": (value) => `${bytes(value)}/s`, s: time,
  };

  window.iothub = {
    // How a chart writes values of this unit.
    format: (unit) => (value) => (value == null ? "-" : formats[unit](Number(value))),
    help(open) {
      const box = document.getElementById("io-help");
      if (!box) return;
      if (open && !box.childElementCount) fillHelp(box);
      box.hidden = !open || !box.hidden;
    },
    async copy(event) {
      const text = event.currentTarget.dataset.copy;
      notice(await put(text), text);
    },
    async put(text) { notice(await put(text), text); },
    theme() {
      const now = (document.cookie.match(/iothub_theme=(\w+)/) || [])[1] || "auto";
      const next = themes[(themes.indexOf(now) + 1) % themes.length];
      document.cookie = `iothub_theme=${next};path=/;max-age=31536000;samesite=strict`;
      Quasar.Dark.set(next === "auto" ? "auto" : next === "dark");
      document.documentElement.style.background = "";
      Quasar.Notify.create({ message: `Theme: ${next}`, timeout: 1000, position: "bottom-right" });
    },
    // New points of charts: {element's id: [[time, value] of each series]}; those before `from` go.
    points(news, from) {
      for (const [id, values] of Object.entries(news)) {
        const chart = getElement(Number(id))?.chart;
        if (!chart) continue;
        const series = chart.getOption().series.map((each, number) => {
          const kept = each.data.filter((point) => point[0] >= from);
          if (values[number]) kept.push(...values[number]);
          return { data: kept };
        });
        chart.setOption({ series });
      }
    },
  };
  document.addEventListener("keydown", pressed);
  new MutationObserver(appeared).observe(document, { childList: true, subtree: true });
})();
