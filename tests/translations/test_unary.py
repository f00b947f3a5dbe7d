"""Functions of one number, and related functions of two."""

import math

import torch

from tests.harness import Case, b8, cases, check, f16, f32, f64, i64, u8

aten = torch.ops.aten
SPECIAL = (0.0, -0.0, 0.5, 1.5, -1.5, 2.5, -0.3, math.inf, -math.inf, math.nan)


@cases(
    [
        Case(aten.exp.default, f32(10, values=SPECIAL), emits=["Exp"]),
        Case(aten.exp.default, i64(2, 3), emits=["Cast", "Exp"]),
        Case(aten.exp.default, b8(3), emits=["Cast", "Exp"]),
        Case(aten.log.default, f32(10, values=SPECIAL), emits=["Log"]),
        Case(aten.sqrt.default, f64(2, 3, low=0.0), emits=["Sqrt"]),
        Case(aten.reciprocal.default, f32(10, values=SPECIAL), emits=["Reciprocal"]),
        Case(aten.sigmoid.default, f16(2, 3), emits=["Sigmoid"]),
        Case(aten.tanh.default, f32(0, 3), emits=["Tanh"]),
        Case(aten.erf.default, f32(10, values=SPECIAL), emits=["Erf"]),
        Case(aten.special_expit.default, f32(), emits=["Sigmoid"]),
        *(
            Case(function, f32(2, 3, low=-0.9, high=0.9), emits=[function.name()[6:].capitalize()])
            for function in (aten.sin.default, aten.cos.default, aten.tan.default, aten.asin.default,
                             aten.acos.default, aten.atan.default, aten.sinh.default, aten.cosh.default,
                             aten.asinh.default, aten.atanh.default)
        ),
        Case(aten.acosh.default, f32(2, 3, low=1.0), emits=["Acosh"]),
    ]
)  # fmt: skip
def test_functions(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.abs.default, f32(10, values=SPECIAL), emits=["Abs"]),
        Case(aten.abs.default, i64(2, 3), emits=["Abs"]),
        Case(aten.neg.default, f32(2, 3), emits=["Neg"]),
        Case(aten.neg.default, u8(2, 3), emits=["Cast", "Neg", "Cast"]),
        Case(aten.sign.default, f32(6, values=SPECIAL[:6]), emits=["Sign"]),
        Case(aten.sign.default, b8(2, 3)),
        Case(aten.sgn.default, i64(2, 3), emits=["Greater", "Less", "Cast", "Cast", "Sub"]),
        Case(aten.floor.default, f32(10, values=SPECIAL), emits=["Floor"]),
        Case(aten.floor.default, i64(2, 3), emits=["Identity"]),
        Case(aten.ceil.default, f32(10, values=SPECIAL), emits=["Ceil"]),
        Case(aten.round.default, f32(10, values=SPECIAL), emits=["Round"]),
        Case(aten.round.decimals, f32(2, 3), decimals=1, emits=["Mul", "Round", "Div"]),
        Case(aten.round.decimals, f32(2, 3, low=-900, high=900), decimals=-2, emits=["Div", "Round", "Mul"]),
        Case(aten.trunc.default, f32(10, values=SPECIAL), emits=["Less", "Ceil", "Floor", "Where"]),
        Case(aten.frac.default, f32(2, 3)),
    ]
)
def test_roundings(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.exp2.default, f32(10, values=SPECIAL), emits=["Pow"]),
        Case(aten.log2.default, f32(4, values=(8.0, 32.0, 1024.0, 0.0)), tolerance=0.0, emits=["Log", "Div"]),
        Case(aten.log10.default, f32(2, 3, low=0.1), emits=["Log", "Div"]),
        Case(aten.expm1.default, f32(10, values=SPECIAL)),
        Case(aten.log1p.default, f32(11, values=(*SPECIAL, -1.0))),
        Case(aten.log1p.default, i64(3, low=0)),
        Case(aten.logit.default, f32(2, 3, low=0.1, high=0.9), emits=["Sub", "Div", "Log"]),
        Case(aten.logit.default, f32(2, 3), eps=1e-3, emits=["Clip", "Sub", "Div", "Log"]),
        Case(aten.logaddexp.default, f32(10, 1, values=SPECIAL), f32(10, values=SPECIAL)),
        Case(aten.logaddexp2.default, f32(10, 1, values=SPECIAL), f32(10, values=SPECIAL)),
        Case(aten.ldexp.Tensor, f32(2, 3), i64(3), emits=["Cast", "Pow", "Mul"]),
        Case(aten.frexp.Tensor, f32(10, values=SPECIAL)),
        Case(aten.xlogy.Tensor, f32(10, 1, values=SPECIAL), f32(10, values=SPECIAL)),
        Case(aten.xlogy.Scalar_Self, 2, f32(10, values=SPECIAL)),
        Case(aten.special_xlog1py.default, f32(10, 1, values=SPECIAL), f32(10, values=SPECIAL)),
        Case(aten.special_entr.default, f32(10, values=SPECIAL)),
        Case(aten.sinc.default, f32(7, values=SPECIAL[:7])),
        Case(aten.deg2rad.default, f32(2, 3), emits=["Mul"]),
        Case(aten.rad2deg.default, i64(2, 3), emits=["Cast", "Mul"]),
        Case(aten.angle.default, f32(10, values=SPECIAL)),
        Case(aten.nan_to_num.default, f32(10, values=SPECIAL), emits=["IsNaN", "Where", "Clip"]),
        Case(aten.nan_to_num.default, f32(10, values=SPECIAL), 1.0, 2.0),
        Case(aten.nan_to_num.default, i64(3)),
    ]
)
def test_functions_of_several_nodes(case: Case) -> None:
    check(case)
