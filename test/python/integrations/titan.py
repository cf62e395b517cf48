"""torchtitan's Trainer, run as two processes by test_torchtitan.py: on the device, and on the CPU with Gloo. Its arguments are torchtitan's. The last line
that a rank prints has its losses and norms of gradients."""

import importlib.util
import json
import os
import sys
import types

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

import torch

ON_CPU = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"


def train_on_the_cpu():
    """torchtitan runs on accelerators. It gets the CPU as one, with the functions of a device module that torch.cpu lacks."""
    torch._utils._get_available_device_type = lambda: "cpu"
    memory = {"active_bytes.all.peak": 0, "reserved_bytes.all.peak": 0, "num_alloc_retries": 0, "num_ooms": 0}
    torch.cpu.get_device_name = lambda device=None: "CPU"
    torch.cpu.get_device_properties = lambda device=None: type("Properties", (), {"total_memory": 1 << 34})
    torch.cpu.memory_stats = lambda device=None: memory
    torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda device=None: None
    torch.cpu.current_device = lambda: 0
    norm = torch.nn.utils.get_total_norm
    # The CPU's float32 norm of 500,000 elements is off by 1e-4.
    torch.nn.utils.get_total_norm = lambda tensors, *more, **named: norm([one.double() for one in tensors], *more, **named).float()


def import_without_triton():
    """torchtitan imports its kernels of experts, which are written in triton and which the debug model does not use. torch for the CPU has no triton."""
    if importlib.util.find_spec("triton") is None:
        kernels = types.ModuleType("torchtitan.models.moe.kernels")
        kernels.generate_permute_indices = None
        sys.modules[kernels.__name__] = kernels


def create_files(folder):
    """Writes a tokenizer and a text, which torchtitan's wheel lacks."""
    import tokenizers

    words = ("the a device stream kernel waits copies reads writes one two three blocks of memory and then an event is recorded on it after each step "
             "gradients are summed over ranks before weights change").split()  # fmt: skip
    generator = torch.Generator().manual_seed(5)
    texts = [" ".join(words[index] for index in torch.randint(len(words), (60,), generator=generator).tolist()) for _ in range(200)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False))
    for name in ("tokenizer", "texts"):
        os.makedirs(f"{folder}/{name}")
    tokenizer.save(f"{folder}/tokenizer/tokenizer.json")
    with open(f"{folder}/tokenizer/tokenizer_config.json", "w") as file:
        json.dump({"bos_token": "<s>", "eos_token": "</s>"}, file)
    with open(f"{folder}/texts/data.json", "w") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts)


def main():
    torch.set_num_threads(1)
    if ON_CPU:
        train_on_the_cpu()
    if sys.argv[1] == "files":
        return create_files(sys.argv[2])
    import_without_triton()
    from torch.distributed.fsdp import FSDPModule
    from torchtitan import train

    losses, log = [], train.build_metrics_processor

    def recorded(*arguments):
        processor = log(*arguments)
        write = processor.log
        processor.log = lambda step, average, greatest, norm, **more: (losses.append([average, greatest, norm]), write(step, average, greatest, norm, **more))
        return processor

    class Trainer(train.Trainer):
        def train(self):
            for module in (module for part in self.model_parts for module in part.modules() if ON_CPU and isinstance(module, FSDPModule)):
                module.set_force_sum_reduction_for_comms(True)  # Gloo has no PREMUL_SUM
            super().train()

        def close(self):
            found = {parameter.device.type for part in self.model_parts for parameter in part.parameters()}
            device = "cpu" if ON_CPU else torch.accelerator.current_accelerator().type
            assert found == {device}, f"parameters on {found}, expected {device}"
            super().close()

    train.build_metrics_processor = recorded
    train.main(Trainer)
    print("\n" + json.dumps(losses), flush=True)


if __name__ == "__main__":
    main()
