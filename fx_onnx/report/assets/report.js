"use strict";
// Shows the facts of one export, which the page holds as JSON. Every text of the model is set as text, never as markup.
// The graph is folded by module; graph.js lays it out.
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const MOST_DETAILS = 2;
  const MOST_ROWS = 12;
  const MOST_HITS = 50;
  const MOST_TREE_ROWS = 200;

  // ------------------------------------------------------------------ elements

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined) made.setAttribute(name, value);
    }
    made.append(...children.filter((child) => child !== null));
    return made;
  }

  function shape(tag, attributes = {}, ...children) {
    const made = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  function button(label, action, description) {
    const made = element("button", { type: "button", title: description, "aria-label": description }, label);
    made.addEventListener("click", action);
    return made;
  }

  // ------------------------------------------------------------------ head, tables and dumps

  const MARKS = { passed: "✓", unverified: "○", read: "○", failed: "✗" };

  function verdict() {
    const { state, title, details } = facts.verdict;
    const mark = element("span", { class: "mark", "aria-hidden": "true" }, MARKS[state]);
    const lines = details.map((text) => element("p", {}, text));
    const sentences = element("div", { class: "details" }, ...lines.splice(0, MOST_DETAILS));
    if (lines.length) sentences.append(element("details", {}, element("summary", {}, `${lines.length} more`), ...lines));
    return element("header", { class: `verdict ${state}` }, mark, element("h1", {}, title), sentences);
  }

  function headline() {
    const pairs = facts.headline.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text)));
    return element("dl", { class: "headline" }, ...pairs);
  }

  function table({ header, rows, inner }, limit) {
    const numbers = header.map((name) => (name.endsWith("#") ? "number" : null));
    const names = header.map((name, column) => element("th", { scope: "col", class: numbers[column] }, name.replace(/#$/, "")));
    const line = (row, kind) => {
      const cells = row.map((text, column) => {
        const state = !header[column] && (text === "ok" || text === "differs") ? text : null;
        return element("td", { class: numbers[column] ?? state }, text);
      });
      return element("tr", { class: kind }, ...cells);
    };
    // A row that stands for others shows them below itself on a click.
    const group = (row, others) => {
      const made = line(row, "group");
      const hidden = others.map((other) => line(other, "inner"));
      const cell = made.children[1];
      const opener = element("button", { type: "button", class: "opener", "aria-expanded": "false" }, cell.textContent);
      cell.replaceChildren(opener);
      opener.addEventListener("click", () => {
        const opened = opener.getAttribute("aria-expanded") === "true";
        opener.setAttribute("aria-expanded", String(!opened));
        if (opened) hidden.forEach((each) => each.remove());
        else made.after(...hidden);
      });
      return made;
    };
    const body = element("tbody");
    const add = (from, to) => rows.slice(from, to).forEach((row, index) => {
      body.append(inner[from + index] ? group(row, inner[from + index]) : line(row, null));
    });
    add(0, limit);
    const made = element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...names)), body));
    if (rows.length > limit) {
      const more = button(`all ${counted.format(rows.length)} rows`, () => {
        add(limit, rows.length);
        more.remove();
      }, "Show all rows");
      more.className = "more";
      made.append(more);
    }
    return made;
  }

  function content(section) {
    const found = [];
    if (section.note) found.push(element("p", { class: "quiet" }, section.note));
    if (section.rows.length) found.push(table(section, section.place === "bottom" ? MOST_ROWS * 2 : MOST_ROWS));
    if (section.text) found.push(element("pre", {}, section.text));
    return found;
  }

  function open(section) {
    return element("section", {}, element("h2", {}, section.title), ...content(section));
  }

  function folded(section) {
    const made = element("details", {}, element("summary", {}, section.title));
    made.addEventListener("toggle", () => made.children.length === 1 && made.append(...content(section)));
    return made;
  }

  // ------------------------------------------------------------------ the tree of modules as a table

  class Tree {
    constructor(explorer) {
      this.explorer = explorer;
      this.body = element("tbody");
      const head = ["module", "nodes", "params"];
      const { modules } = explorer.graph.data;
      this.columns = [(module) => counted.format(module.nodes), (module) => quantity(module.parameters)];
      if (modules.some((module) => module.seconds != null)) {
        head.push("time");
        this.columns.push((module) => (module.seconds == null ? "" : `${module.seconds.toFixed(2)} s`));
      }
      if (modules.some((module) => module.difference)) {
        head.push("rel. diff.");
        this.columns.push((module) => (module.difference ? small(module.difference.relative) : ""));
      }
      const names = head.map((name, column) => element("th", { scope: "col", class: column ? "number" : null }, name));
      this.view = element("div", { class: "tree" }, element("table", { role: "treegrid", "aria-label": "Modules" }, element("thead", {}, element("tr", {}, ...names)), this.body));
      this.view.addEventListener("keydown", (event) => this.key(event));
    }

    modulesIn(group) {
      return group.children.filter((child) => child.children).flatMap((child) => (child.part ? this.modulesIn(child) : [child]));
    }

    show() {
      const focused = document.activeElement?.dataset?.row;
      this.body.replaceChildren();
      this.rows = [];
      this.add(this.explorer.graph.root, 1);
      const current = this.rows.find((row) => row.dataset.row === (focused ?? this.explorer.picked?.id)) ?? this.rows[0];
      this.rows.forEach((row) => (row.tabIndex = row === current ? 0 : -1));
      if (focused) current.focus();
    }

    add(group, level) {
      const { module } = group;
      const inner = this.modulesIn(group);
      const opened = inner.length ? String(group.open) : null;
      const caret = inner.length ? (group.open ? "▾" : "▸") : "";
      const name = element("td", { role: "gridcell", title: [module.path, module.class].filter(Boolean).join("  ") });
      name.style.paddingLeft = `${6 + 11 * (level - 1)}px`;
      const label = module.label || module.kind || "graph";
      name.append(element("span", { class: "caret" }, caret), label, element("span", {}, module.label ? `  ${module.kind}` : ""));
      const cells = this.columns.map((text) => element("td", { role: "gridcell", class: "number" }, text(module)));
      if (module.difference?.ok === false) cells[cells.length - 1].classList.add("problem");
      const row = element("tr", { role: "row", "aria-level": level, "aria-expanded": opened }, name, ...cells);
      row.dataset.row = group.id;
      row.classList.toggle("picked", group === this.explorer.picked);
      row.addEventListener("click", (event) => {
        if (event.target.className === "caret") this.explorer.toggle(group);
        else this.explorer.reveal(group);
      });
      this.body.append(row);
      this.rows.push(row);
      if (!group.open) return;
      inner.slice(0, MOST_TREE_ROWS).forEach((child) => this.add(child, level + 1));
      if (inner.length > MOST_TREE_ROWS) {
        const rest = element("td", { class: "quiet" }, `${inner.length - MOST_TREE_ROWS} more; search finds them`);
        this.body.append(element("tr", {}, rest));
      }
    }

    key(event) {
      const row = event.target.closest?.("tr[data-row]");
      if (!row) return;
      const group = this.explorer.graph.items.get(row.dataset.row);
      const move = (to) => to && to.focus();
      const index = this.rows.indexOf(row);
      const actions = {
        ArrowDown: () => move(this.rows[index + 1]),
        ArrowUp: () => move(this.rows[index - 1]),
        ArrowRight: () => !group.open && this.explorer.toggle(group),
        ArrowLeft: () => group.open && group.parent && this.explorer.toggle(group),
        Enter: () => this.explorer.toggle(group),
        " ": () => this.explorer.reveal(group),
      };
      if (actions[event.key]) {
        event.preventDefault();
        actions[event.key]();
      }
    }
  }

  // ------------------------------------------------------------------ the drawing

  class Explorer {
    constructor(data) {
      this.graph = new Graph(data);
      this.scale = 1;
      this.picked = null;
      this.canvas = element("div", { class: "canvas", role: "group", "aria-label": "Graph" });
      this.details = element("div", { class: "picked-facts", "aria-live": "polite" });
      this.tree = new Tree(this);
      this.view = element("div", { class: "explorer" }, element("div", { class: "side" }, this.tree.view, this.details), this.canvas);
      this.listen();
    }

    listen() {
      this.canvas.addEventListener("click", (event) => this.act(event, false));
      this.canvas.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") this.act(event, true);
      });
      this.canvas.addEventListener("pointerover", (event) => this.hover(event.target.closest("[data-id]"), event));
      this.canvas.addEventListener("pointerleave", () => this.hover(null));
      this.canvas.addEventListener("focusin", (event) => this.hover(event.target.closest("[data-id]"), null));
      this.canvas.addEventListener("focusout", () => this.hover(null));
      this.canvas.addEventListener("scroll", () => this.hover(null));
      this.canvas.addEventListener("wheel", (event) => {
        if (!event.ctrlKey && !event.metaKey) return; // the plain wheel scrolls
        event.preventDefault();
        this.zoom(this.scale * Math.exp(-event.deltaY / 300));
      }, { passive: false });
      this.canvas.addEventListener("pointerdown", (event) => this.drag(event));
    }

    drag(start) {
      if (start.target.closest("[data-id]") || start.button) return;
      const from = { x: this.canvas.scrollLeft + start.clientX, y: this.canvas.scrollTop + start.clientY };
      const move = (event) => this.canvas.scrollTo(from.x - event.clientX, from.y - event.clientY);
      const end = () => {
        this.canvas.classList.remove("dragged");
        window.removeEventListener("pointermove", move);
      };
      this.canvas.classList.add("dragged");
      window.addEventListener("pointermove", move);
      window.addEventListener("pointerup", end, { once: true });
    }

    act(event, isKey) {
      const box = event.target.closest("[data-id]");
      if (!box) return;
      if (isKey) event.preventDefault();
      const item = this.boxes.get(box.dataset.id);
      if (item.children) this.toggle(item);
      else this.pick(item);
    }

    show() {
      this.draw();
      this.tree.show();
      this.describe();
    }

    draw() {
      const focused = this.canvas.contains(document.activeElement) ? document.activeElement.dataset.id : null;
      const { width, height } = this.graph.layout(this.graph.root);
      this.width = width;
      this.height = height;
      this.boxes = new Map();
      this.places = new Map();
      this.svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "presentation" });
      const head = shape("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto" });
      head.append(shape("path", { d: "M0 0 L8 4 L0 8 z", class: "arrow" }));
      this.svg.append(shape("defs", {}, head));
      this.drawLevel(this.graph.root, 0, 0);
      this.canvas.replaceChildren(this.svg);
      this.zoom(this.scale);
      if (focused) this.places.get(focused)?.box.focus({ preventScroll: true });
    }

    drawLevel(group, left, top) {
      const { boxes, lines, rails } = this.graph.layout(group);
      const link = (kind, { edge }, d) => {
        const path = shape("path", { class: kind, d, "marker-end": "url(#arrow)" });
        path.classList.toggle("picked", [edge.from, edge.to].includes(this.picked));
        this.svg.append(path);
      };
      rails.forEach((rail) => link("link rail", rail, `M${left + rail.from.x},${top + rail.from.y} H${left + rail.x} V${top + rail.to.y} H${left + rail.to.x}`));
      lines.forEach((line) => link("link", line, curve(line.points, left, top)));
      for (const { item, x, y, width, height } of boxes) {
        this.drawBox(item, left + x - width / 2, top + y - height / 2, width, height);
      }
    }

    drawBox(item, x, y, width, height) {
      const opened = item.children && item.open;
      const kind = item.port ? "port" : item.children ? (opened ? "opened" : "module") : "node";
      const lines = opened ? [this.graph.title(item)] : this.graph.lines(item);
      const box = shape("g", { class: "box", "data-id": item.id, tabindex: 0, role: "button", "aria-label": lines.join(", ") });
      if (item.children) box.setAttribute("aria-expanded", String(Boolean(opened)));
      box.classList.toggle("different", this.graph.isDifferent(item));
      box.classList.toggle("picked", item === this.picked);
      box.append(shape("rect", { x, y, width, height, rx: item.port ? height / 2 : item.children ? 6 : 2, class: item.kind ? `${kind} kind ${item.kind}` : kind }));
      if (kind === "module") box.append(...this.strip(item, x + 8, y + height - 5, width - 16));
      lines.forEach((text, index) => {
        const place = opened ? { x: x + 10, y: y + 16 } : { x: x + width / 2, y: y + 17 + 15 * index, "text-anchor": "middle" };
        const label = shape("text", { ...place, class: index ? "small" : item.children ? "strong" : "plain" }, text);
        if (opened && item.module) label.append(shape("tspan", { dx: 8, class: "quiet", "font-weight": 400 }, shortened(item.module.kind, 40)));
        box.append(label);
      });
      this.boxes.set(item.id, item);
      this.places.set(item.id, { box, x, y, width, height });
      this.svg.append(box);
      if (opened) this.drawLevel(item, x + (width - this.graph.layout(item).width) / 2, y + 24);
    }

    // The kinds of the operators in a folded module, as a bar.
    strip(item, left, y, width) {
      const total = this.graph.nodesIn(item).length;
      let x = left;
      return this.graph.kindsIn(item).map(([kind, number]) => {
        const part = shape("rect", { x, y, width: (width * number) / total, height: 3, class: `strip kind ${kind}` });
        x += (width * number) / total;
        return part;
      });
    }

    zoom(scale) {
      const middle = (this.canvas.scrollTop + this.canvas.clientHeight / 2) / (this.scale || 1);
      const center = (this.canvas.scrollLeft + this.canvas.clientWidth / 2) / (this.scale || 1);
      const changed = scale !== this.scale;
      this.scale = Math.min(2.5, Math.max(0.1, scale));
      this.svg.setAttribute("width", this.width * this.scale);
      this.svg.setAttribute("height", this.height * this.scale);
      if (changed) {
        this.canvas.scrollTo(center * this.scale - this.canvas.clientWidth / 2, middle * this.scale - this.canvas.clientHeight / 2);
      }
    }

    // A graph that is a little too wide gets smaller; one that is much too wide begins at its middle.
    start() {
      this.zoom(Math.max(0.7, Math.min(1, (this.canvas.clientWidth - 4) / this.width)));
      this.canvas.scrollTo((this.width * this.scale - this.canvas.clientWidth) / 2, 0);
    }

    fit() {
      const { clientWidth, clientHeight } = this.canvas;
      this.zoom(Math.min(1.2, (clientWidth - 4) / this.width, (clientHeight - 4) / this.height));
    }

    // Opens or closes a module. Its box stays where it is on the screen.
    toggle(item) {
      if (item === this.graph.root) return;
      const before = this.screenPlace(item);
      this.graph.toggle(item);
      this.picked = item;
      this.show();
      const after = this.screenPlace(item);
      if (before && after) this.canvas.scrollBy(after.left - before.left, after.top - before.top);
      else this.center(item);
    }

    screenPlace = (item) => this.places.get(item.id)?.box.querySelector("rect").getBoundingClientRect();

    pick(item) {
      this.picked = item === this.graph.root ? null : item;
      this.show();
    }

    reveal(item) {
      this.graph.reveal(item);
      this.pick(item);
      this.center(item);
    }

    center(item) {
      const place = this.places.get(item.id);
      if (!place) return;
      const tall = place.height * this.scale > this.canvas.clientHeight;
      const y = (place.y + (tall ? 0 : place.height / 2)) * this.scale;
      const left = (place.x + place.width / 2) * this.scale - this.canvas.clientWidth / 2;
      this.canvas.scrollTo(left, y - (tall ? 8 : this.canvas.clientHeight / 2));
    }

    fold() {
      for (const item of this.graph.items.values()) if (item.children && item !== this.graph.root) item.open = false;
      for (const item of this.graph.items.values()) item.layout = null;
      this.picked = null;
      this.show();
      this.canvas.scrollTo(0, 0);
    }

    describe() {
      const item = this.picked ?? this.graph.root;
      const pairs = this.graph.facts(item).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]);
      this.details.replaceChildren(element("h3", {}, item.op ?? this.graph.title(item)), element("dl", {}, ...pairs));
      this.details.scrollTop = 0;
    }

    hover(box, event) {
      tip.hidden = true;
      const item = box && this.boxes.get(box.dataset.id);
      if (!item || (item.open && item.children)) return; // the panel describes an opened module
      const found = this.graph.facts(item);
      const lines = found.filter(([name]) => item.port || ["from", "module", "results"].includes(name)).slice(0, 12);
      const source = found.find(([name]) => name === "line");
      const title = element("strong", {}, item.op ?? this.graph.title(item));
      const texts = lines.map(([name, text]) => element("div", {}, element("span", { class: "quiet" }, `${name} `), shortened(text, 300)));
      const places = source ? source[1].split("\n").slice(0, 2).map((text) => element("div", { class: "mono" }, text)) : [];
      tip.replaceChildren(title, ...texts, ...places);
      tip.hidden = false;
      const { left, bottom, top } = box.querySelector("rect").getBoundingClientRect();
      const x = event ? event.clientX + 14 : left;
      const y = event ? event.clientY + 16 : bottom + 6;
      tip.style.left = `${Math.max(4, Math.min(x, window.innerWidth - tip.offsetWidth - 8))}px`;
      const fits = y + tip.offsetHeight < window.innerHeight - 4;
      tip.style.top = `${fits ? y : Math.max(4, (event ? event.clientY - 10 : top - 6) - tip.offsetHeight)}px`;
    }
  }

  function curve(points, left, top) {
    const at = points.map(({ x, y }) => [left + x, top + y]);
    let path = `M${at[0]}`;
    for (let index = 1; index < at.length - 1; index += 1) {
      const [x, y] = at[index];
      const [nextX, nextY] = at[index + 1];
      const end = index === at.length - 2 ? [nextX, nextY] : [(x + nextX) / 2, (y + nextY) / 2];
      path += ` Q${x},${y} ${end}`;
    }
    return at.length === 2 ? `${path} L${at[1]}` : path;
  }

  // ------------------------------------------------------------------ search

  class Search {
    constructor(explorer) {
      this.explorer = explorer;
      this.input = element("input", { type: "search", placeholder: "Search nodes, modules, ATen operators, files   ( / )", role: "combobox", "aria-label": "Search the graph", "aria-expanded": "false", "aria-controls": "hits", autocomplete: "off", spellcheck: "false" });
      this.list = element("ul", { class: "hits", id: "hits", role: "listbox", "aria-label": "Results" });
      this.view = element("div", { class: "search" }, this.input, this.list);
      this.input.addEventListener("input", () => this.show());
      this.input.addEventListener("keydown", (event) => this.key(event));
      this.input.addEventListener("blur", () => this.hide());
      this.list.addEventListener("pointerdown", (event) => {
        event.preventDefault(); // the input keeps the focus until the result is chosen
        const entry = event.target.closest("li[data-hit]");
        if (entry) this.choose(Number(entry.dataset.hit));
      });
    }

    index() {
      const { graph } = this.explorer;
      graph.searched ??= [...graph.items.values()].filter((item) => !item.part && item !== graph.root).map((item) => {
        if (item.children) return [item, `${item.module.path} ${item.module.class}`.toLowerCase()];
        const [operators, , frames] = item.source !== null ? graph.data.sources[item.source] : [[], "", []];
        const results = item.outputs.map((value) => graph.data.values[value][0]);
        const places = frames.map(([place, , code]) => `${place} ${code}`);
        return [item, [item.op, item.name, ...operators, ...results, ...places].join(" ").toLowerCase()];
      });
      return graph.searched;
    }

    show() {
      const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = words.length ? this.index().filter(([, text]) => words.every((word) => text.includes(word))) : [];
      this.hits = found.slice(0, MOST_HITS).map(([item]) => item);
      this.at = 0;
      const entries = this.hits.map((item, index) => {
        const where = item.children ? item.module.path : `${item.name} in ${this.explorer.graph.moduleOf(item)?.path || "the model"}`;
        const entry = element("li", { role: "option", "data-hit": index, id: `hit${index}` }, item.children ? `${item.module.label}  ${item.module.kind}` : item.op);
        entry.append(element("span", {}, where));
        return entry;
      });
      if (words.length && !found.length) entries.push(element("li", { class: "quiet" }, "Nothing found"));
      if (found.length > MOST_HITS) entries.push(element("li", { class: "quiet" }, `${counted.format(found.length - MOST_HITS)} more`));
      this.list.replaceChildren(...entries);
      this.input.setAttribute("aria-expanded", String(entries.length > 0));
      this.mark();
    }

    mark() {
      [...this.list.children].forEach((entry, index) => entry.setAttribute("aria-selected", String(index === this.at && index < this.hits.length)));
      if (this.hits.length) this.input.setAttribute("aria-activedescendant", `hit${this.at}`);
      this.list.children[this.at]?.scrollIntoView({ block: "nearest" });
    }

    key(event) {
      const last = (this.hits ?? []).length - 1;
      if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        this.at = Math.max(0, Math.min(last, this.at + (event.key === "ArrowDown" ? 1 : -1)));
        this.mark();
      } else if (event.key === "Enter" && last >= 0) {
        this.choose(this.at);
      } else if (event.key === "Escape") {
        this.input.value = "";
        this.input.blur();
      }
    }

    choose(index) {
      this.hide();
      this.explorer.reveal(this.hits[index]);
      this.explorer.places.get(this.hits[index].id).box.focus({ preventScroll: true });
    }

    hide() {
      this.list.replaceChildren();
      this.input.setAttribute("aria-expanded", "false");
    }
  }

  // ------------------------------------------------------------------ the page

  const tip = element("div", { class: "tip", role: "tooltip" });
  tip.hidden = true;

  const swatch = (kind, rx) => shape("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" }, shape("rect", { x: 1, y: 1, width: 24, height: 12, rx, class: kind }));

  function legend() {
    const different = swatch("node", 2);
    different.classList.add("box", "different");
    const lines = [
      [swatch("module", 4), "a module: click or press Enter to open or close it; the bar shows the kinds of its operators"],
      [swatch("node", 1), "an ONNX node: the pointer or the focus shows its ATen operator and its source line, a click all of it"],
      [swatch("port", 6), "values that enter or leave the graph or the opened module; “+ 3” counts further ones"],
      [different, "differs from PyTorch by more than is allowed, where the values were compared"],
    ];
    return element("ul", { class: "legend" }, ...lines.map(([picture, text]) => element("li", {}, picture, text)));
  }

  // The kinds of operators that the graph has, with their colours and numbers of nodes.
  function kindLegend(graph) {
    const entries = graph.kindsIn(graph.root).map(([kind, number]) => {
      const [, name] = KINDS.find(([each]) => each === kind);
      return element("li", {}, swatch(`node kind ${kind}`, 2), `${name} `, element("span", {}, counted.format(number)));
    });
    return element("ul", { class: "kinds", "aria-label": "Kinds of operators" }, ...entries);
  }

  function explorer() {
    const [bar, kinds, place] = [element("div", { class: "bar" }), element("div"), element("div", { class: "place" })];
    const section = element("section", { id: "graph", "aria-label": "Modules and graph" }, bar, kinds, place);
    let shown = null;
    const choose = (index) => {
      shown = facts.graphs[index].explorer ??= new Explorer(facts.graphs[index]);
      const search = new Search(shown);
      bar.replaceChildren(search.view);
      if (facts.graphs.length > 1) bar.append(select(index));
      bar.append(
        button("−", () => shown.zoom(shown.scale / 1.25), "Zoom out"),
        button("+", () => shown.zoom(shown.scale * 1.25), "Zoom in"),
        button("fit", () => shown.fit(), "Show the whole graph"),
        button("100 %", () => shown.zoom(1), "Actual size"),
        button("fold all", () => shown.fold(), "Close all modules"),
      );
      kinds.replaceChildren(kindLegend(shown.graph));
      place.replaceChildren(shown.view);
      shown.show();
      shown.start();
    };
    const select = (index) => {
      const names = facts.graphs.map((graph, number) => element("option", { value: number }, graph.name || "main graph"));
      const made = element("select", { "aria-label": "Graph or local function" }, ...names);
      made.value = index;
      made.addEventListener("change", () => choose(Number(made.value)));
      return made;
    };
    document.addEventListener("keydown", (event) => {
      const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        bar.querySelector("input").focus();
      }
    });
    return { section, start: () => choose(0) };
  }

  const columns = (sections) => element("div", { class: "columns" }, ...sections.map(open));
  const main = document.getElementById("report");
  const placed = (place) => facts.sections.filter((section) => section.place === place);
  const screen = element("div", {}, verdict(), headline(), columns(placed("first")));
  main.append(screen);
  if (facts.graphs.length) {
    const { section, start } = explorer();
    screen.append(section);
    screen.className = "screen";
    document.body.append(tip);
    main.append(legend());
    start();
  }
  if (facts.call) main.append(element("pre", { class: "call" }, facts.call));
  main.append(columns(placed("top")));
  main.append(columns(placed("bottom")), element("h2", {}, "Details"), ...placed("dump").map(folded));
  document.documentElement.dataset.ready = "true";
})();
