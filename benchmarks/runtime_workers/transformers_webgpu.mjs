// Runs a client of transformers.js in a page of headless Chromium, on WebGPU; benchmarks/applications_js.py starts it.
//
//   node transformers_webgpu.mjs NODE_MODULES CLIENT NAME DTYPE METHOD OUTPUT
//
// It is started in the folder of the client's files: NAME.json, and the model in "out". CHROMIUM has the path of the
// browser, in which SwiftShader computes WebGPU on the CPU. The results are written to the files that the client names.
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { extname, join } from "node:path";

const [modules, client, ...call] = process.argv.slice(2);
const require = createRequire(join(modules, "x.js"));
const MEDIA_TYPES = { ".mjs": "text/javascript", ".js": "text/javascript", ".wasm": "application/wasm" };

const server = createServer((request, response) => {
  const name = new URL(request.url, "http://localhost").pathname.slice(1);
  const file = name.startsWith("modules/") ? join(modules, name.slice(8)) : name;
  response.setHeader("Content-Type", MEDIA_TYPES[extname(name)] ?? "text/html");
  if (name && !existsSync(file)) response.statusCode = 404;
  response.end(name && existsSync(file) ? readFileSync(file) : "<!doctype html>");
});
await new Promise((resolve) => server.listen(0, "localhost", resolve));
const browser = await require("puppeteer-core").launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", protocolTimeout: 300_000,
  args: ["--no-sandbox", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"],
});
const files = Object.fromEntries(
  readdirSync(".").filter((name) => name.endsWith(".json")).map((name) => [name.slice(0, -5), JSON.parse(readFileSync(name))]),
);
const page = await browser.newPage();
if (process.env.LOG) page.on("console", (message) => console.error(message.text()));
await page.goto(`http://localhost:${server.address().port}/`);
const written = await page.evaluate(`(async () => {
  const files = ${JSON.stringify(files)}, written = {};
  const { env, Tensor, LogitsProcessor, ...classes } =
    await import("/modules/@huggingface/transformers/dist/transformers.min.js");
  Object.assign(env, { allowRemoteModels: false, allowLocalModels: true, localModelPath: "/", useBrowserCache: false });
  env.backends.onnx.wasm.wasmPaths = "/modules/onnxruntime-web/dist/";
  env.backends.onnx.wasm.numThreads = 1;
  const [name, dtype, method, output] = ${JSON.stringify(call)}, device = "webgpu";
  const read = (file) => files[file];
  const write = (file, { dims, data }) => { written[file] = { dims: [...dims], values: Array.from(data, Number) }; };
  ${readFileSync(client)}
  return written;
})()`);
for (const [name, value] of Object.entries(written)) writeFileSync(`${name}.json`, JSON.stringify(value));
await browser.close();
process.exit(0);
