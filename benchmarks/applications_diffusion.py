"""Exports tiny pipelines of diffusers, runs them in optimum-onnx, and compares the images with those of diffusers.

    python -m benchmarks.applications_diffusion --client PYTHON

It runs in an environment with fx_onnx and diffusers. PYTHON is the interpreter of one with optimum-onnx 0.1.0 and a
diffusers that it takes. The table goes into docs/applications.md.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
import transformers

import fx_onnx
import tests  # noqa: F401  lets torchvision load beside a CPU build of torch
from benchmarks.application_models import write_table

HEIGHT, WIDTH = 24, 32
CLIENT = """
import sys, warnings
from pathlib import Path
import numpy as np, torch
import optimum.onnxruntime.modeling_diffusion as client
def refuse(*args, **kwargs): raise AssertionError("the client exports the model itself")
client.main_export = refuse
assert list(Path(sys.argv[1]).rglob("*.onnx")), "no ONNX file"
pipeline = client.ORTDiffusionPipeline.from_pretrained(sys.argv[1])
latents = torch.from_numpy(np.load(sys.argv[2]))
torch.manual_seed(0)
options = {"num_inference_steps": 3, "output_type": "np", "height": int(sys.argv[4]), "width": int(sys.argv[5])}
found = pipeline(["a cat", "two dogs"], latents=latents, **options).images
np.save(sys.argv[3], found)
"""


def _clip(kind: Any) -> Any:
    return kind(
        transformers.CLIPTextConfig(
            hidden_size=32, intermediate_size=37, num_attention_heads=4, num_hidden_layers=3, vocab_size=60,
            projection_dim=32, bos_token_id=52, eos_token_id=53, pad_token_id=53,
        )
    ).eval()  # fmt: skip


def _tokenizer(folder: Path) -> Any:
    letters = [chr(ord("a") + place) for place in range(26)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: place for place, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    return transformers.CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"), model_max_length=77)


def _common(**unet: Any) -> dict[str, Any]:
    blocks = {"block_out_channels": (32, 64), "layers_per_block": 1, "in_channels": 4, "out_channels": 4}
    down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    return {
        "vae": diffusers.AutoencoderKL(
            block_out_channels=[32, 64], down_block_types=["DownEncoderBlock2D"] * 2,
            up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=4,
        ),
        "unet": diffusers.UNet2DConditionModel(
            **blocks, sample_size=16, down_block_types=down, up_block_types=up, attention_head_dim=8, **unet
        ),
    }  # fmt: skip


def stable_diffusion(folder: Path) -> Any:
    """Returns a Stable Diffusion 1.5."""
    return diffusers.StableDiffusionPipeline(
        **_common(cross_attention_dim=32), text_encoder=_clip(transformers.CLIPTextModel),
        tokenizer=_tokenizer(folder), scheduler=diffusers.DDIMScheduler(clip_sample=False), safety_checker=None,
        feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip


def stable_diffusion_xl(folder: Path) -> Any:
    """Returns a Stable Diffusion XL."""
    tokenizer, sizes = _tokenizer(folder), {"addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 80}
    unet = {"cross_attention_dim": 64, "addition_embed_type": "text_time", "use_linear_projection": True, **sizes}
    return diffusers.StableDiffusionXLPipeline(
        **_common(**unet), text_encoder=_clip(transformers.CLIPTextModel),
        text_encoder_2=_clip(transformers.CLIPTextModelWithProjection), tokenizer=tokenizer, tokenizer_2=tokenizer,
        scheduler=diffusers.EulerDiscreteScheduler(), add_watermarker=False,
    )  # fmt: skip


def latent_consistency(folder: Path) -> Any:
    """Returns a latent consistency model."""
    return diffusers.LatentConsistencyModelPipeline(
        **_common(cross_attention_dim=32, time_cond_proj_dim=32), text_encoder=_clip(transformers.CLIPTextModel),
        tokenizer=_tokenizer(folder), scheduler=diffusers.LCMScheduler(clip_sample=False), safety_checker=None,
        feature_extractor=None, requires_safety_checker=False,
    )  # fmt: skip


PIPELINES: tuple[Callable[[Path], Any], ...] = (stable_diffusion, stable_diffusion_xl, latent_consistency)


def run(make: Callable[[Path], Any], folder: Path, python: str) -> str:
    """Returns the largest difference between the images, which are between 0 and 1, or what failed."""
    torch.manual_seed(0)
    pipeline = make(folder)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.save_pretrained(folder / "source")
    fx_onnx.export_pretrained(folder / "source", folder / "out", layout="diffusers")
    latents = torch.randn(2, 4, HEIGHT // 2, WIDTH // 2)
    np.save(folder / "latents.npy", latents.numpy())
    options = {"num_inference_steps": 3, "output_type": "np", "height": HEIGHT, "width": WIDTH}
    torch.manual_seed(0)
    want = pipeline(["a cat", "two dogs"], latents=latents, **options).images
    command = [python, "-c", CLIENT, str(folder / "out"), str(folder / "latents.npy"), str(folder / "found.npy")]
    command += [str(HEIGHT), str(WIDTH)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        return f"fails: {done.stderr.strip().splitlines()[-1]}"
    found = np.load(folder / "found.npy")
    return f"{np.abs(found - want).max():.1e}, of a spread of {want.std():.1e}"


def main() -> None:
    """Prints the outcomes, and writes them to the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--client", required=True, help="the Python interpreter with optimum-onnx")
    options = parser.parse_args()
    first = "| pipeline | difference |"
    rows = [first, "|---|---|"]
    for make in PIPELINES:
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = run(make, Path(folder), options.client)
            except fx_onnx.OnnxExporterError as error:
                found = f"refused: {error.message}"
        rows.append(f"| {make.__name__.replace('_', '-')} | {found} |")
        print(rows[-1], flush=True)
    write_table(first, rows)


if __name__ == "__main__":
    main()
