"""Translations of torch.onnx.ops, each to the ONNX operator that it names.

If the opset does not have the ONNX operator, torch's decomposition replaces the call.

torch defines these operators when ``torch.onnx`` is imported, so they are registered by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx_ir import DataType, Value

from fx_onnx.extension_points.translation_table import translates
from fx_onnx.messages.findings import warn
from fx_onnx.messages.message_ids import MessageId
from fx_onnx.onnx_model import metadata
from fx_onnx.onnx_model.schemas import check_meaning
from fx_onnx.translation.emitter import Emitter


@translates("onnx::RotaryEmbedding", since=23)
def onnx_rotary_embedding(
    op: Emitter,
    x: Value,
    cos_cache: Value,
    sin_cache: Value,
    position_ids: Value | None = None,
    *,
    interleaved: bool = False,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Value:
    """Emits RotaryEmbedding: pairs of features are rotated by an angle that grows with the position."""
    return op.RotaryEmbedding(
        x,
        cos_cache,
        sin_cache,
        position_ids,
        interleaved=1 if interleaved else None,
        num_heads=num_heads or None,
        rotary_embedding_dim=rotary_embedding_dim or None,
    )


@translates("onnx::Attention", since=23)
def onnx_attention(
    op: Emitter,
    Q: Value,
    K: Value,
    V: Value,
    attn_mask: Value | None = None,
    past_key: Value | None = None,
    past_value: Value | None = None,
    *,
    is_causal: bool = False,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int | None = None,
) -> Sequence[Value]:
    """Emits Attention: softmax(softcap(scale * Q @ Kᵀ) + mask) @ V.

    The results are the output, the keys and the values with the past ones in front, and one stage of Q @ Kᵀ. The call
    stays the operator that it names. torch's eager form applies softcap after the mask, and starts a causal mask at the
    first key instead of after the past keys.
    """
    masked = attn_mask is not None or is_causal
    reordered = sum((masked, bool(softcap), qk_matmul_output_mode == 1)) > 1
    if reordered or (is_causal and past_key is not None):
        warn(
            "torch.onnx.ops.attention computes something else in eager mode than the Attention that the model calls: "
            "ONNX applies softcap before the mask, and a causal mask after the past keys.",
            MessageId.RESULTS_DIFFER,
        )
    results: Sequence[Value] = op.Attention(
        Q,
        K,
        V,
        attn_mask,
        past_key,
        past_value,
        is_causal=1 if is_causal else None,
        kv_num_heads=kv_num_heads or None,
        q_num_heads=q_num_heads or None,
        qk_matmul_output_mode=qk_matmul_output_mode or None,
        scale=scale,
        softcap=softcap or None,
        softmax_precision=softmax_precision,
        outputs=4,
    )
    node = results[0].producer()
    if node is not None:
        node.meta[metadata.EXPLICIT] = True
    return results


@translates("onnx_symbolic::_symbolic")
def onnx_symbolic(op: Emitter, inputs: Sequence[Value | None], op_type: str, onnx_dtype: int, **options: Any) -> Value:
    """Emits any ONNX operator with one result."""
    (result,) = onnx_symbolic_multi_out(op, inputs, op_type, [onnx_dtype], **options)
    return result


@translates("onnx_symbolic::_symbolic_multi_out")
def onnx_symbolic_multi_out(
    op: Emitter,
    inputs: Sequence[Value | None],
    op_type: str,
    onnx_dtypes: Sequence[int],
    *,
    metadata_props_keys: Sequence[str] = (),
    metadata_props_values: Sequence[str] = (),
    domain: str = "",
    version: int | None = None,
    **attributes: Any,
) -> Sequence[Value]:
    """Emits any ONNX operator; its results have the declared shapes and dtypes, also those of 4 bits.

    Raises:
        TypeError: the ONNX operator has another meaning in the model's opset than in ``version``, or no result.
    """
    if not domain and version is not None:
        check_meaning(op_type, version, op.opset)
    count = len(onnx_dtypes)
    if not count:
        raise TypeError(f"an ONNX operator has at least one result, and {op_type} is declared with none")
    emitted = op.emit(op_type, *inputs, domain=domain, version=version, outputs=count, **_decoded(**attributes))
    results: list[Value] = [emitted] if count == 1 else list(emitted)
    for result, dtype in zip(results, map(DataType, onnx_dtypes), strict=True):
        if dtype.bitwidth < 8:  # torch computes with no such tensors, so the fake result has another dtype
            result.meta[metadata.DECLARED_DTYPE] = dtype
    node = results[0].producer()
    if node is not None:
        node.metadata_props.update(zip(metadata_props_keys, metadata_props_values, strict=True))
    return results


def _decoded(
    *,
    attr_keys: Sequence[str],
    attr_types: Sequence[str],
    attr_pos: Sequence[Sequence[int]],
    attr_ints: Sequence[int],
    attr_floats: Sequence[float],
    attr_strs: Sequence[str],
    **_: Any,
) -> Mapping[str, Any]:
    """Returns the attributes, which torch stores in one list for each type; ``attr_pos`` has their starts and ends."""
    pools: dict[str, Sequence[Any]] = {"i": attr_ints, "f": attr_floats, "s": attr_strs}
    decoded: dict[str, Any] = {}
    for key, kind, (begin, end) in zip(attr_keys, attr_types, attr_pos, strict=True):
        values = list(pools[kind[0]][begin:end])
        decoded[key] = values if len(kind) > 1 else values[0]
    return decoded
