"""Facts of two exports for the tests of the reports: one that failed, and one with everything."""

from fx_onnx.messages.message_ids import Finding, MessageId
from fx_onnx.program.export_facts import Facts, ModelSummary, PassOutcome, StageOutcome, TranslatedOperator
from fx_onnx.sizes.dim_table import DimSummary, DimTable
from fx_onnx.verification.verify import Difference, Verification

VERSIONS = {"torch": "2.13.0", "onnx": "1.23.0"}

FAILED = Facts(
    stages=(StageOutcome("capture", 1.25, True), StageOutcome("decompose", 0.5, False), StageOutcome("translate")),
    versions=VERSIONS,
    error="Traceback ...\nUnsupportedOperatorError: ```nested``` fence",
    message="No operator `foo`.",
    exported_program="ExportedProgram: x",
    operators_before={"aten.foo.default": 2},
)

GOOD = Difference("y", "float32", (2, 3), 1.5e-6, 2.5e-7, 0, 1e-4, "")
BAD = Difference("z|w", "int64", (), 1.0, 0.5, 0, 0.0, "the largest difference is 1", "layer.0")

COMPLETE = Facts(
    stages=(
        StageOutcome("capture", 1.0, True),
        StageOutcome("verify", note="skipped: verify=False"),
        StageOutcome("save", 0.1, True),
    ),
    versions=VERSIONS,
    call="fx_onnx.export(\n    Net(...),\n)",
    model_name="Net",
    files={"m.onnx": 12_000, "m.onnx.data": 4_200_000_000},
    exported_program="ExportedProgram: y",
    operators_before={"aten.linear.default": 1},
    operators_after={"aten.addmm.default": 3},
    translated_operators=(TranslatedOperator("aten.addmm.default", "aten_addmm", "translations/linalg.py:12", 3),),
    model=ModelSummary(
        {"": 18, "local": 1},
        ["x: float[b, 8]"],
        ["y: float[b, 2]"],
        {"Add": 1, "Gemm": 3},
        1234,
        1534,
        {"float": 100, "int8": 1134},
    ),
    dims=DimTable(
        (
            DimSummary("b", ("x.shape[0]",)),
            DimSummary("s", ("x.shape[1]",), "fixed at 8", "(model.py:3: x.view(-1, 8))"),
        )
    ),
    findings=(Finding(MessageId.STATIC_DIM, "Axis 1 is static."),),
    passes=(
        PassOutcome("fuse_gelu", "optimize", 2, 14, 6, "optimize={'fuse_gelu'}"),
        PassOutcome("insert_casts", "legalize", 1, 6, 7),
    ),
    verification=Verification((GOOD, BAD)),
    module_seconds={"": 1.0, "enc.0": 0.25},
    profile="100 ms total",
)
