"""The modules that compute the features of images, from the inputs that onnxruntime-genai gives to ``vision``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from fx_onnx.capture.patches.patching import replace_attribute

__all__ = ["ImageOfAnySize", "PlacedPatches", "SquaresOfPatches"]


class ImageOfAnySize(nn.Module):
    """Computes the features of one image of Mistral 3, whose height and width are multiples of a merged patch."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.tower, self.projector = model.model.vision_tower, model.model.multi_modal_projector
        layers = model.config.vision_feature_layer
        self.layers = [layers] if isinstance(layers, int) else layers

    def forward(self, pixel_values: Tensor) -> dict[str, Tensor]:
        """(1, channels, height, width) to (tokens, size)."""
        states = self.tower(pixel_values, output_hidden_states=True).hidden_states
        rows = torch.cat([states[layer] for layer in self.layers], -1)[0]
        return {"image_features": self.projector(rows, [pixel_values.shape[-2:]])}


class PlacedPatches(nn.Module):
    """Computes the features of images of Gemma 4, whose patches have positions and no padding."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.tower, self.embed = model.model.vision_tower, model.model.embed_vision

    def forward(self, pixel_values: Tensor, pixel_position_ids: Tensor) -> dict[str, Tensor]:
        """(images, patches, size) and int64 (images, patches, 2) to (tokens, size)."""
        rows = self.tower(pixel_values=pixel_values, pixel_position_ids=pixel_position_ids).last_hidden_state
        # No patch is padding, so the number of tokens follows from that of the patches.
        count = pixel_values.shape[0] * (pixel_values.shape[1] // self.tower.config.pooling_kernel_size**2)
        return {"image_features": self.embed(inputs_embeds=rows.reshape(count, rows.shape[-1]))}


class SquaresOfPatches(nn.Module):
    """Computes the features of images of any sizes, of Qwen2.5-VL, Qwen3-VL and Qwen3.5.

    transformers loops over the images, and splits the patches into frames and windows, of which an image decides the
    number. Here each patch gets the number of its segment, and a mask lets it see its segment only.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.visual = model.model.visual

    def forward(self, pixel_values: Tensor, image_grid_thw: Tensor) -> dict[str, Tensor]:
        """Returns the features (tokens, size). Those of Qwen3-VL for its first layers follow in the last axis.

        Args:
            pixel_values: (patches, size). A square of patches that becomes one token stands together.
            image_grid_thw: int64 (images, 3): frames, rows and columns of patches.
        """
        merged, patches = self.visual.spatial_merge_size, torch.arange(len(pixel_values))
        sizes = image_grid_thw.prod(-1)
        ends = sizes.cumsum(0)
        image = torch.bucketize(patches, ends, right=True)
        _, rows, columns = image_grid_thw[image].unbind(-1)
        within = (patches - (ends - sizes)[image]) % (rows * columns)
        token, corner = within // merged**2, within % merged**2
        tokens = columns // merged
        row, column = token // tokens, token % tokens
        places = torch.stack([row * merged + corner // merged, column * merged + corner % merged], -1)
        given = {"position_ids": places, "cu_seqlens": patches - within, "max_seqlen": 0}
        if hasattr(self.visual, "window_size"):
            side = self.visual.window_size // merged // self.visual.patch_size
            given["cu_window_seqlens"] = patches - within + row // side * (-(-tokens // side)) + column // side
            given |= {"window_index": torch.arange(len(pixel_values) // merged**2), "max_window_seqlen": 0}
        else:
            grid = torch.stack([rows, columns], -1)
            given["interp_indices"], given["interp_weights"] = _corners(places, grid, self.visual.num_grid_per_side)
        with _attention_to_segments(type(self.visual)):
            result = self.visual(pixel_values, image_grid_thw, **given)
        more = getattr(result, "deepstack_features", None) or []
        return {"image_features": torch.cat([result.pooler_output, *more], -1)}


def _corners(places: Tensor, sizes: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Returns between which embeddings of a square table a patch lies, and their weights, each (patches, 4).

    Args:
        places: int64 (patches, 2), the row and the column of a patch.
        sizes: int64 (patches, 2), the numbers of rows and columns of its image.
        side: the number of rows and columns of the table.
    """
    exact = places.float() * (side - 1) / (sizes - 1).clamp(min=1)
    low = exact.floor()
    ends = torch.stack([low, low + 1], -1).long().clamp(0, side - 1)
    weights = torch.stack([1 - (exact - low), exact - low], -1)
    table = ends[:, 0, :, None] * side + ends[:, 1, None]
    return table.flatten(1), (weights[:, 0, :, None] * weights[:, 1, None]).flatten(1)


@contextmanager
def _attention_to_segments(kind: type[nn.Module]) -> Iterator[None]:
    """Gives all patches to the attention of a vision tower at once, as flash attention gets them."""
    code: Any = sys.modules[kind.__module__]
    functions = type(code.ALL_ATTENTION_FUNCTIONS)
    with (
        replace_attribute(code, "is_flash_attention_requested", lambda *_, **__: True),
        replace_attribute(functions, "get_interface", lambda *_, **__: _attention_in_segments),
    ):
        yield


def _attention_in_segments(
    module: Any, query: Tensor, key: Tensor, value: Tensor, *, cu_seq_lens_q: Tensor, scaling: float, **_: Any
) -> tuple[Tensor, None]:
    """Computes attention (1, heads, patches, size) among the patches whose segments (patches,) are equal."""
    mask = cu_seq_lens_q[:, None] == cu_seq_lens_q
    states = functional.scaled_dot_product_attention(query, key, value, mask, scale=scaling)
    return states.transpose(1, 2), None
