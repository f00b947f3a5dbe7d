"""Matrix products, and the linear algebra that is decomposed."""

import pytest
import torch

import fx_onnx
from tests.compare import assert_close
from tests.harness import Case, c64, cases, check, f16, f32, f64, i32, i64, u8
from tests.modules import FunctionModule

aten = torch.ops.aten


@cases(
    [
        Case(aten.linear.default, f32(2, 3), f32(4, 3), f32(4), emits=["Gemm"]),
        Case(aten.linear.default, f32(2, 3), f32(4, 3), emits=["Gemm"]),
        Case(aten.linear.default, f32(2, 5, 3), f32(4, 3), f32(4), emits=["Transpose", "MatMul", "Add"]),
        Case(aten.linear.default, f32(2, 5, 3), f32(4, 3), emits=["Transpose", "MatMul"]),
        Case(aten.linear.default, f32(3), f32(4, 3), f32(4)),
        Case(aten.linear.default, f32(2, 3), f32(3)),
        Case(aten.linear.default, i64(2, 3), i64(4, 3), i64(4)),
        Case(aten.linear.default, f64(2, 3), f64(4, 3), f64(4)),
        Case(aten.linear.default, f16(2, 3), f16(4, 3), f16(4)),
        Case(aten.linear.default, f32(0, 3), f32(4, 3), f32(4)),
        Case(aten.linear.default, f32(2, 0), f32(4, 0), f32(4)),
    ]
)
def test_linear(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.matmul.default, f32(2, 3), f32(3, 4), emits=["MatMul"]),
        Case(aten.matmul.default, f32(5, 2, 3), f32(3, 4), emits=["MatMul"]),
        Case(aten.matmul.default, f32(5, 1, 2, 3), f32(6, 3, 4), emits=["MatMul"]),
        Case(aten.matmul.default, f32(3), f32(3), emits=["MatMul"]),
        Case(aten.matmul.default, f32(3), f32(3, 4), emits=["MatMul"]),
        Case(aten.matmul.default, f32(5, 2, 3), f32(3), emits=["Unsqueeze", "MatMul", "Squeeze"]),
        Case(aten.matmul.default, f32(3), f32(5, 3, 4), emits=["MatMul"]),
        Case(aten.matmul.default, i64(2, 3), i64(3, 4), emits=["MatMul"]),
        Case(aten.matmul.default, u8(2, 3), u8(3, 4), emits=["Cast", "Cast", "MatMul", "Cast"]),
        Case(aten.matmul.default, f16(2, 3), f16(3, 4)),
        Case(aten.matmul.default, f32(0, 3), f32(3, 4)),
        Case(aten.matmul.default, f32(2, 0), f32(0, 4)),
        Case(aten.matmul.default, f32(2, 3, 0), f32(2, 0, 4), emits=["Expand"]),
        Case(aten.mm.default, f32(2, 3), f32(3, 4), emits=["MatMul"]),
        Case(aten.bmm.default, f32(5, 2, 3), f32(5, 3, 4), emits=["MatMul"]),
        Case(aten.mv.default, f32(2, 3), f32(3), emits=["Unsqueeze", "MatMul", "Squeeze"]),
        Case(aten.dot.default, f32(3), f32(3), emits=["MatMul"]),
        Case(aten.vdot.default, f32(3), f32(3), emits=["MatMul"]),
        Case(torch.outer, f32(3), f32(4)),
        Case(torch.outer, i64(3), f32(4)),
        Case(torch.chain_matmul, f32(2, 3), f32(3, 4), f32(4, 5)),
        Case(torch.linalg.multi_dot, [f32(2, 3), f32(3, 4), f32(4, 5)], emits=["MatMul", "MatMul"], dynamic=False),
        Case(torch.kron, f32(2, 3), f32(4, 5)),
        Case(torch.cross, f32(4, 3), f32(4, 3), dynamic=False),
        Case(torch.bilinear, f32(2, 3), f32(2, 4), f32(5, 3, 4), f32(5)),
        Case(torch.tensordot, f32(2, 3, 4), f32(3, 4, 5), 2),
    ]
)
def test_products(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.addmm.default, f32(4), f32(2, 3), f32(3, 4), emits=["Gemm"]),
        Case(aten.addmm.default, f32(2, 4), f32(2, 3), f32(3, 4), beta=0.5, alpha=2, emits=["Gemm"]),
        Case(aten.addmm.default, f32(4, values=(float("nan"),)), f32(2, 3), f32(3, 4), beta=0, emits=["Gemm"]),
        Case(aten.addmm.default, f32(), f32(2, 3), f32(3, 4), emits=["Gemm"]),
        Case(aten.addmm.default, f32(2, 1), f32(2, 3), f32(3, 4), emits=["Gemm"]),
        Case(aten.addmm.default, f64(4), f64(2, 3), f64(3, 4), beta=0.1, emits=["Mul", "MatMul", "Add"]),
        Case(aten.addmm.default, i64(4), i64(2, 3), i64(3, 4), alpha=2, emits=["MatMul", "Mul", "Add"]),
        Case(
            aten.addmv.default,
            f32(2),
            f32(2, 3),
            f32(3),
            alpha=2,
            emits=["Unsqueeze", "MatMul", "Squeeze", "Mul", "Add"],
        ),
        Case(aten.addr.default, f32(2, 3), f32(2), f32(3), beta=0.5),
        Case(aten.baddbmm.default, f32(5, 2, 4), f32(5, 2, 3), f32(5, 3, 4), emits=["MatMul", "Add"]),
        Case(aten.baddbmm.default, f32(5, 2, 4), f32(5, 2, 3), f32(5, 3, 4), beta=0, alpha=0.125),
        Case(aten.baddbmm.default, i32(4), i32(5, 2, 3), i32(5, 3, 4), beta=3, alpha=2),
        Case(aten.addbmm.default, f32(2, 4), f32(5, 2, 3), f32(5, 3, 4), beta=0.5, alpha=2),
        Case(aten.addbmm.default, i32(2, 4), i32(5, 2, 3), i32(5, 3, 4)),
    ]
)
def test_added_products(case: Case) -> None:
    check(case)


