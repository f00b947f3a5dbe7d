// Runs one model in onnxruntime-web's WebAssembly or WebGPU provider; benchmarks/runtimes.py starts it.
//
//   node onnxruntime_web.mjs NODE_MODULES node|chromium|webgpu JOB
//
// "chromium" and "webgpu" run it in a page of headless Chromium, which puppeteer-core drives; CHROMIUM has its path.
// WebGPU is computed by SwiftShader, on the CPU. It prints {"loads": ..., "why": ..., "nodes": ...} and writes the
// results to WRITTEN.RUN.OUTPUT.npy. "nodes" has the operators of each provider, which the log of ONNX Runtime tells.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join } from "node:path";

const [modules, place, text] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const DTYPES = {
  "<f2": "float16", "<f4": "float32", "<f8": "float64", "<i8": "int64", "<i4": "int32", "|b1": "bool", "|u1": "uint8", "|i1": "int8",
};
const MEDIA_TYPES = { ".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm" };

function load(file) {
  const bytes = readFileSync(file);
  const end = 10 + bytes.readUInt16LE(8);
  const header = bytes.toString("latin1", 10, end);
  const type = DTYPES[/'descr': '([^']+)'/.exec(header)[1]];
  const dims = /'shape': \(([^)]*)\)/.exec(header)[1].split(",").filter((x) => x.trim()).map(Number);
  return { type, dims, data: bytes.subarray(end).toString("base64") };
}

function save(file, { type, dims, data }) {
  const descr = Object.keys(DTYPES).find((key) => DTYPES[key] === type);
  const shape = dims.map((x) => `${x},`).join(" ");
  let header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`;
  header = header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11) + "\n";
  const prefix = Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
  writeFileSync(file, Buffer.concat([prefix, Buffer.from(header, "latin1"), Buffer.from(data, "base64")]));
}

// Runs the model with each set of inputs. It is called here or in the page, so it uses nothing from outside but `ort`.
async function infer(ort, model, runs, provider) {
  const bytes = (base64) => Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const base64 = (array) => {
    const view = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    let found = "";
    for (let i = 0; i < view.length; i += 8192) found += String.fromCharCode(...view.subarray(i, i + 8192));
    return btoa(found);
  };
  const ARRAYS = {
    float16: Uint16Array, float32: Float32Array, float64: Float64Array, int64: BigInt64Array, int32: Int32Array,
    bool: Uint8Array, uint8: Uint8Array, int8: Int8Array,
  };
  const reply = { loads: false, why: "", results: [] };
  try {
    ort.env.wasm.numThreads = 1;
    ort.env.logLevel = provider === "webgpu" ? "verbose" : "error";
    const options = { executionProviders: [provider], logSeverityLevel: provider === "webgpu" ? 0 : 3 };
    const session = await ort.InferenceSession.create(bytes(model), options);
    ort.env.logLevel = "error";
    reply.loads = true;
    for (const inputs of runs) {
      const feeds = {};
      for (const [name, { type, dims, data }] of Object.entries(inputs)) {
        feeds[name] = new ort.Tensor(type, new ARRAYS[type](bytes(data).buffer), dims);
      }
      const results = await session.run(feeds);
      reply.results.push(session.outputNames.map((name) => {
        const { type, dims, data } = results[name];
        return { type, dims: [...dims], data: base64(data) };
      }));
    }
  } catch (error) {
    reply.why = String(error).replaceAll("\n", " ").slice(-300);
  }
  return reply;
}

// Adds the operator of a message of the log, which lists the nodes of each provider after the provider's name. Where one
// provider has all nodes, the log has their number only.
function count(nodes, message) {
  const text = message.split("VerifyEachNodeIsAssignedToAnEp]")[1] ?? "";
  const [, provider, number] = /placed on \[(\w+)ExecutionProvider\]. Number of nodes: (\d+)/.exec(text) ?? [];
  if (provider) {
    nodes.last = provider;
    nodes.counts[provider] = text.includes("All nodes") ? { all: Number(number) } : {};
  }
  const operator = /^ +(\w+) \(/.exec(text)?.[1];
  if (operator) nodes.counts[nodes.last][operator] = (nodes.counts[nodes.last][operator] ?? 0) + 1;
}

async function inChromium(model, runs, provider) {
  const served = join(modules, "onnxruntime-web", "dist");
  const server = createServer((request, response) => {
    const name = new URL(request.url, "http://localhost").pathname.slice(1);
    response.setHeader("Content-Type", MEDIA_TYPES[extname(name)] ?? "text/html");
    const file = join(served, name);
    response.end(name && existsSync(file) ? readFileSync(file) : "<!doctype html>");
  });
  await new Promise((resolve) => server.listen(0, "localhost", resolve));
  const browser = await require("puppeteer-core").launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", protocolTimeout: 300_000,
    args: ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"],
  });
  try {
    const page = await browser.newPage();
    const nodes = { last: "", counts: {} };
    page.on("console", (message) => (process.env.LOG ? console.error(message.text()) : 0, count(nodes, message.text())));
    await page.goto(`http://localhost:${server.address().port}/`);
    await page.addScriptTag({ url: `/ort.${provider}.min.js` });
    const given = [model, runs, provider].map((value) => JSON.stringify(value));
    return { ...await page.evaluate(`(${infer})(ort, ${given})`), nodes: nodes.counts };
  } finally {
    await browser.close();
    server.close();
  }
}

const job = JSON.parse(text);
const model = readFileSync(job.path).toString("base64");
const runs = job.inputs.map((files) => Object.fromEntries(Object.entries(files).map(([name, file]) => [name, load(file)])));
const reply = place === "node"
  ? await infer(require("onnxruntime-web"), model, runs, "wasm")
  : await inChromium(model, runs, place === "webgpu" ? "webgpu" : "wasm");
reply.results.forEach((tensors, run) => tensors.forEach((each, i) => save(`${job.written}.${run}.${i}.npy`, each)));
console.log(JSON.stringify({ loads: reply.loads, why: reply.why, nodes: reply.nodes ?? {} }).replace('"loads":', '"loads": '));
process.exit(0);
