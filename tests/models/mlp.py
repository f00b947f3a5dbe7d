"""A multilayer perceptron with inputs in a tensor, a dict and a list."""

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """A layer for each of three feature vectors (batch, features), then one head over all of them."""

    def __init__(self, features: int = 8, hidden: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.from_tensor = nn.Linear(features, hidden)
        self.from_dict = nn.Linear(features, hidden)
        self.from_list = nn.Linear(features, hidden)
        self.head = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes))

    def forward(self, tensor_input: Tensor, input_dict: dict[str, Tensor], input_list: list[Tensor]) -> Tensor:
        hidden = torch.cat(
            [
                torch.relu(self.from_tensor(tensor_input)),
                torch.tanh(self.from_dict(input_dict["tensor_x"])),
                torch.sigmoid(self.from_list(input_list[0])),
            ],
            dim=-1,
        )
        return self.head(hidden)
