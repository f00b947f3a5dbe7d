"use strict";
// Shows the facts of one export, which the page holds as JSON. Every text of the model is set as text, never as markup.
// The graph is folded by module. Opening a module lays out its children; the layout itself is dagre's.
(() => {
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const MOST_CHILDREN = 48; // more children of one module are shown in parts, because a layout takes quadratic time
  const MOST_ROWS = 12;
  const MOST_HITS = 50;
  const MOST_TREE_ROWS = 200;
  const FONT = "12px system-ui, sans-serif";

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

  const pen = document.createElement("canvas").getContext("2d");
  const widths = new Map();
  function textWidth(text) {
    if (!widths.has(text)) {
      pen.font = FONT;
      widths.set(text, pen.measureText(text).width);
    }
    return widths.get(text);
  }

  const shortened = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

  const counted = new Intl.NumberFormat("en");
  function quantity(number) {
    if (!number) return "";
    for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
      if (number >= size) return `${(number / size).toPrecision(3)} ${unit}`;
    }
    return String(number);
  }

  const small = (number) => (typeof number === "number" ? String(Number(number.toPrecision(2))) : number);

  // ------------------------------------------------------------------ head, tables and dumps

  const MARKS = { passed: "✓", unverified: "○", read: "○", failed: "✗" };

  function verdict() {
    const { state, title, details } = facts.verdict;
    const mark = element("span", { class: "mark", "aria-hidden": "true" }, MARKS[state]);
    const sentences = element("div", { class: "details" }, ...details.map((text) => element("p", {}, text)));
    return element("header", { class: `verdict ${state}` }, mark, element("h1", {}, title), sentences);
  }

  function headline() {
    const pairs = facts.headline.map(([name, text]) => element("div", {}, element("dt", {}, name), element("dd", {}, text)));
    return element("dl", { class: "headline" }, ...pairs);
  }

  function table(header, rows, limit) {
    const numbers = header.map((name) => (name.endsWith("#") ? "number" : null));
    const names = header.map((name, column) => element("th", { scope: "col", class: numbers[column] }, name.replace(/#$/, "")));
    const body = element("tbody");
    const add = (from, to) => {
      for (const row of rows.slice(from, to)) {
        const cells = row.map((text, column) => {
          const state = !header[column] && (text === "ok" || text === "differs") ? text : null;
          return element("td", { class: numbers[column] ?? state }, text);
        });
        body.append(element("tr", {}, ...cells));
      }
    };
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
    if (section.rows.length) found.push(table(section.header, section.rows, section.place === "bottom" ? MOST_ROWS * 2 : MOST_ROWS));
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

  // ------------------------------------------------------------------ the graph as a tree of modules

  class Graph {
    constructor(data) {
      this.data = data;
      this.groups = data.modules.map((module, index) => ({ id: `m${index}`, module, children: [], open: false, layout: null }));
      this.groups.forEach((group) => (group.parent = group.module.parent === null ? null : this.groups[group.module.parent]));
      this.root = this.groups[0];
      this.root.open = true;
      this.producers = new Map();
      this.readers = new Map();
      this.nodes = data.nodes.map((node, index) => this.node(node, index));
      this.items = new Map([...this.groups, ...this.nodes].map((item) => [item.id, item]));
      this.split(this.root);
      for (const group of this.items.values()) {
        if (group.parent === this.root && group.module && group.module.nodes > 0.8 * this.nodes.length) group.open = true;
      }
    }

    node([name, op, module, source, inputs, outputs, attributes, body], index) {
      const group = body === null ? null : this.groups[body];
      const parent = this.groups[module];
      const made = { id: `n${index}`, name, op, parent, source, inputs, outputs, attributes, group };
      made.drawn = group ?? made;
      if (group) group.node = made;
      for (const value of inputs) {
        if (!this.readers.has(value)) this.readers.set(value, []);
        this.readers.get(value).push(made);
      }
      outputs.forEach((value) => this.producers.set(value, made));
      this.place(made.drawn);
      return made;
    }

    place(item) {
      const { parent } = item;
      if (parent && !item.placed) {
        item.placed = true;
        parent.children.push(item);
        this.place(parent);
      }
    }

    // A module with too many children gets parts of consecutive nodes, and of consecutive modules if these are too many.
    split(group) {
      if (group.children.length > MOST_CHILDREN) group.children = this.parts(group, (one, next) => !one.children && !next.children);
      while (group.children.length > MOST_CHILDREN) group.children = this.parts(group, () => true);
      group.children.filter((child) => child.children).forEach((child) => this.split(child));
    }

    parts(group, together) {
      const { children } = group;
      const size = 2 * Math.ceil(Math.sqrt(children.length));
      const runs = [];
      for (const child of children) {
        const run = runs[runs.length - 1];
        if (run && run.length < size && together(run[run.length - 1], child)) run.push(child);
        else runs.push([child]);
      }
      return runs.map((run) => {
        if (run.length === 1) return run[0];
        const part = { id: `${group.id}.${run[0].id}`, part: true, parent: group, children: run, open: false, layout: null };
        run.forEach((child) => (child.parent = part));
        this.items.set(part.id, part);
        return part;
      });
    }

    childOf(group, item) {
      let at = item;
      while (at && at.parent !== group) at = at.parent;
      return at;
    }

    nodesIn(group) {
      group.inner ??= group.children.flatMap((child) => {
        const own = child.node ? [child.node] : [];
        return child.children ? [...own, ...this.nodesIn(child)] : [child];
      });
      return group.inner;
    }

    // The edges between the children of a module, and those that enter or leave it, as {from, to, values}.
    level(group) {
      if (group.level) return group.level;
      const edges = new Map();
      const connect = (from, to, value) => {
        const key = `${from.id}>${to.id}`;
        if (!edges.has(key)) edges.set(key, { from, to, values: new Set() });
        edges.get(key).values.add(value);
      };
      const entering = new Map();
      const leaving = new Map();
      for (const node of this.nodesIn(group)) {
        const at = this.childOf(group, node.drawn);
        for (const value of node.inputs) {
          if (this.data.values[value][2]) continue;
          const producer = this.producers.get(value);
          const from = producer && this.childOf(group, producer.drawn);
          if (from && from !== at) connect(from, at, value);
          if (!from && producer?.drawn !== group) entering.set(value, (entering.get(value) ?? new Set()).add(at));
        }
        for (const value of node.outputs) {
          const returned = this.data.outputs.includes(value);
          const outside = (this.readers.get(value) ?? []).some((reader) => !this.childOf(group, reader.drawn));
          if (returned || outside) leaving.set(value, new Set([at]));
        }
      }
      const ports = [...this.ports(group, "in", entering, connect), ...this.ports(group, "out", leaving, connect)];
      group.level = { items: [...group.children, ...ports], edges: [...edges.values()] };
      return group.level;
    }

    // Values with the same readers, or from the same child, share one port.
    ports(group, direction, values, connect) {
      const found = new Map();
      for (const [value, children] of values) {
        const key = [...children].map((child) => child.id).sort().join();
        if (!found.has(key)) found.set(key, { id: `${direction}.${group.id}.${value}`, port: direction, parent: group, values: [], children: null });
        const port = found.get(key);
        port.values.push(value);
        for (const child of children) {
          if (direction === "in") connect(port, child, value);
          else connect(child, port, value);
        }
      }
      return [...found.values()];
    }

    layout(group) {
      if (group.layout) return group.layout;
      const { items, edges } = this.level(group);
      const graph = new dagre.graphlib.Graph();
      graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 26, marginx: 12, marginy: 12 });
      items.forEach((item) => graph.setNode(item.id, this.size(item)));
      edges.forEach((edge) => graph.setEdge(edge.from.id, edge.to.id, { edge }));
      dagre.layout(graph);
      const { width, height } = graph.graph();
      group.layout = {
        width: Math.max(width || 0, 40),
        height: Math.max(height || 0, 20),
        boxes: items.map((item) => ({ item, ...graph.node(item.id) })),
        lines: graph.edges().map((key) => graph.edge(key)),
      };
      return group.layout;
    }

    size(item) {
      if (item.children && item.open) {
        const { width, height } = this.layout(item);
        return { width: Math.max(width, textWidth(this.title(item)) + 60), height: height + 24 };
      }
      const lines = this.lines(item);
      return { width: Math.max(...lines.map(textWidth)) * 1.06 + 24, height: 10 + 15 * lines.length };
    }

    title(item) {
      if (item.part) {
        const [first, last] = [item.children[0], item.children[item.children.length - 1]];
        return shortened(`${this.title(first)} … ${this.title(last)}`, 60);
      }
      if (item.port) {
        const [name] = this.data.values[item.values[0]];
        return shortened(name, 36) + (item.values.length > 1 ? ` + ${item.values.length - 1}` : "");
      }
      if (item.module) return shortened(item.module.label || item.module.kind || "graph", 48);
      return shortened(item.op, 40);
    }

    lines(item) {
      const title = this.title(item);
      if (item.port) return item.values.length > 1 ? [title] : [title, shortened(this.data.values[item.values[0]][1], 40)];
      if (!item.children) return item.outputs.length ? [title, shortened(this.data.values[item.outputs[0]][1], 40)] : [title];
      const nodes = this.nodesIn(item);
      const inside = nodes.length <= 3 ? nodes.map((node) => node.op).join(", ") : `${counted.format(nodes.length)} nodes`;
      const kind = item.part ? "" : item.module.kind;
      return [title, shortened([kind, inside].filter(Boolean).join(" · "), 48)];
    }

    around = (item) => (item.parent ? [item.parent, ...this.around(item.parent)] : []);

    toggle(group, opened = !group.open) {
      group.open = opened;
      [group, ...this.around(group)].forEach((each) => (each.layout = null));
    }

    // Opens what is around an item, so that the item is visible.
    reveal(item) {
      this.around(item).filter((group) => !group.open).reverse().forEach((group) => this.toggle(group, true));
    }

    isDifferent(item) {
      if (item.module) return item.module.difference?.ok === false;
      return (item.outputs ?? []).some((value) => this.data.differences[value]?.ok === false);
    }

    // The facts of an item as [name, text] pairs; a tip shows the first ones.
    facts(item) {
      if (item.port) return item.values.map((value) => this.data.values[value].slice(0, 2));
      const node = item.children ? item.node : item;
      const [operators, fx, frames] = node && node.source !== null ? this.data.sources[node.source] : [[], "", []];
      const found = [];
      const add = (name, text) => text && found.push([name, text]);
      if (operators.length) add("from", operators.join(", "));
      const module = item.children ? item.module : this.moduleOf(item);
      if (module) add("module", [module.path, module.class].filter(Boolean).join("\n"));
      add("line", frames.map(([place, name, code]) => `${place}  ${code || name}`).join("\n"));
      if (node) add("results", node.outputs.map((value) => this.valueText(value)).join("\n"));
      if (node) add("inputs", node.inputs.map((value) => this.valueText(value)).join("\n"));
      if (node) add("attributes", node.attributes);
      if (node) add("name", node.name);
      add("FX nodes", fx);
      if (item.children) add("nodes", counted.format(this.nodesIn(item).length));
      if (item.module) add("parameters", item.module.parameters ? counted.format(item.module.parameters) : "");
      if (item.module?.seconds != null) add("capture", `${item.module.seconds.toFixed(3)} s`);
      const differences = item.module ? [item.module.difference] : (node?.outputs ?? []).map((value) => this.data.differences[value]);
      for (const one of differences.filter(Boolean)) {
        add("difference", `${small(one.max)}, ${small(one.relative)} of the scale (${small(one.allowed)} allowed) ${one.problem}`);
      }
      return found;
    }

    moduleOf = (item) => this.around(item).find((group) => group.module)?.module;

    valueText(value) {
      const [name, type, isInitializer] = this.data.values[value];
      return `${name}: ${type}${isInitializer ? " (weight or constant)" : ""}`;
    }
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
      const { boxes, lines } = this.graph.layout(group);
      for (const line of lines) {
        const path = shape("path", { class: "link", d: curve(line.points, left, top), "marker-end": "url(#arrow)" });
        const ends = [line.edge.from, line.edge.to];
        path.classList.toggle("picked", ends.includes(this.picked));
        this.svg.append(path);
      }
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
      box.append(shape("rect", { x, y, width, height, rx: item.port ? height / 2 : item.children ? 6 : 2, class: kind }));
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

  function legend() {
    const swatch = (kind, rx) => shape("svg", { viewBox: "0 0 26 14", "aria-hidden": "true" }, shape("rect", { x: 1, y: 1, width: 24, height: 12, rx, class: kind }));
    const different = swatch("node", 2);
    different.classList.add("box", "different");
    const lines = [
      [swatch("module", 4), "a module: click or press Enter to open or close it"],
      [swatch("node", 1), "an ONNX node: the pointer or the focus shows its ATen operator and its source line, a click all of it"],
      [swatch("port", 6), "values that enter or leave the graph or the opened module; “+ 3” counts further ones"],
      [different, "differs from PyTorch by more than is allowed, where the values were compared"],
    ];
    return element("ul", { class: "legend" }, ...lines.map(([picture, text]) => element("li", {}, picture, text)));
  }

  function explorer() {
    const [bar, place] = [element("div", { class: "bar" }), element("div")];
    const section = element("section", { id: "graph" }, element("h2", {}, "Modules and graph"), bar, place, legend());
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
  main.append(verdict(), headline());
  if (facts.call) main.append(element("pre", { class: "call" }, facts.call));
  main.append(columns(placed("top")));
  if (facts.graphs.length) {
    const { section, start } = explorer();
    main.append(section);
    document.body.append(tip);
    start();
  }
  main.append(columns(placed("bottom")), element("h2", {}, "Details"), ...placed("dump").map(folded));
  document.documentElement.dataset.ready = "true";
})();
