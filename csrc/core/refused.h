// refused.h: operators that autocast refuses, for both device types.
#pragma once

namespace torch_backend {

// Half precision is too inaccurate if a probability is close to 0 or 1, so CUDA refuses it; the message is CUDA's.
constexpr const char *kRefusedBinaryCrossEntropy =
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast.";

}  // namespace torch_backend
