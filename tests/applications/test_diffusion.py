"""Tests of the parts of a pipeline of diffusers, with models that have its methods."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

import fx_onnx
from fx_onnx.applications.diffusion import diffusion
from fx_onnx.applications.parts import Part
from fx_onnx.messages.errors import ArgumentError


class Vae(nn.Module):
    """An autoencoder without weights that reduces images by 2."""

    config = SimpleNamespace(block_out_channels=(8, 8), in_channels=3, latent_channels=4)

    def encode(self, sample: Tensor) -> Any:
        """Returns an object with the parameters of a distribution."""
        return SimpleNamespace(latent_dist=SimpleNamespace(parameters=nn.functional.avg_pool2d(sample, 2)))

    def decode(self, latents: Tensor) -> Any:
        """Returns an object with the image."""
        return SimpleNamespace(sample=latents.repeat_interleave(2, -1))


class Unet(nn.Module):
    """A UNet without weights, whose conditions are those of Stable Diffusion XL."""

    num_upsamplers = 2
    config = SimpleNamespace(
        in_channels=4,
        cross_attention_dim=6,
        time_cond_proj_dim=3,
        addition_embed_type="text_time",
        addition_time_embed_dim=2,
        projection_class_embeddings_input_dim=20,
    )

    def forward(
        self,
        sample: Tensor,
        timestep: Tensor,
        states: Tensor,
        timestep_cond: Tensor,
        added_cond_kwargs: dict[str, Tensor],
    ) -> Any:
        """Returns an object with the sample."""
        added = sum(value.sum() for value in added_cond_kwargs.values())
        return SimpleNamespace(sample=sample * timestep + states.mean() + timestep_cond.sum() + added)


def _sum(inputs: dict[str, Any]) -> Any:
    return sum(value.sum() for value in inputs.values() if isinstance(value, Tensor))


class Transformer(nn.Module):
    """A transformer without weights that reads images."""

    config = SimpleNamespace(
        in_channels=4, patch_size=2, joint_attention_dim=6, pooled_projection_dim=5, guidance_embeds=True
    )

    def forward(self, hidden_states: Tensor, pooled_projections: Tensor, **more: Any) -> Any:
        """Returns an object with the sample."""
        return SimpleNamespace(sample=hidden_states + pooled_projections.sum() + _sum(more))


class Patches(Transformer):
    """A transformer without weights that reads patches of images."""

    def forward(self, hidden_states: Tensor, pooled_projections: Tensor, img_ids: Tensor, **more: Any) -> Any:  # type: ignore[override]
        """Returns an object with the sample."""
        return SimpleNamespace(sample=hidden_states + pooled_projections.sum() + img_ids[:, :1] + _sum(more))


def _clip() -> Any:
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.CLIPTextConfig(**sizes, vocab_size=50, projection_dim=8)
    return transformers.CLIPTextModelWithProjection(config).eval()


def test_parts_have_the_names_of_the_client() -> None:
    pipeline = SimpleNamespace(text_encoder_2=_clip(), unet=Unet(), vae=Vae())
    text, unet, encoder, decoder = diffusion(pipeline, (), {})
    assert (text.name, unet.name, encoder.name, decoder.name) == (
        *("text_encoder_2", "unet", "vae_encoder", "vae_decoder"),
    )
    assert text.outputs == ("text_embeds", "last_hidden_state", "hidden_states.0", "hidden_states.1")
    assert list(unet.kwargs) == [
        *("sample", "timestep", "encoder_hidden_states", "timestep_cond", "text_embeds", "time_ids"),
    ]
    assert unet.kwargs["time_ids"].shape == (2, 6) and unet.outputs == ("out_sample",)
    assert unet.dynamic_shapes["sample"][2].__name__ == "4*rows"
    assert (encoder.outputs, decoder.outputs) == (("latent_parameters",), ("sample",))


def _transformer(kind: type[nn.Module]) -> Part:
    return diffusion(SimpleNamespace(transformer=kind()), (), {})[0]


def test_a_transformer_reads_images_or_patches() -> None:
    images, patches = _transformer(Transformer), _transformer(Patches)
    assert (images.name, images.outputs) == ("transformer", ("out_hidden_states",))
    assert list(images.kwargs) == [
        *("hidden_states", "encoder_hidden_states", "pooled_projections", "timestep", "guidance"),
    ]
    assert images.kwargs["hidden_states"].dim() == 4 and patches.kwargs["hidden_states"].dim() == 3
    assert set(patches.kwargs) - set(images.kwargs) == {"img_ids", "txt_ids"}


def test_height_and_width_are_dynamic() -> None:
    part = diffusion(SimpleNamespace(unet=Unet(), text_encoder_2=_clip()), (), {})[1]
    program = fx_onnx.export(part.module, kwargs=part.kwargs, dynamic_shapes=part.dynamic_shapes, verify=False)
    given = {**part.kwargs, "sample": torch.randn(2, 4, 8, 20)}
    found = program(**given)[0]
    assert torch.allclose(torch.as_tensor(found), part.module(**given)["out_sample"], atol=1e-5)


def test_other_pipelines_are_refused() -> None:
    with pytest.raises(ArgumentError, match="has neither a UNet nor a transformer; export its parts"):
        diffusion(SimpleNamespace(vae=Vae()), (), {})
    with pytest.raises(ArgumentError, match="takes no pooled_projections; export it with"):
        diffusion(SimpleNamespace(transformer=Vae()), (), {})
