"""What the capture and the translation of the models of single libraries need: transformers, torchvision, fastai."""
