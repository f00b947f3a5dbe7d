// Runs one model in onnxruntime-web's WebAssembly provider in Node.js; benchmarks/runtimes.py starts it.
// It prints {"loads": ..., "why": ...} and writes the results to MODEL.RUN.OUTPUT.npy.
import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

const [modules, text] = process.argv.slice(2);
const ort = createRequire(join(modules, "x.js"))("onnxruntime-web");
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

const DTYPES = {
  "<f4": ["float32", Float32Array], "<f8": ["float64", Float64Array], "<i8": ["int64", BigInt64Array],
  "<i4": ["int32", Int32Array], "|b1": ["bool", Uint8Array], "|u1": ["uint8", Uint8Array], "|i1": ["int8", Int8Array],
};

function load(file) {
  const bytes = readFileSync(file);
  const end = 10 + bytes.readUInt16LE(8);
  const header = bytes.toString("latin1", 10, end);
  const [name, type] = DTYPES[/'descr': '([^']+)'/.exec(header)[1]];
  const shape = /'shape': \(([^)]*)\)/.exec(header)[1].split(",").filter((x) => x.trim()).map(Number);
  const data = bytes.buffer.slice(bytes.byteOffset + end, bytes.byteOffset + bytes.length);
  return new ort.Tensor(name, new type(data), shape);
}

function save(file, tensor) {
  const descr = Object.keys(DTYPES).find((key) => DTYPES[key][0] === tensor.type);
  const shape = tensor.dims.map((x) => `${x},`).join(" ");
  let header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${shape}), }`;
  header = header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11) + "\n";
  const prefix = Buffer.from([0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0, header.length & 255, header.length >> 8]);
  const data = Buffer.from(tensor.data.buffer, tensor.data.byteOffset, tensor.data.byteLength);
  writeFileSync(file, Buffer.concat([prefix, Buffer.from(header, "latin1"), data]));
}

const job = JSON.parse(text);
let loads = false;
let why = "";
try {
  const session = await ort.InferenceSession.create(new Uint8Array(readFileSync(job.path)), { executionProviders: ["wasm"] });
  loads = true;
  for (const [number, files] of job.inputs.entries()) {
    const feeds = Object.fromEntries(Object.entries(files).map(([name, file]) => [name, load(file)]));
    const results = await session.run(feeds);
    session.outputNames.forEach((name, place) => save(`${job.path}.${number}.${place}.npy`, results[name]));
  }
} catch (error) {
  why = String(error).replaceAll("\n", " ").slice(-300);
}
console.log(JSON.stringify({ loads, why }).replace('"loads":', '"loads": '));
process.exit(0);
