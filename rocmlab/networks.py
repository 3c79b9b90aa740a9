"""ResNet-50, BERT-base and VGG16 with seeded random weights: what they are, their inputs, their work.

Speed does not depend on what the weights are, so nothing is fetched. ResNet and BERT come from transformers' own
configurations, VGG16 (Simonyan and Zisserman, arXiv 1409.1556, table 1, column D) is written out; torchvision is not
used, because installing it would replace the user's torch.
"""

from __future__ import annotations

from typing import Any

SEED = 20261201
CLASSES = 1000
WORK = {"resnet50": "training", "bert_base": "inference", "vgg16": "inference"}
CONVOLUTIONS = ("resnet50", "vgg16")
VGG16 = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)  # 0: 2 x 2 pooling
TINY: dict[str, dict[str, Any]] = {
    "resnet50": {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 64, 128], "embedding_size": 16},
    "bert_base": {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128},
    "vgg16": {"channels": (8, 0, 16, 0, 16, 0), "wide": 64},
}


def build(name: str, size: str = "full") -> Any:
    """Return a network in float32 on the CPU; `size` tiny keeps its kinds of layers and little else, for tests."""
    import torch

    torch.manual_seed(SEED)
    given: dict[str, Any] = TINY[name] if size == "tiny" else {}
    if name == "vgg16":
        return vgg16(**given)
    import transformers

    if name == "resnet50":
        config: Any = transformers.ResNetConfig
        return transformers.ResNetForImageClassification(config(num_labels=CLASSES, **given))
    return transformers.BertModel(transformers.BertConfig(**given))


def vgg16(channels: tuple[int, ...] = VGG16, wide: int = 4096) -> Any:
    """Return VGG16: convolutions 3 x 3 with ReLU, pooling to 7 x 7, three fully connected layers, dropout between."""
    from torch import nn

    layers: list[Any] = []
    width = 3
    for one in channels:
        layers += [nn.Conv2d(width, one, 3, padding=1), nn.ReLU(inplace=True)] if one else [nn.MaxPool2d(2, 2)]
        width = one or width
    head = [nn.Linear(width * 49, wide), nn.ReLU(inplace=True), nn.Dropout()]
    head += [nn.Linear(wide, wide), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(wide, CLASSES)]
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d((7, 7)), nn.Flatten(), *head)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):  # keeps the size of values through 13 layers, as for trained weights
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return network


def inputs(name: str, batch: int, image: int, length: int) -> Any:
    """Return a seeded batch on the CPU: normally distributed images (batch, 3, image, image) or ids (batch, length)."""
    import torch

    generator = torch.Generator().manual_seed(SEED + batch)
    if name == "bert_base":
        return torch.randint(1000, 20000, (batch, length), generator=generator)
    return torch.randn(batch, 3, image, image, generator=generator)


def targets(batch: int) -> Any:
    """Return seeded classes (batch,) on the CPU."""
    import torch

    return torch.randint(0, CLASSES, (batch,), generator=torch.Generator().manual_seed(SEED))


def output(name: str, network: Any, given: Any) -> Any:
    """Return logits (batch, classes), or BERT's last hidden states (batch, length, width)."""
    if name == "resnet50":
        return network(given).logits
    return network(given).last_hidden_state if name == "bert_base" else network(given)


def work(name: str, size: str, batch: int, image: int, length: int) -> dict[str, float]:
    """Return {flops, bytes, parameters} of one step, counted on shapes alone (the meta device), in float32.

    flops: products and convolutions by torch's flop counter. bytes: each operator reads its inputs and writes its
    outputs once, as separate kernels do; what fuses moves less, so this is no lower bound for a compiled network.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        network = build(name, size)
        given = torch.empty_like(inputs(name, batch, image, length), device="meta")
        wanted = torch.empty(batch, dtype=torch.long)
    network.train(WORK[name] == "training")
    with FlopCounterMode(display=False) as counted, _byte_counter() as moved:
        found = output(name, network, given)
        if WORK[name] == "training":
            torch.nn.functional.cross_entropy(found, wanted).backward()
    parameters = sum(one.numel() for one in network.parameters())
    # SGD with momentum: gradient read, momentum and weight read and written.
    update = 5 * 4 * parameters if WORK[name] == "training" else 0
    return {"flops": counted.get_total_flops(), "bytes": moved.total + update, "parameters": parameters}


def _byte_counter() -> Any:
    """Return a dispatch mode whose `total` sums the bytes of inputs and outputs of every operator that is no view."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    class Bytes(TorchDispatchMode):
        total = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made = func(*args, **(kwargs or {}))
            returns = func._schema.returns
            views = any(one.alias_info is not None and not one.alias_info.is_write for one in returns)
            if not views and func.overloadpacket.__name__ != "_unsafe_view":  # a view too, though its schema hides it
                tensors = [one for one in tree_leaves((args, kwargs, made)) if hasattr(one, "element_size")]
                self.total += sum(one.numel() * one.element_size() for one in tensors)
            return made

    return Bytes()
