"""The rooms, and the one table by which the rest of the package finds what is in them.

A room is a folder that can be deleted: everything else is still right. The core is all other folders. It imports no
room. It asks the table for what it needs, and the module is imported then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fx_onnx.extension_points.interrupts import interrupts_after_imports
from fx_onnx.messages.errors import MissingPackageError

__all__ = ["ROOMS", "TABLE", "find", "is_installed", "module_of"]

ROOMS: Mapping[str, str] = {
    "applications": "exports the folders that applications load",
    "backends": "exports to opsets below 18 and for other runtimes than ONNX Runtime's CPU provider",
    "cli": "is the command fx-onnx",
    "compat": "has torch.onnx's older interface: symbolic functions, older keywords, and modules as functions",
    "complex_tensors": "exports complex tensors",
    "custom_translations": "exports with the translations of users, of plug-ins and of symbolic functions",
    "data_branches": "exports Python branches on data as If",
    "faster_tracing": "makes torch.export faster",
    "gradients": "exports forwards that compute gradients",
    "integrations": "lets other programs export through fx_onnx",
    "libraries": "exports the models of transformers and torchvision that need replacements in these libraries",
    "packed_sequences": "exports an RNN, LSTM or GRU of packed sequences",
    "quantized_weights": "exports weights of 8, 4 and 2 bits",
    "references": "saves models that read their weights from the files of a checkpoint",
    "report": "writes reports",
    "saved_programs": "exports models of files",
    "torchscript": "exports TorchScript modules and functions",
    "verification": "compares programs with their modules",
}
"""The folder of each room, and what it does, for the message where the folder is missing."""

_CACHES, _MASKS = "transformers.cache_utils", "transformers.masking_utils"
_DETECTION, _MODELS = "torchvision.models.detection", "transformers.models"
_INTEGRATIONS = "transformers.integrations"
_FASTSPEECH = f"{_MODELS}.fastspeech2_conformer.modeling_fastspeech2_conformer"
_PATCHED: Mapping[str, Sequence[str]] = {
    "fx_onnx.libraries.torchvision:PATCHES": (
        "torchvision.ops.boxes:batched_nms",
        f"{_DETECTION}._utils:BoxCoder.decode",
        f"{_DETECTION}._utils:_topk_min",
        f"{_DETECTION}.roi_heads:heatmaps_to_keypoints",
        f"{_DETECTION}.roi_heads:paste_masks_in_image",
        f"{_DETECTION}.transform:_resize_image_and_masks",
        f"{_DETECTION}.transform:GeneralizedRCNNTransform.batch_images",
        "torchvision.ops.poolers:_setup_scales",
        "fastai.layers:ToTensorBase.forward",
    ),
    "fx_onnx.libraries.transformers:PATCHES": (
        f"{_CACHES}:DynamicSlidingWindowLayer.update",
        f"{_CACHES}:DynamicSlidingWindowLayer.get_mask_sizes",
        f"{_CACHES}:StaticSlidingWindowLayer.update",
        f"{_CACHES}:StaticSlidingWindowLayer.get_mask_sizes",
        f"{_MASKS}:_ignore_causal_mask_sdpa",
        f"{_MASKS}:_ignore_bidirectional_mask_sdpa",
        "transformers.utils.deprecation:is_torchdynamo_compiling",
        f"{_MASKS}:prepare_padding_mask",
        f"{_MASKS}:create_recurrent_attention_mask",
        f"{_MODELS}.openai_privacy_filter.modeling_openai_privacy_filter:OpenAIPrivacyFilterExperts.forward",
        f"{_MODELS}.longcat_flash.modeling_longcat_flash:LongcatFlashExperts.forward",
        f"{_MODELS}.encodec.modeling_encodec:EncodecConv1d.forward",
        f"{_FASTSPEECH}:length_regulator",
        f"{_FASTSPEECH}:FastSpeech2ConformerRelPositionalEncoding.forward",
        f"{_FASTSPEECH}:FastSpeech2ConformerAttention.shift_relative_position_tensor",
        f"{_MODELS}.mobilenet_v1.modeling_mobilenet_v1:apply_tf_padding",
        f"{_MODELS}.mobilenet_v2.modeling_mobilenet_v2:apply_tf_padding",
    ),
    "fx_onnx.libraries.recurrent_functions:PATCHES": (
        f"{_CACHES}:Cache.get_recurrent_state",
        f"{_MODELS}.minimax.modeling_minimax:MiniMaxLightningAttention.forward",
        f"{_CACHES}:LinearAttentionLayer.update_conv_state",
        f"{_MODELS}.rwkv.modeling_rwkv:RwkvSelfAttention.extract_key_value",
        f"{_MODELS}.rwkv.modeling_rwkv:RwkvFeedForward.forward",
    ),
    "fx_onnx.quantized_weights.quantized_layers:PATCHES": (
        f"{_INTEGRATIONS}.finegrained_fp8:FP8Linear.forward",
        f"{_INTEGRATIONS}.finegrained_fp8:FP8Embedding.forward",
        f"{_INTEGRATIONS}.finegrained_fp8:FP8Experts.forward",
        f"{_INTEGRATIONS}.bitnet:BitLinear.forward",
        f"{_INTEGRATIONS}.gguf.utils:GgufLinear.forward",
        f"{_INTEGRATIONS}.gguf.utils:GgufEmbedding.forward",
        "hqq.core.quantize:HQQLinear.forward",
        "bitsandbytes.nn.modules:Linear4bit.forward",
        "bitsandbytes.nn.modules:Linear8bitLt.forward",
        "optimum.quanto.nn.qlinear:QLinear.forward",
        "modelopt.torch.quantization.nn.modules.quant_linear:RealQuantLinear.forward",
    ),
    "fx_onnx.quantized_weights.torchao_tensors:PATCHES": (
        "torchao.prototype.mx_formats.nvfp4_tensor:NVFP4Tensor.__torch_function__",
    ),
    "fx_onnx.quantized_weights.compressed_layers:PATCHES": (
        "compressed_tensors.compressors:ModelCompressor.decompress_model",
    ),
}
"""The functions of libraries that are replaced during a capture. A room is imported when one of them is called."""

_RECURRENCES = (
    "torch_chunk_gated_delta_rule",
    "torch_recurrent_gated_delta_rule",
    "chunk_kimi_delta_attention",
    "recurrent_kimi_delta_attention",
    "mamba2_chunk_scan",
    "mamba2_selective_state_update",
    "mamba_selective_scan",
    "mamba_selective_state_update",
    "rwkv_linear_attention_cpu",
    "causal_conv1d_fn",
    "causal_conv1d_update",
)
"""The recurrences that files of models in transformers define, each its own copy."""

_TORCHAO = "fx_onnx.quantized_weights.torchao"
TABLE: Mapping[str, Mapping[str, str]] = {
    "fx_onnx": {
        "Difference": "fx_onnx.verification.tensor_comparison:Difference",
        "ExportableModule": "fx_onnx.compat.exportable_module:ExportableModule",
        "InputObserver": "fx_onnx.compat.input_observer:InputObserver",
        "JitScalarType": "fx_onnx.compat.jit_scalar_type:JitScalarType",
        "Lack": "fx_onnx.targets.target:Lack",
        "Layout": "fx_onnx.applications.layouts:Layout",
        "ONNXProgram": "fx_onnx.program.onnx_program:ONNXProgram",
        "OperatorExportTypes": "fx_onnx.requests.export_modes:OperatorExportTypes",
        "Support": "fx_onnx.targets.kernel_support:Support",
        "Target": "fx_onnx.targets.target:Target",
        "Task": "fx_onnx.applications.tasks:Task",
        "Quantized": "fx_onnx.quantized_weights.static_quantization:Quantized",
        "TensorProtoDataType": "torch.onnx:TensorProtoDataType",
        "TrainingMode": "fx_onnx.requests.export_modes:TrainingMode",
        "Verification": "fx_onnx.verification.verification_result:Verification",
        "disable_log": "fx_onnx.compat.log:disable_log",
        "enable_log": "fx_onnx.compat.log:enable_log",
        "export": "fx_onnx.export:export",
        "export_pretrained": "fx_onnx.applications.export_pretrained:export_pretrained",
        "export_to_pretty_string": "fx_onnx.compat.utils:export_to_pretty_string",
        "is_in_onnx_export": "fx_onnx.capture.export_flag:is_in_onnx_export",
        "is_onnx_log_enabled": "fx_onnx.compat.log:is_onnx_log_enabled",
        "optimize": "fx_onnx.passes.optimize:optimize",
        "producer_name": "fx_onnx.translation.translate:PRODUCER",
        "quantize": "fx_onnx.quantized_weights.static_quantization:quantize",
        "register_custom_op_symbolic": "fx_onnx.compat.utils:register_custom_op_symbolic",
        "replacing_torch_onnx": "fx_onnx.integrations.torch_onnx:replacing_torch_onnx",
        "rule": "fx_onnx.passes.rules:rule",
        "select_model_mode_for_export": "fx_onnx.compat.utils:select_model_mode_for_export",
        "text_generation_arguments": "fx_onnx.applications.text_generation:text_generation_arguments",
        "unconvertible_ops": "fx_onnx.compat.utils:unconvertible_ops",
        "unregister_custom_op_symbolic": "fx_onnx.compat.utils:unregister_custom_op_symbolic",
        "verification": "fx_onnx.verification",
        "verify": "fx_onnx.verification.verify:verify",
    },
    "modules": {
        "errors": "fx_onnx.compat.torch_errors",
        "operators": "torch.onnx.operators",
        "ops": "torch.onnx.ops",
        "symbolic_helper": "fx_onnx.compat.symbolic_helper",
        "testing": "fx_onnx.compat.testing",
        "utils": "fx_onnx.compat.utils",
        **{f"symbolic_opset{opset}": "fx_onnx.compat.symbolic_opsets" for opset in range(7, 21)},
    },
    "moved modules": {
        "pretrained": "fx_onnx.applications",
        "pretrained.layouts": "fx_onnx.applications.layouts",
        "pretrained.tasks": "fx_onnx.applications.tasks",
    },
    "fx_onnx.targets": {
        "onnxruntime": "fx_onnx.targets.onnxruntime:TARGET",
        "onnxruntime-genai": "fx_onnx.backends.onnxruntime_genai:TARGET",
        "onnxruntime-web": "fx_onnx.backends.onnxruntime_web:TARGET",
        "openvino": "fx_onnx.backends.openvino:TARGET",
        "reference": "fx_onnx.backends.reference:TARGET",
        "tract": "fx_onnx.backends.tract:TARGET",
        "mnn": "fx_onnx.backends.mnn:TARGET",
        "onnxruntime-cuda": "fx_onnx.backends.onnxruntime_cuda:TARGET",
        "tensorrt": "fx_onnx.backends.tensorrt:TARGET",
        "qnn": "fx_onnx.backends.qnn:TARGET",
        "coreml": "fx_onnx.backends.coreml:TARGET",
        "directml": "fx_onnx.backends.directml:TARGET",
        "webgpu": "fx_onnx.backends.webgpu:TARGET",
        "webnn": "fx_onnx.backends.webnn:TARGET",
        "onnxruntime-accuracy-level-4": "fx_onnx.targets.onnxruntime:ACCURACY_LEVEL_4",
        "onnxruntime-genai-accuracy-level-4": "fx_onnx.backends.onnxruntime_genai:ACCURACY_LEVEL_4",
    },
    "arguments": {
        "removed keywords": "fx_onnx.compat.removed_keywords:modern",
        "positional arguments": "fx_onnx.compat.removed_keywords:refuse_positional",
    },
    "capture": {
        "faster tracing": "fx_onnx.faster_tracing.exact_replacements:faster_tracing",
        "paths": "fx_onnx.data_branches.paths:capture_paths",
        "pack_padded_sequence": "fx_onnx.packed_sequences.sequences:pack_padded_sequence",
        "pad_packed_sequence": "fx_onnx.packed_sequences.sequences:pad_packed_sequence",
        "recurrent layers": "fx_onnx.packed_sequences.sequences:recurrent_forward",
        "fake quantizers": "fx_onnx.quantized_weights.fake_quantizers:freeze_fake_quantizers",
        "backward passes": "fx_onnx.gradients.backward_passes:record_backward",
        "grad_increment_nesting": "fx_onnx.gradients.transforms:nesting",
        "_jvp_with_argnums": "fx_onnx.gradients.transforms:jvp",
        "jacfwd": "fx_onnx.gradients.transforms:jacfwd",
        "hessian": "fx_onnx.gradients.transforms:hessian",
        "guards of a file": "fx_onnx.saved_programs.saved_guards:restore_guards",
    },
    "models": {
        "file": "fx_onnx.saved_programs.model_files:load_model",
        "TorchScript": "fx_onnx.torchscript.scripted_module:scripted_module",
        "TorchScript submodules": "fx_onnx.torchscript.scripted_module:interpreted_submodules",
        "mode of TorchScript": "fx_onnx.torchscript.scripted_module:reads_mode",
        "attributes of TorchScript": "fx_onnx.torchscript.script_private:script_attributes",
    },
    "patches": {target: row for row, targets in _PATCHED.items() for target in targets},
    "forwards": {"quantization_scheme": "fx_onnx.quantized_weights.compressed_layers:packed_forwards"},
    "redirected": {"modeling_ovis2": "fx_onnx.libraries.transformers:REDIRECTED"},
    "recurrences": dict.fromkeys(_RECURRENCES, "fx_onnx.libraries.recurrent_functions:recurrence_patches"),
    "operators": {
        f"fx_onnx::{name}": "fx_onnx.libraries.recurrences"
        for name in ("linear_attention", "causal_conv1d", "selective_scan", "rwkv")
    }
    | {f"fx_onnx::{name}": "fx_onnx.packed_sequences.sequences" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")}
    | {f"fx_onnx::{name}": "fx_onnx.data_branches.condition" for name in ("condition", "condition_of_sizes")}
    | {f"fx_onnx::{name}": "fx_onnx.quantized_weights.weight_translations" for name in ("stored", "dequantize")}
    | {f"torchao::{name}": f"{_TORCHAO}_operators" for name in ("quantize_affine", "dequantize_affine")},
    "decompositions": {
        f"torchvision::{name}": "fx_onnx.libraries.detection_decompositions"
        for name in ("roi_pool", "ps_roi_pool", "ps_roi_align", "deform_conv2d")
    }
    | {
        f"torchao::{name}": f"{_TORCHAO}_decompositions"
        for name in (
            "quantize_affine",
            "dequantize_affine",
            "choose_qparams_affine",
            "choose_scale_float8",
            "quantize_affine_float8_non_decomposed",
            "dequantize_affine_float8_non_decomposed",
        )
    },
    "translations": {
        "custom": "fx_onnx.custom_translations.export_translations:ExportTranslations",
        "plug-ins": "fx_onnx.custom_translations.user_translations:plugin_translations",
        "symbolic functions": "fx_onnx.compat.symbolic_functions:SymbolicFunction",
        "operator_export_type": "fx_onnx.compat.fallback_nodes:fallback",
        "float4 weight": "fx_onnx.quantized_weights.weight_translations:float4_weight",
        "is float4": "fx_onnx.quantized_weights.weight_translations:is_float4",
        "linear attention": "fx_onnx.libraries.recurrences:runtime_linear_attention",
        "causal convolution": "fx_onnx.libraries.recurrences:causal_conv1d",
    },
    "symbolic operators": {
        "trt::TRT_FP8QuantizeLinear": "fx_onnx.quantized_weights.tensorrt_operators:quantize_fp8",
        "trt::TRT_FP8DequantizeLinear": "fx_onnx.quantized_weights.tensorrt_operators:dequantize_fp8",
        "trt::DequantizeLinear": "fx_onnx.quantized_weights.tensorrt_operators:fake_quantize_int4",
    },
    "passes": {
        "fuse_dequantize_linear": "fx_onnx.quantized_weights.dequantized_weights:fuse_dequantize_linear",
        "fuse_unpacked_weights": "fx_onnx.quantized_weights.dequantized_weights:fuse_unpacked_weights",
        "gather_quantized_rows": "fx_onnx.quantized_weights.dequantized_weights:gather_quantized_rows",
        "legalize_signed_quantization": "fx_onnx.quantized_weights.unsigned_quantization:LEGALIZE_SIGNED_QUANTIZATION",
        "split_affine_weights": "fx_onnx.quantized_weights.affine_products:split_affine_weights",
        "fuse_matmul_nbits": "fx_onnx.quantized_weights.nbits_products:EXACT",
        "fuse_matmul_nbits with rounding": "fx_onnx.quantized_weights.nbits_products:ROUNDED",
    },
    "loading": {"packed": "fx_onnx.quantized_weights.packed_loading:load_packed"},
    "stages": {
        "merge_paths": "fx_onnx.data_branches.merge:merge_paths",
        "branch_on_data_sizes": "fx_onnx.data_branches.size_branches:branch_on_data_sizes",
        "unwrap_tensor_subclasses": "fx_onnx.quantized_weights.tensor_subclasses:unwrap_tensor_subclasses",
        "lower_complex": "fx_onnx.complex_tensors.complex_to_real:lower_complex",
        "convert_opset": "fx_onnx.backends.ladder:convert_opset",
        "modules_to_functions": "fx_onnx.compat.module_functions:modules_to_functions",
        "check": "fx_onnx.verification.verify:check_model",
        "verify": "fx_onnx.verification.verify:verify",
    },
    "program": {
        "save_genai": "fx_onnx.applications.genai.genai_folder:write_genai_folder",
        "weights_from": "fx_onnx.references.weight_references:referring",
        "report": "fx_onnx.report.markdown_report:write_report",
        "save_html": "fx_onnx.report.markdown_report:write_page",
        "notebook": "fx_onnx.report.html_report:notebook_head",
        "view": "fx_onnx.report.viewers:view",
    },
    "fx_onnx.verification": {
        "GraphInfo": "fx_onnx.compat.graph_info:GraphInfo",
        "OnnxBackend": "fx_onnx.compat.module_verification:OnnxBackend",
        "VerificationInfo": "fx_onnx.compat.module_verification:VerificationInfo",
        "VerificationOptions": "fx_onnx.compat.module_verification:VerificationOptions",
        "find_mismatch": "fx_onnx.compat.graph_info:find_mismatch",
        "verify": "fx_onnx.compat.module_verification:verify",
        "verify_onnx_program": "fx_onnx.compat.module_verification:verify_onnx_program",
    },
}
"""What is handled → where: a module, or ``module:name``. The group of targets has plug-ins too.

