"use strict";
// A graph of one export as a tree of modules: what is drawn, and where. The layout of one level is dagre's.
const { Graph, KINDS, counted, quantity, shortened, small } = (() => {
  const MOST_BESIDE_NODES = 32; // in a module with more children, consecutive nodes are shown in parts: they hide the modules
  const MOST_CHILDREN = 48; // more children of one module are shown in parts, because a layout takes quadratic time
  const MOST_PORTS = 12;
  const FEWEST_NUMBERED = 5; // fewer values whose names differ in a number have a port each
  const FEWEST_RANKS = 4; // a result that is read at fewer places of a chain has plain edges
  const RAIL = 12; // the distance between two rails
  const FONT = "12px system-ui, sans-serif";

  // The kinds of operators, in the order in which they are tried: [class, name, pattern of the operator's name].
  const KINDS = [
    ["product", "products, convolutions", /Conv|MatMul|Gemm|Einsum|^(LSTM|GRU|RNN|Q?MoE)$/],
    ["attention", "attention", /Attention|RotaryEmbedding/],
    ["norm", "normalization", /Norm/],
    ["activation", "activations", /elu$|sigmoid|soft|^tanh$|swish|mish$|hardmax|shrink|silu/i],
    ["reduction", "reductions, pooling", /^Reduce|Pool|^Arg(Max|Min)$|TopK|^Cum|NonMaxSuppression|RoiAlign|^Unique$/],
    ["cast", "types, quantization", /Cast|Quantize/],
    ["control", "control flow", /^(If|Loop|Scan|SequenceMap)$/],
    ["shape", "shapes, indices", /^(Reshape|Transpose|Concat|Split|Slice|Gather|Scatter|Expand|Squeeze|Unsqueeze|Flatten|Pad|Tile|Shape|Size|Range|Constant|Identity|Resize|Upsample|DepthToSpace|SpaceToDepth|Trilu|NonZero|Compress|Reverse|OneHot|EyeLike|Sequence|Optional|TensorScatter|GridSample|Col2Im|CenterCrop)/],
    ["other", "other domains", /::/],
    ["elementwise", "elementwise", /./],
  ];
  const kinds = new Map();
  function kindOf(op) {
    if (!kinds.has(op)) {
      const name = op.slice(op.lastIndexOf(":") + 1);
      kinds.set(op, KINDS.find(([kind, , pattern]) => pattern.test(kind === "other" ? op : name))[0]);
    }
    return kinds.get(op);
  }

  function small(number) {
    if (typeof number !== "number") return number;
    return number && Math.abs(number) < 1e-3 ? number.toExponential(1).replace(".0e", "e") : String(Number(number.toPrecision(2)));
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
      const made = { id: `n${index}`, name, op, kind: kindOf(op), parent, source, inputs, outputs, attributes, group };
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
      if (group.children.length > MOST_BESIDE_NODES) group.children = this.parts(group, (one, next) => !one.children && !next.children);
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

    // Values with the same readers, or from the same child, share one port. Few inputs and outputs of the whole graph
    // have one each, and those whose names differ in a number share it.
    ports(group, direction, values, connect) {
      const found = new Map();
      const whole = this.folded((direction === "in" ? this.data.inputs : this.data.outputs).filter((value) => values.has(value)));
      const owns = whole.size <= MOST_PORTS ? new Map([...whole].flatMap(([name, inside]) => inside.map((value) => [value, name]))) : new Map();
      for (const [value, children] of values) {
        const own = owns.get(value) ?? "";
        const readers = whole.get(own)?.length > 1 ? [] : [...children].map((child) => child.id).sort();
        const key = [own, ...readers].join();
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

    // Values by name: `cache.*` has all values whose names differ in a number, if these are many.
    folded(values) {
      const name = (value) => this.data.values[value][0];
      const numbered = Map.groupBy(values, (value) => name(value).replace(/^(.*?[._])\d+([._].*)?$/, "$1*"));
      return Map.groupBy(values, (value) => {
        const [pattern] = [...numbered].find(([, inside]) => inside.includes(value));
        return numbered.get(pattern).length < FEWEST_NUMBERED ? name(value) : pattern;
      });
    }

    // The inputs or outputs as lines of text.
    interfaceText(values) {
      return [...this.folded(values)].map(([name, inside]) => {
        const types = new Set(inside.map((value) => this.data.values[value][1]));
        return `${inside.length > 1 ? `${name} (${inside.length})` : name}: ${[...types].slice(0, 2).join(" or ")}`;
      }).join("\n");
    }

    // The place of each item in the longest chain that leads to it.
    ranks(items, edges) {
      const before = new Map(items.map((item) => [item, []]));
      edges.forEach(({ from, to }) => before.get(to).push(from));
      const found = new Map();
      const rank = (item) => {
        if (!found.has(item)) {
          found.set(item, 0); // what leads back to the item does not count
          found.set(item, Math.max(0, ...before.get(item).map((each) => rank(each) + 1)));
        }
        return found.get(item);
      };
      items.forEach(rank);
      return found;
    }

    // The edges that dagre lays out, and the others. A result that many places of a chain read has a rail beside the
    // chain, and so has an item that reads results of many places. The item with the rail is the hub.
    splitEdges(items, edges) {
      const ranks = this.ranks(items, edges);
      const rails = [];
      const hubs = new Map(items.map((item) => [item, { from: new Set(), to: new Set() }]));
      for (const edge of edges) {
        hubs.get(edge.from).from.add(ranks.get(edge.to));
        hubs.get(edge.to).to.add(ranks.get(edge.from));
      }
      const plain = edges.filter((edge) => {
        const [first, last] = [ranks.get(edge.from), ranks.get(edge.to)];
        const [after, before] = [hubs.get(edge.from).from, hubs.get(edge.to).to];
        if (last === first + 1) return true;
        const leaves = after.size >= FEWEST_RANKS && last > Math.min(...after);
        const enters = before.size >= FEWEST_RANKS && first < Math.max(...before);
        if (leaves || enters) rails.push({ edge, hub: leaves ? edge.from : edge.to });
        return !leaves && !enters;
      });
      return { plain, rails };
    }

    // Draws the rails of sources at the left and those of readers at the right, and moves the boxes to make room.
    addRails(layout, rails) {
      const places = new Map(layout.boxes.map((box) => [box.item, box]));
      const hubs = [...new Set(rails.map(({ hub }) => hub))];
      const left = hubs.filter((hub) => rails.some(({ edge }) => edge.from === hub));
      const right = hubs.filter((hub) => !left.includes(hub));
      const room = left.length ? RAIL * (left.length + 1) : 0;
      layout.boxes.forEach((box) => (box.x += room));
      layout.lines.forEach((line) => (line.points = line.points.map(({ x, y }) => ({ x: x + room, y }))));
      layout.width += room + (right.length ? RAIL * (right.length + 1) : 0);
      layout.rails = rails.map(({ edge, hub }) => {
        const index = left.indexOf(hub);
        const side = index < 0 ? 1 : -1;
        const x = index < 0 ? layout.width - RAIL * (right.indexOf(hub) + 1) : room - RAIL * (index + 1);
        const [from, to] = [edge.from, edge.to].map((item) => places.get(item));
        return { edge, x, from: { x: from.x + (side * from.width) / 2, y: from.y + 5 }, to: { x: to.x + (side * to.width) / 2, y: to.y - 7 + 4 * (Math.max(index, 0) % 5) } };
      });
    }

    layout(group) {
      if (group.layout) return group.layout;
      const { items, edges } = this.level(group);
      const { plain, rails } = this.splitEdges(items, edges);
      const graph = new dagre.graphlib.Graph();
      graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 26, marginx: 12, marginy: 12 });
      items.forEach((item) => graph.setNode(item.id, this.size(item)));
      plain.forEach((edge) => graph.setEdge(edge.from.id, edge.to.id, { edge }));
      dagre.layout(graph);
      const { width, height } = graph.graph();
      group.layout = {
        width: Math.max(width || 0, 40),
        height: Math.max(height || 0, 20),
        boxes: items.map((item) => ({ item, ...graph.node(item.id) })),
        lines: graph.edges().map((key) => graph.edge(key)),
        rails: [],
      };
      if (rails.length) this.addRails(group.layout, rails);
      return group.layout;
    }

    size(item) {
      if (item.children && item.open) {
        const { width, height } = this.layout(item);
        return { width: Math.max(width, textWidth(this.title(item)) + 60), height: height + 24 };
      }
      const lines = this.lines(item);
      return { width: Math.max(...lines.map(textWidth)) * 1.06 + 24, height: (item.children ? 16 : 10) + 15 * lines.length };
    }

    title(item) {
      if (item.part) {
        const [first, last] = [item.children[0], item.children[item.children.length - 1]];
        return shortened(`${this.title(first)} … ${this.title(last)}`, 60);
      }
      if (item.port) {
        const names = this.folded(item.values);
        const [[first, inside]] = names;
        const rest = item.values.length - inside.length;
        return shortened(first, 36) + (inside.length > 1 ? ` (${inside.length})` : "") + (rest ? ` + ${rest}` : "");
      }
      if (item.module) return shortened(item.module.label || item.module.kind || "graph", 48);
      return shortened(item.op, 40);
    }

    lines(item) {
      const title = this.title(item);
      if (item.port) {
        const types = new Set(item.values.map((value) => this.data.values[value][1]));
        return types.size > 1 ? [title] : [title, shortened([...types][0], 40)];
      }
      if (!item.children) return item.outputs.length ? [title, shortened(this.data.values[item.outputs[0]][1], 40)] : [title];
      const nodes = this.nodesIn(item);
      const inside = nodes.length <= 3 ? nodes.map((node) => node.op).join(", ") : `${counted.format(nodes.length)} nodes`;
      const kind = item.part ? "" : item.module.kind;
      return [title, shortened([kind, inside].filter(Boolean).join(" · "), 48)];
    }

    // How many nodes of each kind a module has, as [kind, number] pairs in the order of the legend.
    kindsIn(group) {
      const numbers = new Map(KINDS.map(([kind]) => [kind, 0]));
      this.nodesIn(group).forEach(({ kind }) => numbers.set(kind, numbers.get(kind) + 1));
      return [...numbers].filter(([, number]) => number);
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
      if (item === this.root) add("inputs", this.interfaceText(this.data.inputs));
      if (item === this.root) add("outputs", this.interfaceText(this.data.outputs));
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

  return { Graph, KINDS, counted, quantity, shortened, small };
})();
