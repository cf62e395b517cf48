"""diffusers: training and sampling of small models on the device as on the CPU, placement of pipelines, and layers that
are offloaded to the host."""

import pytest
import torch

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: make test-integrations")


def unet():
    torch.manual_seed(0)
    return diffusers.UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32), norm_num_groups=8, attention_head_dim=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )  # fmt: skip


def transformer_pipeline():
    torch.manual_seed(0)
    transformer = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, out_channels=8, num_layers=2, sample_size=8, patch_size=2,
        num_embeds_ada_norm=1000, norm_num_groups=4,
    )  # fmt: skip
    images = diffusers.AutoencoderKL(
        block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4,
        norm_num_groups=4, sample_size=16,
    )  # fmt: skip
    return diffusers.DiTPipeline(transformer.eval(), images.eval(), diffusers.DPMSolverMultistepScheduler(num_train_timesteps=100))


def sampled(pipeline):
    pipeline.set_progress_bar_config(disable=True)
    images = pipeline(class_labels=[1, 2], generator=torch.Generator().manual_seed(3), num_inference_steps=3, output_type="np").images
    return torch.tensor(images)


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("scheduler, pipeline", [("DDPMScheduler", "DDPMPipeline"), ("DDIMScheduler", "DDIMPipeline")])
def test_sampling(device, native, scheduler, pipeline):
    def images(place):
        made = getattr(diffusers, pipeline)(unet=unet().eval(), scheduler=getattr(diffusers, scheduler)(num_train_timesteps=100)).to(place)
        made.set_progress_bar_config(disable=True)
        assert made.device.type == place
        return torch.tensor(made(batch_size=2, generator=torch.Generator().manual_seed(1), num_inference_steps=3, output_type="np").images)

    with native():
        result = images(device)
    close(result, images("cpu"))


def test_training(device, native):
    def losses(place):
        net, scheduler = unet().to(place), diffusers.DDPMScheduler(num_train_timesteps=100)
        optimizer, generator = torch.optim.AdamW(net.parameters(), 1e-3), torch.Generator().manual_seed(2)
        found = []
        for _ in range(3):
            image, noise = (torch.randn(4, 3, 16, 16, generator=generator).to(place) for _ in range(2))
            time = torch.randint(0, 100, (4,), generator=generator).to(place)
            loss = torch.nn.functional.mse_loss(net(scheduler.add_noise(image, noise, time), time).sample, noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return torch.tensor(found)

    with native():
        result = losses(device)
    expected = losses("cpu")
    close(result, expected)
    assert expected[-1] < expected[0]


@pytest.mark.parametrize("offload", [None, "enable_model_cpu_offload", "enable_sequential_cpu_offload"])
def test_a_pipeline_computes_on_the_device(device, native, offload):
    pipeline = transformer_pipeline()
    if offload:
        getattr(pipeline, offload)()  # without a device: diffusers selects it
    else:
        pipeline.to(device)
    with native():
        result = sampled(pipeline)
    close(result, sampled(transformer_pipeline()))


@pytest.mark.parametrize("device_map", ["balanced", "name"])
def test_device_maps(device, native, tmp_path, device_map):
    transformer_pipeline().save_pretrained(tmp_path)
    pipeline = diffusers.DiTPipeline.from_pretrained(tmp_path, device_map=device if device_map == "name" else device_map)
    assert {pipeline.transformer.device.type, pipeline.vae.device.type} == {device}
    with native():
        result = sampled(pipeline)
    close(result, sampled(transformer_pipeline()))


@pytest.mark.parametrize("options", [{"offload_type": "leaf_level"}, {"offload_type": "leaf_level", "record_stream": True},
                                     {"offload_type": "leaf_level", "low_cpu_mem_usage": True}, {"offload_type": "block_level", "num_blocks_per_group": 1}],
                         ids=str)  # fmt: skip
def test_groups_of_layers_are_copied_by_a_stream(device, native, options):
    """Without the integration the first step computes before the copies have arrived."""
    from diffusers.hooks import apply_group_offloading

    image, time = torch.randn(1, 3, 16, 16), torch.tensor(3)
    with torch.no_grad():
        expected = unet().eval()(image, time).sample
        for _ in range(3):  # a race shows in some of the runs
            net = unet().eval()
            apply_group_offloading(net, onload_device=torch.device(device), offload_device=torch.device("cpu"), use_stream=True, **options)
            with native():
                results = [net(image.to(device), time.to(device)).sample for _ in range(2)]
            for result in results:
                assert result.device.type == device
                close(result.cpu(), expected)


def test_weights_in_float8(device, native):
    image, time = torch.randn(1, 3, 16, 16), torch.tensor(3)

    def result(place):
        net = unet().to(place).eval()
        net.enable_layerwise_casting(storage_dtype=torch.float8_e4m3fn, compute_dtype=torch.float32)
        with torch.no_grad():
            return net(image.to(place), time.to(place)).sample.cpu()

    with native():
        ours = result(device)
    close(ours, result("cpu"))
