"""AlexNet (Krizhevsky, 2014, the version with one tower). The defaults are the published sizes."""

from torch import Tensor, nn


class AlexNet(nn.Module):
    """Maps images (batch, 3, height, width), 224 x 224 in the paper, to logits (batch, classes)."""

    def __init__(self, width: int = 64, hidden: int = 4096, classes: int = 1000) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 11, stride=4, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(width, 3 * width, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
            nn.Conv2d(3 * width, 6 * width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(6 * width, 4 * width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * width, 4 * width, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2),
        )
        self.pool = nn.AdaptiveAvgPool2d((6, 6))
        self.classifier = nn.Sequential(
            nn.Dropout(0.5),
            nn.Linear(4 * width * 36, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Linear(hidden, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.pool(self.features(images)).flatten(1))
