"""Exports tiny pipelines of diffusers, runs them in optimum-onnx, and compares the images with those of diffusers.

    python -m benchmarks.applications_diffusion --client PYTHON [--precision NAME] [--only NAME...] [--kept FILE]

It runs in an environment with fx_onnx and diffusers. PYTHON is the interpreter of one with optimum-onnx 0.1.0 and a
diffusers that it takes. The outcomes are printed, and docs/applications.md has their summary. Images in another
precision than fp32 are compared with those in fp32.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import diffusers
import numpy as np
import torch
import transformers

import fx_onnx
import tests  # noqa: F401  lets torchvision load beside a CPU build of torch
from benchmarks.application_models import command_line, outcomes

HEIGHT, WIDTH = 32, 48
"""Another size than that of the export."""
CALL = """
import sys
import numpy as np, torch
def call(pipeline, kind):
    pipeline.set_progress_bar_config(disable=True)
    noise = torch.Generator().manual_seed(0)
    image = torch.rand(1, 3, HEIGHT, WIDTH, generator=noise)
    given = {} if kind == "text-to-image" else {"image": image, "strength": 0.7}
    if kind == "inpainting":
        given["mask_image"] = (torch.rand(1, 1, HEIGHT, WIDTH, generator=noise) > 0.5).float()
    if kind != "image-to-image":
        given |= {"height": HEIGHT, "width": WIDTH}
    options = {"num_inference_steps": 4, "output_type": "np", "generator": noise}
    return pipeline(["a cat", "two dogs"][: 1 if "image" in given else 2], **given, **options).images
""".replace("HEIGHT", str(HEIGHT)).replace("WIDTH", str(WIDTH))
CLIENT = f"""{CALL}
from pathlib import Path
import optimum.onnxruntime.modeling_diffusion as client
def refuse(*args, **kwargs): raise AssertionError("the client exports the model itself")
client.main_export = refuse
folder, name, kind, result = sys.argv[1:]
assert list(Path(folder).rglob("*.onnx")), "no ONNX file"
np.save(result, call(getattr(client, name).from_pretrained(folder), kind))
"""


def _clip(kind: Any) -> Any:
    return kind(
        transformers.CLIPTextConfig(
            hidden_size=32, intermediate_size=37, num_attention_heads=4, num_hidden_layers=3, vocab_size=60,
            projection_dim=32, bos_token_id=52, eos_token_id=53, pad_token_id=53,
        )
    ).eval()  # fmt: skip


def _t5() -> dict[str, Any]:
    """Returns the encoder of a T5 and its tokenizer."""
    pieces = ["<pad>", "</s>", "<unk>", "▁", *(chr(ord("a") + place) for place in range(26))]
    vocab = [(piece, -1.0 * place) for place, piece in enumerate(pieces)]
    config = transformers.T5Config(vocab_size=60, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4)
    tokenizer: Any = transformers.T5Tokenizer
    return {"text_encoder": transformers.T5EncoderModel(config).eval(), "tokenizer": tokenizer(vocab=vocab)}


def _tokenizer() -> Any:
    letters = [chr(ord("a") + place) for place in range(26)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer: Any = transformers.CLIPTokenizer
    return tokenizer(vocab={word: place for place, word in enumerate(words)}, merges=[], model_max_length=77)


def _vae(channels: int, **more: Any) -> Any:
    return diffusers.AutoencoderKL(
        block_out_channels=[32, 64], down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2, latent_channels=channels, **more,
    )  # fmt: skip


def _common(in_channels: int = 4, **unet: Any) -> dict[str, Any]:
    blocks = {"block_out_channels": (32, 64), "layers_per_block": 1, "out_channels": 4, "sample_size": 16}
    down, up = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    kinds = {"down_block_types": down, "up_block_types": up, "attention_head_dim": 8}
    return {
        "vae": _vae(4),
        "unet": diffusers.UNet2DConditionModel(in_channels=in_channels, **blocks, **kinds, **unet),
    }


def _of_one_text(kind: str, scheduler: Any, in_channels: int = 4, **unet: Any) -> Any:
    return getattr(diffusers, kind)(
        **_common(in_channels, cross_attention_dim=32, **unet), text_encoder=_clip(transformers.CLIPTextModel),
        tokenizer=_tokenizer(), scheduler=scheduler, safety_checker=None, feature_extractor=None,
        requires_safety_checker=False,
    )  # fmt: skip


def stable_diffusion() -> Any:
    """Returns a Stable Diffusion 1.5."""
    return _of_one_text("StableDiffusionPipeline", diffusers.DDIMScheduler(clip_sample=False))


def stable_diffusion_to_inpaint() -> Any:
    """Returns a Stable Diffusion 1.5 whose UNet takes a mask and a masked image."""
    return _of_one_text("StableDiffusionInpaintPipeline", diffusers.DDIMScheduler(clip_sample=False), 9)


def latent_consistency() -> Any:
    """Returns a latent consistency model."""
    scheduler = diffusers.LCMScheduler(clip_sample=False)
    return _of_one_text("LatentConsistencyModelPipeline", scheduler, time_cond_proj_dim=32)


def stable_diffusion_xl() -> Any:
    """Returns a Stable Diffusion XL."""
    sizes = {"addition_time_embed_dim": 8, "projection_class_embeddings_input_dim": 80}
    unet = {"cross_attention_dim": 64, "addition_embed_type": "text_time", "use_linear_projection": True, **sizes}
    return diffusers.StableDiffusionXLPipeline(
        **_common(**unet), text_encoder=_clip(transformers.CLIPTextModel),
        text_encoder_2=_clip(transformers.CLIPTextModelWithProjection), tokenizer=_tokenizer(),
        tokenizer_2=_tokenizer(), scheduler=diffusers.EulerDiscreteScheduler(), add_watermarker=False,
    )  # fmt: skip


def stable_diffusion_3() -> Any:
    """Returns a Stable Diffusion 3."""
    third = _t5()
    return diffusers.StableDiffusion3Pipeline(
        transformer=diffusers.SD3Transformer2DModel(
            sample_size=32, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8, num_attention_heads=4,
            caption_projection_dim=32, joint_attention_dim=32, pooled_projection_dim=64, out_channels=4,
        ),
        text_encoder=_clip(transformers.CLIPTextModelWithProjection), tokenizer=_tokenizer(),
        text_encoder_2=_clip(transformers.CLIPTextModelWithProjection), tokenizer_2=_tokenizer(),
        text_encoder_3=third["text_encoder"], tokenizer_3=third["tokenizer"],
        vae=_vae(4, use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.06),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
    )  # fmt: skip


def flux() -> Any:
    """Returns a Flux with an embedding of the guidance."""
    second = _t5()
    return diffusers.FluxPipeline(
        transformer=diffusers.FluxTransformer2DModel(
            patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16,
            num_attention_heads=2, joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
            guidance_embeds=True,
        ),
        text_encoder=_clip(transformers.CLIPTextModel), tokenizer=_tokenizer(),
        text_encoder_2=second["text_encoder"], tokenizer_2=second["tokenizer"],
        vae=_vae(4, use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.06),
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(),
    )  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A pipeline, and how it is called.

    Attributes:
        make: makes the pipeline.
        kind: ``text-to-image``, ``image-to-image`` or ``inpainting``.
        client: the class of the client.
        reference: the class of diffusers, if it is another one than the pipeline's.
    """

    make: Callable[[], Any]
    kind: str = "text-to-image"
    client: str = "ORTDiffusionPipeline"
    reference: str = ""

    @property
    def name(self) -> str:
        """The names of the pipeline and of the kind of the call."""
        return f"{self.make.__name__.replace('_', '-')}, {self.kind}"


