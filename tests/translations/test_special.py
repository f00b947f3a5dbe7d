"""Orthogonal polynomials, and the special functions that are decomposed."""

import torch

from fx_onnx.decompositions.special import polynomial
from fx_onnx.translations.special import _FAMILIES
from tests.harness import Case, b8, cases, check, f32, f64, i64

aten = torch.ops.aten
DEGREES = (0.0, 1.0, 2.0, 5.5, -1.0, 9.0)


@cases(
    [
        *(Case(family.default, f32(2, 3), f32(6, 1, 1, values=DEGREES)) for family in _FAMILIES),
        *(Case(family.n_scalar, f64(5), 4) for family in _FAMILIES),
        Case(aten.special_legendre_polynomial_p.x_scalar, 0.5, i64(4, low=0)),
        Case(aten.special_hermite_polynomial_h.default, f32(0, 3), f32(3)),
        Case(aten.special_hermite_polynomial_he.default, f32(2, 3), f32(0, 1, 1)),
        Case(aten.special_laguerre_polynomial_l.default, f32(), f32()),
    ]
)
def test_polynomials(case: Case) -> None:
    check(case)


@cases(
    [
        Case(aten.erfc.default, f32(2, 3)),
        Case(aten.erfc.default, b8(3)),
        Case(aten.erfinv.default, f32(2, 3, low=-0.99, high=0.99)),
        Case(aten.special_ndtri.default, f32(2, 3, low=0.01, high=0.99)),
        Case(aten.special_log_ndtr.default, f32(2, 3, low=-9.0)),
        Case(aten.lgamma.default, f32(2, 3, low=-5.3, high=9.0)),
        Case(aten.digamma.default, f32(2, 3, low=-5.3, high=9.0)),
        Case(aten.polygamma.default, 2, f32(2, 3, low=0.2, high=9.0)),
        Case(aten.special_zeta.default, f32(2, 3, low=1.2, high=5.0), f32(3, low=0.5)),
        Case(aten.igamma.default, f32(2, 3, low=0.1, high=9.0), f32(3, low=0.1, high=9.0)),
        Case(aten.i0.default, i64(3)),
        Case(aten.special_bessel_y0.default, f32(2, 3, low=0.1, high=30.0)),
        Case(aten.special_bessel_j1.default, f32(40, low=-18.0, high=18.0)),
        Case(aten.special_modified_bessel_k1.default, f32(40, low=0.1, high=18.0)),
        Case(aten.i0.default, f32(40, low=0.1, high=18.0)),
        Case(aten.special_airy_ai.default, f32(20, 3, low=-12.0, high=9.0)),
    ]
)
def test_functions(case: Case) -> None:
    check(case)


@cases(
    [
        Case(polynomial, f32(2, 3), [0.5, 0.0, -2.0, 1.0]),
        Case(polynomial, f64(2, 3), [3.0, 2.0], emits=("Mul", "Add")),
        Case(polynomial, f32(2, 3), [3.0]),
    ]
)
def test_polynomials_with_constant_coefficients(case: Case) -> None:
    check(case)
