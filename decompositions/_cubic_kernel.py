"""The two pieces of the cubic convolution kernel, for resizing and for grid sampling.

Source: Keys, Cubic Convolution Interpolation for Digital Image Processing, 1981.
"""

from torch import Tensor


def cubic_to_1(x: Tensor, a: float) -> Tensor:
    """Returns the kernel with the parameter ``a`` at distances from 0 to 1."""
    return ((a + 2) * x - (a + 3)) * x * x + 1


def cubic_from_1_to_2(x: Tensor, a: float) -> Tensor:
    """Returns the kernel with the parameter ``a`` at distances from 1 to 2; it is 0 at larger distances."""
    return ((x - 5) * x + 8) * x * a - 4 * a