The group "forwards" has the attribute by which a library marks its layers, and what replaces their forwards.
The group "symbolic operators" has what a ``symbolic`` of a library emits, and its form in the standard.
The group "modules" has the modules of torch.onnx that are imported from fx_onnx. "moved modules" are those that the
documentation of version 0.2 named by another path; importing from them warns.
"""


def find(group: str, name: str) -> Any:
    """Returns what a row of the table names; its module is imported now.

    Raises:
        MissingPackageError: the folder of a room is missing.
    """
    return _found(TABLE[group][name])


@cache
def _found(path: str) -> Any:
    name, _, attribute = path.partition(":")
    module = module_of(name)
    return getattr(module, attribute) if attribute else module


def is_installed(room: str) -> bool:
    """Returns whether the folder of a room is there."""
    spec = find_spec(f"fx_onnx.{room}")
    return spec is not None and spec.origin is not None  # an empty folder has none


def module_of(name: str) -> Any:
    """Imports a module of a room.

    Raises:
        MissingPackageError: the folder of the room is missing.
    """
    try:
        with interrupts_after_imports():
            return import_module(name)
    except ModuleNotFoundError as error:
        package, _, inner = name.partition(".")
        room = inner.partition(".")[0]
        if room not in ROOMS or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise MissingPackageError(
            f"This installation of {package} has no folder {room}, which {ROOMS[room]}; install {package} again."
        ) from error