_TO_IMAGE = ("image-to-image", "ORTPipelineForImage2Image", "AutoPipelineForImage2Image")
_TO_PAINT = ("inpainting", "ORTPipelineForInpainting", "AutoPipelineForInpainting")
RUNS = (
    Run(stable_diffusion),
    Run(stable_diffusion, *_TO_IMAGE),
    Run(stable_diffusion, *_TO_PAINT),
    Run(stable_diffusion_to_inpaint, "inpainting"),
    Run(latent_consistency),
    Run(stable_diffusion_xl),
    Run(stable_diffusion_xl, *_TO_IMAGE),
    Run(stable_diffusion_xl, *_TO_PAINT),
    Run(stable_diffusion_3),
    Run(flux),
)


def run(chosen: Run, folder: Path, python: str, precision: str) -> str:
    """Returns the largest difference between the images, which are between 0 and 1, or what failed."""
    torch.manual_seed(0)
    pipeline, space = chosen.make(), dict[str, Any]()
    pipeline.save_pretrained(folder / "source")
    fx_onnx.export_pretrained(folder / "source", folder / "out", layout="diffusers", precision=precision)
    if chosen.reference:
        pipeline = getattr(diffusers, chosen.reference).from_pipe(pipeline)
    exec(CALL, space)
    want = space["call"](pipeline, chosen.kind)
    command = [python, "-c", CLIENT, str(folder / "out"), chosen.client, chosen.kind, str(folder / "found.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        return f"fails: {done.stderr.strip().splitlines()[-1]}"
    found = np.load(folder / "found.npy")
    return f"{np.abs(found - want).max():.1e}"


def main() -> None:
    """Prints the outcomes."""
    parser = command_line(__doc__)
    parser.add_argument("--client", required=True, help="the Python interpreter with optimum-onnx")
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    chosen = [each for each in RUNS if options.only is None or each.name in options.only]
    call = partial(run, python=options.client, precision=options.precision)
    outcomes({each.name: partial(call, each) for each in chosen}, options.kept)


if __name__ == "__main__":
    main()
