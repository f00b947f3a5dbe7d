"""ExportedProgram → AtenProgram: the passes on the FX graph, before any ONNX node exists.

Each stage is one public function: ``lower_vmap``, ``lower_autocast``, ``functionalize``, ``branch_on_data_sizes``,
``unwrap_tensor_subclasses``, ``lower_flex_attention``, ``fold_constants``, ``lower_complex``, ``decompose``. No stage
imports another stage: shared code is in the other files and in ``tracing``.
"""
