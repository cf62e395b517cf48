"""Convolutions (of ResNet's shapes, depthwise, of one channel), pooling, interpolation and padding compared with CPU
PyTorch in the same run.

    python test/bench/kernel_images.py [--threads N] [--only NAME ...] [--processor-time] [--avx2] [--rounds N]

The rounds are those of kernel_elementwise.py.
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from kernel_elementwise import compare, numbers, options  # noqa: E402  found by the line above, and before torch: it sets its threads

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

# batch, channels, side of the image, channels of the result, side of the window, stride, padding, groups
CONVOLUTIONS = [(4, 3, 224, 64, 7, 2, 3, 1), (8, 64, 56, 64, 3, 1, 1, 1), (8, 64, 56, 256, 1, 1, 0, 1), (8, 128, 28, 128, 3, 1, 1, 1),
                (8, 256, 14, 256, 3, 1, 1, 1), (8, 512, 7, 512, 3, 1, 1, 1), (8, 128, 28, 128, 3, 1, 1, 128),
                (8, 256, 14, 256, 3, 1, 1, 256),
                (8, 512, 7, 512, 3, 1, 1, 512), (64, 1, 28, 6, 5, 1, 2, 1)]  # fmt: skip

IMAGES = {
    "max_pool": lambda x: F.max_pool2d(x, 3, 2, 1),
    "avg_pool": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 7),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "antialiased": lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "reflect": lambda x: F.pad(x, (3, 3, 3, 3), "reflect"),
    "replicate": lambda x: F.pad(x, (3, 3, 3, 3), "replicate"),
    "unfold": lambda x: F.unfold(x, 3),
}


def convolution(batch, channels, side, results, window, stride, padding, groups):
    """Builders of a forward and of a backward (to the input and the weight)."""

    def operands(device):
        return numbers(device, batch, channels, side, side), numbers(device, results, channels // groups, window, window)

    def forward(device):
        x, weight = operands(device)
        return lambda: F.conv2d(x, weight, None, stride, padding, 1, groups)

    def backward(device):
        x, weight = operands(device)
        grad = torch.ones_like(F.conv2d(x, weight, None, stride, padding, 1, groups))
        return lambda: torch.ops.aten.convolution_backward(grad, x, weight, None, [stride] * 2, [padding] * 2, [1, 1], False, [0, 0],
                                                           groups, [True, True, False])  # fmt: skip

    return {"forward": forward, "backward": backward}


def of_images(function, shape, order, is_backward):
    """Builder of a function of images in a memory format, or of its gradient."""

    def build(device):
        x = numbers(device, *shape).to(memory_format=order).requires_grad_(is_backward)
        if not is_backward:
            return lambda: function(x)
        result = function(x)
        grad = torch.ones_like(result)
        return lambda: torch.autograd.grad(result, x, grad, retain_graph=True)

    return build


def main():
    for shape in CONVOLUTIONS:
        kind = "depthwise" if shape[-1] > 1 else "convolution"
        for step, build in convolution(*shape).items():
            if not options.only or kind in options.only:
                compare(f"conv {'x'.join(map(str, shape))} {step}", build)
    for name, function in IMAGES.items():
        if not options.only or name in options.only:
            for shape in ((4, 64, 112, 112), (1, 3, 8, 8)):
                for order in (torch.contiguous_format, torch.channels_last):
                    for step in ("forward", "backward"):
                        build = of_images(function, shape, order, step == "backward")
                        compare(f"{name} {'x'.join(map(str, shape))} {str(order).split('.')[1]} {step}", build)


if __name__ == "__main__":
    main()
