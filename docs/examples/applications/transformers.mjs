// Classifies texts with a folder of the layout transformers.js, in Node: node transformers.mjs FOLDER DTYPE TEXT...
import path from "node:path";
import { env, pipeline } from "@huggingface/transformers";

const [folder, dtype, ...texts] = process.argv.slice(2);
env.allowRemoteModels = false;
env.localModelPath = path.dirname(path.resolve(folder)) + path.sep;
const classify = await pipeline("text-classification", path.basename(folder), { dtype });
for (const [place, { label, score }] of (await classify(texts)).entries())
  console.log(`${texts[place]}: ${label}, ${Math.round(100 * score)}%`);