@cases(
    [
        Case(torch.einsum, "bij,bjk->bik", f32(5, 2, 3), f32(5, 3, 4), emits=["Einsum"]),
        Case(torch.einsum, "bij, bjk", f32(5, 2, 3), f32(5, 3, 4), emits=["Einsum"]),
        Case(torch.einsum, "ii->i", f32(3, 3)),
        Case(torch.einsum, "i,j->ij", i64(3), f32(4)),
        Case(torch.einsum, "...ij,...jk", f32(5, 2, 3), f32(3, 4)),
        Case(torch.einsum, "aB,Bc", f32(2, 3), f32(3, 4)),
        Case(torch.einsum, "i,j->ij", f32(2), f32(3)),
        Case(torch.einsum, "ij->", i64(2, 3)),
        Case(torch.einsum, "ij,ij->ij", f32(1, 3), f32(2, 3)),
        Case(torch.einsum, "...ij,...jk", f32(1, 2, 3), f32(5, 3, 4)),
    ]
)
def test_einsum(case: Case) -> None:
    check(case)


def _positive(A: torch.Tensor) -> torch.Tensor:
    return A @ A.mH + torch.eye(A.size(-1), dtype=A.dtype)


def _solved(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return torch.linalg.solve(_positive(A), B)


def _inverted(A: torch.Tensor) -> torch.Tensor:
    return torch.linalg.inv(_positive(A))


def _cholesky(A: torch.Tensor) -> torch.Tensor:
    return torch.linalg.cholesky(_positive(A))


def _solved_from_factors(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return torch.linalg.lu_solve(*torch.linalg.lu_factor(_positive(A)), B, adjoint=True)


def _eigen(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, vectors = torch.linalg.eigh(A)
    return values, (vectors * values.unsqueeze(-2)) @ vectors.mH


def _singular(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    U, S, Vh = torch.linalg.svd(A, full_matrices=False)
    return S, (U * S.unsqueeze(-2)) @ Vh


def _eigen_nonsymmetric(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    values, vectors = torch.linalg.eig(A)
    return values, A.to(vectors.dtype) @ vectors - vectors * values.unsqueeze(-2)


def _indefinite(A: torch.Tensor, B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    LD, pivots = torch.linalg.ldl_factor(A + A.mT)
    return LD, torch.linalg.ldl_solve(LD, pivots, B)


@cases(
    [  # unrolled steps, steps in a loop, and dynamic sizes
        Case(_inverted, f32(3, 3)),
        Case(_inverted, f32(2, 11, 11)),
        Case(_inverted, c64(3, 3)),
        Case(_solved, f32(2, 4, 4), f32(2, 4, 2)),
        Case(_solved_from_factors, c64(3, 3), c64(3, 2)),
        Case(torch.linalg.det, f64(5, 3, 3)),
        Case(torch.linalg.cond, f32(2, 4, 4), "fro", dynamic=False),
        Case(torch.linalg.cond, f32(4, 4), -1),
        Case(torch.linalg.lu, f32(4, 3)),
        Case(torch.linalg.lu, c64(3, 4)),
        Case(torch.linalg.qr, f32(2, 4, 3)),
        Case(torch.linalg.qr, c64(3, 3), "complete"),
        Case(_cholesky, f32(9, 9)),
        Case(_cholesky, c64(3, 3)),
        Case(_eigen, f32(2, 5, 5)),
        Case(_eigen, c64(4, 4)),
        Case(_eigen_nonsymmetric, f32(3, 3)),
        Case(_eigen_nonsymmetric, c64(3, 3)),
        Case(_singular, f32(5, 3)),
        Case(_singular, c64(2, 4)),
        Case(torch.linalg.pinv, f32(3, 5)),
        Case(_indefinite, f32(2, 4, 4), f32(2, 4, 2)),
        Case(_indefinite, c64(3, 3), c64(3, 2)),
        Case(torch.linalg.matrix_exp, f32(3, 3)),
    ]
)
def test_algorithms(case: Case) -> None:
    check(case)


_EQUATIONS = {
    "bhqd,bhkd->bhqk": ["Transpose", "MatMul"], "bhqk,bhkd->bqhd": ["MatMul", "Transpose"],
    "ij,jk->ki": ["MatMul", "Transpose"], "bij,bj->bi": ["Unsqueeze", "MatMul", "Squeeze"],
    "nbi,nbj->bij": ["Transpose", "Transpose", "Unsqueeze", "Unsqueeze", "MatMul", "Squeeze"],
    "...ij,...jk": ["MatMul"], "n,n->": ["Unsqueeze", "Unsqueeze", "MatMul", "Squeeze"],
    "nij,mij->nm": None, "n,m->nm": None, "ij->ji": ["Einsum"],
}  # fmt: skip


@pytest.mark.parametrize("equation", _EQUATIONS)
def test_einsum_of_dynamic_sizes(equation: str) -> None:
    sizes = {"b": 3, "h": 2, "q": 4, "k": 5, "d": 6, "i": 3, "j": 4, "n": 5, "m": 7}
    operands = equation.partition("->")[0].replace("...", "bh").split(",")

    def tensors(**others: int) -> tuple[torch.Tensor, ...]:
        return tuple(torch.randn([(sizes | others)[label] for label in labels]) for labels in operands)

    model = FunctionModule(lambda *given: torch.einsum(equation, *given))
    shapes = tuple(dict.fromkeys(range(len(labels)), torch.export.Dim.AUTO) for labels in operands)
    program = fx_onnx.export(model, tensors(), dynamic_shapes=(shapes,))
    assert _EQUATIONS[equation] in (None, [node.op_type for node in program.model.graph])
    for given in (tensors(), tensors(b=1, n=2), tensors(q=7, i=9), *(tensors(**{label: 0}) for label in "bnqi")):
        assert_close(program(*given)[0], model(*given))
