"""Programs that users write with libraries for training, run as two processes by test_two_ranks.py: on the device, and on the CPU with Gloo. Each is a
function that returns its losses; the process of rank 0 prints them as the last line."""

import json
import os
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")

import torch
from torch import nn

ON_CPU = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0"
RANK = int(os.environ["RANK"])
STEPS = 20


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))


def samples():
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(8, generator=generator), torch.randint(0, 4, (), generator=generator)) for _ in range(16 * STEPS)]


def check_place(model):
    """The parameters are where this program is to run."""
    found = {parameter.device.type for parameter in model.parameters()}
    expected = "cpu" if ON_CPU else torch.accelerator.current_accelerator().type
    assert found == {expected}, f"parameters on {found}, expected {expected}"
    if not ON_CPU:
        index = {parameter.device.index for parameter in model.parameters()}
        assert index == {int(os.environ["LOCAL_RANK"])}, f"rank {RANK} has its parameters on devices {index}"


def check_sharded(model):
    """On the CPU accelerate does not divide parameters; the losses are the same."""
    sharded = [isinstance(parameter, torch.distributed.tensor.DTensor) for parameter in model.parameters()]
    assert ON_CPU or all(sharded), sharded


def train(accelerator, model, optimizer, loader):
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    check_place(model)
    losses = []
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).tolist())
    return model, losses


def accelerate_ddp():
    import accelerate

    accelerator = accelerate.Accelerator(cpu=ON_CPU, gradient_accumulation_steps=2)
    assert accelerator.num_processes == 2 and accelerator.state.num_processes == 2
    model = network()
    loader = torch.utils.data.DataLoader(samples(), batch_size=8)
    model, losses = train(accelerator, model, torch.optim.AdamW(model.parameters(), lr=0.01), loader)
    assert isinstance(model, nn.parallel.DistributedDataParallel), type(model)
    with tempfile.TemporaryDirectory() as folder:
        folder = accelerate.utils.broadcast_object_list([folder])[0]
        accelerator.save_state(folder)
        accelerator.wait_for_everyone()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        accelerator.load_state(folder)
        assert all(torch.equal(a, b) for a, b in zip(before, model.parameters()))
        accelerator.wait_for_everyone()
    found = accelerator.gather_for_metrics(torch.full((3,), RANK + 1.0, device=accelerator.device))
    assert found.tolist() == [1.0] * 3 + [2.0] * 3
    assert accelerator.reduce(torch.ones(2, device=accelerator.device), reduction="sum").tolist() == [2.0, 2.0]
    padded = accelerator.pad_across_processes(torch.ones(RANK + 1, device=accelerator.device))
    assert padded.tolist() == [1.0, float(RANK)]
    return losses


def _sharding():
    from accelerate.utils import FullyShardedDataParallelPlugin

    return FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=200, cpu_ram_efficient_loading=False)


def accelerate_fsdp2():
    import accelerate

    accelerator = accelerate.Accelerator(cpu=ON_CPU, fsdp_plugin=_sharding())
    model = network()
    loader = torch.utils.data.DataLoader(samples(), batch_size=8)
    model, losses = train(accelerator, model, torch.optim.AdamW(model.parameters(), lr=0.01), loader)
    check_sharded(model)
    return losses


def _language_model():
    import transformers

    torch.manual_seed(0)
    settings = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64
    )
    return transformers.LlamaForCausalLM(settings)


def _trainer(**options):
    import transformers

    generator = torch.Generator().manual_seed(2)
    data = [{"input_ids": (ids := torch.randint(0, 64, (16,), generator=generator)), "labels": ids} for _ in range(4 * STEPS)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder, per_device_train_batch_size=2, max_steps=STEPS, learning_rate=0.01, logging_steps=1, save_strategy="no", report_to=[],
            use_cpu=ON_CPU, seed=3, disable_tqdm=True, **options,
        )  # fmt: skip
        assert arguments.world_size == 2 and arguments.process_index == RANK
        trainer = transformers.Trainer(model=_language_model(), args=arguments, train_dataset=data)
        trainer.train()
        check_place(trainer.model_wrapped)
        if options:
            check_sharded(trainer.model_wrapped)
        return [[entry["loss"], entry["grad_norm"]] for entry in trainer.state.log_history if "loss" in entry]


def trainer_ddp():
    return _trainer()


def trainer_fsdp2():
    return _trainer(fsdp="full_shard auto_wrap", fsdp_config={"version": 2, "transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]})


def lightning_ddp():
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.losses = network(), []

        def training_step(self, batch, _):
            x, y = batch
            loss = nn.functional.cross_entropy(self.net(x), y)
            self.losses.append(self.all_gather(loss.detach()).tolist())
            self.log("loss", loss, sync_dist=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
    with tempfile.TemporaryDirectory() as folder:
        trainer = lightning.Trainer(
            accelerator="cpu" if ON_CPU else "auto", devices=2, max_epochs=1, default_root_dir=folder, gradient_clip_val=1.0, **quiet,
        )  # fmt: skip
        module = Module()
        trainer.fit(module, torch.utils.data.DataLoader(samples(), batch_size=8))
        assert trainer.world_size == 2 and type(trainer.strategy).__name__ == "DDPStrategy", trainer.strategy
        return module.losses


def lightning_fabric():
    import lightning

    fabric = lightning.Fabric(accelerator="cpu" if ON_CPU else "auto", devices=2, strategy="ddp")
    fabric.launch()
    model = network()
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    check_place(model)
    losses = []
    for x, y in fabric.setup_dataloaders(torch.utils.data.DataLoader(samples(), batch_size=8)):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        fabric.backward(loss)
        optimizer.step()
        losses.append(fabric.all_gather(loss.detach()).tolist())
    return losses


def deepspeed(stage):
    """On the CPU: DistributedDataParallel, whose losses DeepSpeed's stages have."""
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    if ON_CPU:
        torch.distributed.init_process_group("gloo")
        wrapped = nn.parallel.DistributedDataParallel(model)
    else:
        import deepspeed

        settings = {
            "train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0, "zero_optimization": {"stage": int(stage)}, "zero_allow_untested_optimizer": True,
            "steps_per_print": 1000,
        }  # fmt: skip
        wrapped, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)
        assert torch.distributed.get_backend() == "torch_backend" and wrapped.zero_optimization_stage() == int(stage)
    check_place(wrapped)
    losses = []
    for step in range(STEPS):
        part = samples()[16 * step + 8 * RANK :][:8]
        x, y = (torch.stack(one).to("cpu" if ON_CPU else wrapped.device) for one in zip(*part))
        loss = nn.functional.cross_entropy(wrapped(x), y)
        if ON_CPU:
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        else:
            wrapped.backward(loss)
            wrapped.step()
        both = loss.detach().clone()
        torch.distributed.all_reduce(both)
        losses.append(both.item())
    return losses


def main():
    torch.set_num_threads(1)
    if not ON_CPU:
        import torch_backend

        torch_backend.integrations.enable()
    name, *arguments = sys.argv[1:]
    losses = globals()[name](*arguments)
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if RANK == 0:
        print("\n" + json.dumps(losses), flush=True)


if __name__ == "__main__":
    main()
