"""How fast the HTML report opens in a headless Chromium, how fast a module opens in it, and how large it is.

    python -m benchmarks.report_page [folder]

Prints a table. The reports stay in the folder. Needs Chromium and chromedriver.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnx
import onnx_ir as ir
import torch
import transformers

import fx_onnx
from benchmarks.models import BENCHMARKS, llama
from fx_onnx import ONNXProgram
from tests.browser import Browser, browser, missing
from tests.models.registry import BATCH, images
from tests.models.unet import UNet

ROUNDS = 5
CLICK_LARGEST = """
const boxes = [...document.querySelectorAll(".box[aria-expanded='false']")];
const nodes = (box) => Number(/([\\d,]+) nodes/.exec(box.getAttribute("aria-label"))?.[1].replaceAll(",", "") ?? 0);
boxes.sort((a, b) => nodes(b) - nodes(a));
const begin = performance.now();
boxes[0].dispatchEvent(new MouseEvent("click", { bubbles: true }));
document.querySelector(".canvas svg").getBoundingClientRect();
return [performance.now() - begin, document.querySelectorAll(".box").length];
"""
SEARCH = """
const input = document.querySelector("input[type=search]");
input.value = arguments[0];
const begin = performance.now();
input.dispatchEvent(new Event("input"));
return [performance.now() - begin, document.querySelectorAll(".hits li").length];
"""


def exported(name: str) -> ONNXProgram:
    """Exports a network of the benchmarks."""
    network = BENCHMARKS[name]
    inputs = network.inputs()
    return fx_onnx.export(
        network.build(), inputs.args, kwargs=inputs.kwargs, dynamic_shapes=network.dynamic_shapes, verify=True
    )


def llama_with_cache(layers: int = 16) -> ONNXProgram:
    """A Llama that takes and returns a key-value cache."""
    model = llama(layers).eval()
    model.config.use_cache = True
    cache = transformers.DynamicCache(config=model.config)
    for layer in range(layers):
        cache.update(torch.randn(2, 4, 8, 64), torch.randn(2, 4, 8, 64), layer)
    ids, mask = torch.randint(0, 8000, (2, 4)), torch.ones(2, 12, dtype=torch.int64)
    kwargs = {"input_ids": ids, "attention_mask": mask, "past_key_values": cache}
    return fx_onnx.export(model, (), kwargs=kwargs, verify=True)


def unet() -> ONNXProgram:
    """A UNet of three levels."""
    inputs = images(2, 64)
    return fx_onnx.export(UNet().eval(), inputs.args, dynamic_shapes=BATCH, verify=True)


def deep(layers: int = 168) -> ONNXProgram:
    """A Llama of 168 small layers: about 10,000 nodes in modules."""
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=layers, num_attention_heads=2,
        num_key_value_heads=1, use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).eval()
    return fx_onnx.export(model, (torch.randint(0, 64, (1, 4)),), opset_version=20)


def flat(nodes: int = 10_000) -> ONNXProgram:
    """A graph without modules, in which every seventh node also reads the result of the fortieth before it."""
    graph = [onnx.helper.make_node("Relu", ["x"], ["v0"])]
    for number in range(1, nodes):
        other = f"v{max(0, number - 40)}"
        add = number % 7 == 0
        inputs = [f"v{number - 1}", other] if add else [f"v{number - 1}"]
        graph.append(onnx.helper.make_node("Add" if add else "Sin", inputs, [f"v{number}"]))
    infos = [onnx.helper.make_tensor_value_info(name, 1, [2]) for name in ("x", f"v{nodes - 1}")]
    model = onnx.helper.make_model(onnx.helper.make_graph(graph, "flat", infos[:1], infos[1:]))
    return ONNXProgram(ir.from_proto(model))


PAGES: dict[str, Callable[[], ONNXProgram]] = {
    "resnet50": lambda: exported("resnet50"),
    "bert_base": lambda: exported("bert_base"),
    "llama16 with cache": llama_with_cache,
    "unet": unet,
    "168 layers": deep,
    "10,000 nodes in one module": flat,
}


def measured(window: Browser, path: Path) -> tuple[float, float, float, int]:
    """Returns the milliseconds to open the page, its largest module and a search, and the boxes that are shown."""
    opened, module, search, boxes = [], [], [], 0
    for _ in range(ROUNDS):
        opened.append(window.open(path))
        milliseconds, boxes = window.run(CLICK_LARGEST)
        module.append(milliseconds)
        milliseconds, hits = window.run(SEARCH, "add")
        assert hits
        search.append(milliseconds)
    assert window.messages() == []
    return statistics.median(opened), statistics.median(module), statistics.median(search), boxes


def main(folder: Path) -> None:
    """Prints the table."""
    print("| model | nodes | page | to write | to open | to open the largest module | to search |")
    print("|---|---|---|---|---|---|---|")
    with browser() as window:
        window.resize(1280, 900)
        for name, make in PAGES.items():
            program, path = make(), folder / f"{name}.html"
            begin = time.perf_counter()
            program.save_html(path)
            written = time.perf_counter() - begin
            nodes = sum(program.summary().operators.values())
            opened, module, search, _ = measured(window, path)
            print(
                f"| {name} | {nodes:,} | {path.stat().st_size / 1e6:.2f} MB | {written:.2f} s | {opened / 1000:.2f} s "
                f"| {module / 1000:.2f} s | {search / 1000:.3f} s |",
                flush=True,
            )


if __name__ == "__main__":
    if missing():
        raise SystemExit(missing())
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp()))
