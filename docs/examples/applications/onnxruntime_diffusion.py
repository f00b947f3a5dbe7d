"""Makes an image with a folder of the layout diffusers, a Stable Diffusion 1.5, without torch.

python onnxruntime_diffusion.py FOLDER TOKEN... writes image.npy. The scheduler is DDIM with 20 steps, the tokens are
those of the pipeline's tokenizer.
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime


def draw(folder: str, tokens: list[int], height: int = 64, width: int = 64, steps: int = 20) -> np.ndarray:
    """Returns an image of numbers between 0 and 1, (3, height, width)."""
    parts = {}
    for name in ("text_encoder", "unet", "vae_decoder"):
        parts[name] = onnxruntime.InferenceSession(Path(folder, name, "model.onnx"))
    config = json.loads(Path(folder, "scheduler", "scheduler_config.json").read_text())
    vae = json.loads(Path(folder, "vae_decoder", "config.json").read_text())
    roots = np.linspace(config["beta_start"] ** 0.5, config["beta_end"] ** 0.5, config["num_train_timesteps"])
    betas = roots**2 if config["beta_schedule"] == "scaled_linear" else np.linspace(
        config["beta_start"], config["beta_end"], config["num_train_timesteps"]
    )  # fmt: skip
    kept = np.cumprod(1 - betas)
    factor = 2 ** (len(vae["block_out_channels"]) - 1)
    shape = (1, vae["latent_channels"], height // factor, width // factor)
    sample = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    states = parts["text_encoder"].run(["last_hidden_state"], {"input_ids": np.array([tokens], np.int64)})[0]
    times = np.arange(steps)[::-1] * (len(kept) // steps) + config.get("steps_offset", 0)
    first = 1.0 if config.get("set_alpha_to_one", True) else kept[0]
    for time, later in zip(times, [*times[1:], None], strict=True):
        given = {"sample": sample, "timestep": np.array(time, np.float32), "encoder_hidden_states": states}
        (noise,) = parts["unet"].run(["out_sample"], given)
        image = (sample - (1 - kept[time]) ** 0.5 * noise) / kept[time] ** 0.5
        rest = first if later is None else kept[later]
        sample = (rest**0.5 * image + (1 - rest) ** 0.5 * noise).astype(np.float32)
    (image,) = parts["vae_decoder"].run(["sample"], {"latent_sample": sample / np.float32(vae["scaling_factor"])})
    return (image[0] / 2 + 0.5).clip(0, 1)


if __name__ == "__main__":
    np.save("image.npy", draw(sys.argv[1], [int(each) for each in sys.argv[2:]]))
