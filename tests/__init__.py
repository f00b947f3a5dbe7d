import importlib.util

if importlib.util.find_spec("torchvision") is not None:
    # before transformers looks for it: a torchvision whose library does not load would break its models
    import tests.torchvision_cpu  # noqa: F401
